from tinygrad import Tensor

x, first, second = Tensor.empty(16, 32), Tensor.empty(32, 64), Tensor.empty(64, 32)
out = (x @ first).gelu() @ second
