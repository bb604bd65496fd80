from tinygrad import Tensor

x = Tensor.empty(16, 32)
gate, up, down = Tensor.empty(32, 64), Tensor.empty(32, 64), Tensor.empty(64, 32)
out = ((x @ gate).silu() * (x @ up)) @ down
