# LOOP and OUTER: the batch inside the kernel, or the kernel once for each element (seed 003).
#
# What to see: both scopes compute the same. In the LOOP schedule rm1 is a loop of the kernel and there is one launch; in the
# OUTER schedule the kernel has a variable `range_m1` instead, and `launches` is 4. LOOP suits small bodies, OUTER large ones.
#
#   vmapdbg show samples/outer_vs_loop.py --only kernels,source
#
# expect: prints "loop  [14.0, 126.0, 366.0, 734.0]"
# expect: prints "outer [14.0, 126.0, 366.0, 734.0]"
# expect: launches 1, 1, 4
from tinygrad import Tensor, UOp, dtypes
from tinygrad.uop.ops import AxisType

X = Tensor.arange(16, dtype=dtypes.float32).reshape(4, 4).contiguous().realize()
keep = UOp.const(dtypes.index, 0)
for name, axis_type in (("loop ", AxisType.LOOP), ("outer", AxisType.OUTER)):
    batch = UOp.range(4, -1, axis_type)
    x = X.vmapin((batch, keep))
    print(name, (x * x).sum().vmapout((batch,)).tolist())
