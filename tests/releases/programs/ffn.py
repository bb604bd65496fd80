from tinygrad import Tensor

x = Tensor.empty(1, 512)
gate, up, down = Tensor.empty(512, 1024), Tensor.empty(512, 1024), Tensor.empty(1024, 512)
out = ((x @ gate).silu() * (x @ up)) @ down
