# tinygrad: b2e95b2db3~1
# fixed by b2e95b2db3 (2026-06-13): rangeify: no copies for write+read of same slice
# bisect: --by kernels --commits b2e95b2db3~6..9e72a6b376
# a slice is assigned what is computed from itself: the result is written aside, and copied to the slice
# right: one kernel, which writes to the slice
from tinygrad import Tensor

x = Tensor([1.0, 2, 3, 4]).realize()
part = x[2:4]
part.assign(part + 1)
print(x.tolist())
