# A value inside a vmap scope goes to a buffer, and the buffer forgets the batch (seed 000).
#
# What to see: BUFFERIZE of the ADD that `stack` makes. With ambient-ranges it closes rm1*, the RANGE of the scope, and
# holds 3x2 elements. Without it, it holds 2: each step of the loop writes the same place and the last one wins, so
# all rows of the result are the last batch element's. No error is raised.
#
#   vmapdbg show samples/lost_range.py
#   vmapdbg show samples/lost_range.py --patches all,-ambient-ranges
#
# expect: reduce_index == [[3, 15], [5, 17], [7, 19]]
# expect: kernel r_3_2_2_2 has "data0_6" and "int alu0 = (Lidx2<<1);"
# expect[all,-ambient-ranges]: reduce_index == [[7, 19], [7, 19], [7, 19]]
# expect[all,-ambient-ranges]: kernel r_3_2_2_2 has "data0_2" and "*(data0_2+0) ="
from tinygrad import Tensor, UOp, dtypes
from tinygrad.uop.ops import AxisType

X = Tensor.arange(12, dtype=dtypes.float64).reshape(4, 3).contiguous().realize()
batch = UOp.range(3, -1, AxisType.LOOP)
keep = UOp.const(dtypes.index, 0)
x = X.vmapin((keep, batch))  # (4,): one column of X for each step of the batch

# stack gives its ADD two readers through the index, and a reduce must not run twice: it becomes a buffer
reduce_index = Tensor.stack(x[:2].sum(), x[2:].sum())[[0, 1]].vmapout((batch, keep))
print(reduce_index.tolist())
