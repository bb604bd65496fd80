from tinygrad import Tensor

rows, scale = Tensor.empty(6, 40), Tensor.empty(40)
out = rows * (rows.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * scale
