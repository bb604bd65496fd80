# softmax, exp(x - max) / sum(exp(x - max)): two reduces a row, each read back by each element of the row.
#
# What to see: without fuse-broadcast three kernels: the maximum, the sum, the division; or four, where realize-reused stores exp(x - max),
# which the sum and the division compute both. The range map names the EXPAND at which each row's range ends. With fuse-broadcast two:
# exp(x - max) is one, with the maximum inside, and a buffer, because its two readers disagree.
#
#   vmapdbg show samples/softmax.py
#   vmapdbg diff samples/softmax.py
#
# expect: kernels 2
# expect[all,-fuse-broadcast]: kernels 4
# expect[all,-fuse-broadcast,-realize-reused]: kernels 3
from tinygrad import Tensor

x = Tensor.empty(256, 256)
out = x.softmax()
# `out` is left lazy: it is scheduled and rendered, and never run
