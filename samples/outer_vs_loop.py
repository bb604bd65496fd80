# LOOP and OUTER: the batch inside the kernel, or the kernel once for each element.
#
# What to see: both scopes compute the same. In the LOOP schedule rm1 is a loop of the kernel and there is one launch; in the
# OUTER schedule the kernel has a variable `range_m1` instead, and `launches` is 4. LOOP suits small bodies, OUTER large ones.
#
#   vmapdbg show samples/outer_vs_loop.py --only kernels,source
#
# expect: prints "loop  [14.0, 126.0, 366.0, 734.0]"
# expect: prints "outer [14.0, 126.0, 366.0, 734.0]"
# expect: launches 1, 1, 4
from tinygrad import Tensor, dtypes
from tinygrad.func import vmap

X = Tensor.arange(16, dtype=dtypes.float32).reshape(4, 4).contiguous().realize()
for axis_type in ("loop", "outer"):
    norms = vmap(lambda x: (x * x).sum(), axis_type=axis_type)(X)
    print(f"{axis_type:5s}", norms.tolist())
