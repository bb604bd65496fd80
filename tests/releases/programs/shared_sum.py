from tinygrad import Tensor

a, b, c, d, e = (Tensor.empty(32, 32) for _ in range(5))
shared = a + b + c + d + e
mixed = shared + shared.T.contiguous()
doubled = shared * 2
