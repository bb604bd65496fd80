# A store that leaves a range of its value open cannot become a kernel.
#
# What to see: the stack of three products, flattened and picked apart again, goes to a buffer. In a LOOP scope its store closes
# rm1 around it, inside the kernel. In an OUTER scope the kernel takes the range as a variable, and the schedule runs it
# ten times. Without close-ranges the OUTER range stays open and tinygrad finds an INDEX where it wants a buffer; the
# LOOP stays right. Without ambient-ranges too, the same happens to the LOOP.
#
#   vmapdbg show samples/unclosed_range.py
#   vmapdbg show samples/unclosed_range.py --patches all,-close-ranges
#
# expect: prints "loop  [[0.0, 0.0], [3.0, 0.0], [6.0, 0.0]]"
# expect: prints "outer [[0.0, 0.0], [3.0, 0.0], [6.0, 0.0]]"
# expect[all,-close-ranges]: prints "loop  [[0.0, 0.0], [3.0, 0.0], [6.0, 0.0]]"
# expect[all,-close-ranges]: error "input to kernel must be AFTER or BUFFER, not Ops.INDEX"
# expect[all,-close-ranges,-ambient-ranges]: error "input to kernel must be AFTER or BUFFER, not Ops.INDEX"
from tinygrad import Tensor, UOp, dtypes
from tinygrad.uop.ops import AxisType

keep = UOp.const(dtypes.index, 0)
units = [Tensor([1.0, 0.0, 0.0]), Tensor([0.0, 1.0, 0.0]), Tensor([0.0, 0.0, 1.0])]
X = Tensor.arange(30, dtype=dtypes.float32).reshape(10, 3).contiguous().realize()


def pick(x):
    flat = Tensor.stack(*[x * unit for unit in units]).flatten().contiguous()
    return Tensor.stack(flat[0], flat[1])


for name, axis_type in (("loop ", AxisType.LOOP), ("outer", AxisType.OUTER)):
    batch = UOp.range(10, -1, axis_type)
    out = pick(X.vmapin((batch, keep))).vmapout((batch, keep))
    print(name, out[:3].tolist())
