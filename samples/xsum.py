# x * sum(x): a reduce and the elementwise that reads it back.
#
# What to see: without fuse-broadcast the REDUCE_AXIS ends its range at the EXPAND ("ending-ranges") and becomes a buffer: two
# kernels. With it there is one: the sum is in the loop of its reader.
#
#   vmapdbg show samples/xsum.py --only ranges,kernels
#   vmapdbg diff samples/xsum.py
#
# expect: kernels 1
# expect[all,-fuse-broadcast]: kernels 2
# expect: prints "[10.0, 20.0, 30.0, 40.0]"
from tinygrad import Tensor

x = Tensor([1.0, 2.0, 3.0, 4.0])
print((x * x.sum()).tolist())
