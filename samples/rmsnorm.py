# RMSNorm, x * rsqrt(mean(x**2) + eps): one reduce a row, read back by each element of the row (seed 002).
#
# What to see: the sum of squares is a buffer of one number a row, kept because a reduce in its value reads a buffer: two kernels.
#
#   vmapdbg show samples/rmsnorm.py --target metal
#
# expect: kernels 2
from tinygrad import Tensor

x = Tensor.empty(32, 1024)
out = x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
# `out` is left lazy: it is scheduled and rendered, and never run
