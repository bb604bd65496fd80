# RMSNorm, x * rsqrt(mean(x**2) + eps): one reduce a row, read back by each element of the row.
#
# What to see: without fuse-broadcast the sum of squares is a buffer of one number a row, kept because a reduce in its value reads a
# buffer: two kernels. With it there is one. On Metal a row is a threadgroup of 32 threads: they add up the row together, share their
# sums in 128 bytes of threadgroup memory, and write the row. Without fusion-guard each of 65,536 threads adds up a whole row.
#
#   vmapdbg show samples/rmsnorm.py --target metal
#   vmapdbg diff samples/rmsnorm.py --target metal
#   vmapdbg diff samples/rmsnorm.py --target metal --baseline=all,-fusion-guard
#
# expect: kernels 1
# expect[all,-fuse-broadcast]: kernels 2
from tinygrad import Tensor

x = Tensor.empty(32, 1024)
out = x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
# `out` is left lazy: it is scheduled and rendered, and never run
