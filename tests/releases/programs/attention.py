from tinygrad import Tensor

query = Tensor.empty(2, 2, 16, 8)
key = Tensor.empty(2, 2, 16, 8)
value = Tensor.empty(2, 2, 16, 8)
out = query.scaled_dot_product_attention(key, value, is_causal=True)
