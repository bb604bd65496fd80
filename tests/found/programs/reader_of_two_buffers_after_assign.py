# cause: a value made before an assign, read by a value after the assign, is computed from the assigned contents
# found by: run --check on test/unit/test_assign.py of 0.14.0, which has it as a TODO
# on 0.12.0: crash: RuntimeError: cycle detected in graph, kernel for UOp(Ops.BUFFER, dtypes.float, arg=1, src=(
# on 0.13.0: crash: RuntimeError: cycle detected in assign graph, buffers UOp(Ops.PARAM, dtypes.float, arg=0, src=(
# on 0.14.0: wrong: program.py:11: output 2: 1 of 1 elements of float (1,) are wrong, at (0,) it is 16.0 and not 15.0
# on patches: crash: RuntimeError: cycle detected in graph, kernel for UOp(Ops.BUFFER, dtypes.float, arg=1, src=(
from tinygrad import Tensor

x = Tensor([1.0]).contiguous().realize()
y = Tensor([2.0]).contiguous().realize()
before = x + 10
x.assign(x * 2)
y.assign(y + x)
z = y + before
Tensor.realize(x, y, z)
print(z.numpy())
