# A value inside a vmap scope goes to a buffer, and the buffer forgets the batch.
#
# What to see: BUFFERIZE of the ADD that `stack` makes. With ambient-ranges it closes rm1*, the RANGE of the scope, and
# holds 3x2 elements. Without it, it holds 2: each step of the loop writes the same place and the last one wins, so
# all rows of the result are the last batch element's. No error is raised. (fuse-broadcast would leave no buffer here.)
#
#   vmapdbg show samples/lost_range.py --patches all,-fuse-broadcast
#   vmapdbg show samples/lost_range.py --patches all,-fuse-broadcast,-ambient-ranges
#
# expect: prints "reduce+index    [[3.0, 15.0], [5.0, 17.0], [7.0, 19.0]]"
# expect: prints "no reduce+index [[3.0, 15.0], [5.0, 17.0], [7.0, 19.0]]"
# expect: prints "matmul+index    [[27.0, 75.0], [31.0, 87.0], [35.0, 99.0]]"
# expect[all,-fuse-broadcast]: kernel r_3_2_2_2 has "data0_6", "int alu0 = (Lidx2<<1);", "*(data0_6+(alu0+1)) =", "*(data0_6+alu0) ="
# expect[all,-fuse-broadcast,-ambient-ranges]: prints "reduce+index    [[7.0, 19.0], [7.0, 19.0], [7.0, 19.0]]"
# expect[all,-fuse-broadcast,-ambient-ranges]: prints "no reduce+index [[7.0, 19.0], [7.0, 19.0], [7.0, 19.0]]"
# expect[all,-fuse-broadcast,-ambient-ranges]: prints "matmul+index    [[35.0, 99.0], [35.0, 99.0], [35.0, 99.0]]"
# expect[all,-fuse-broadcast,-ambient-ranges]: kernel r_3_2_2_2 has "data0_2", "*(data0_2+0) =", "*(data0_2+1) ="
from tinygrad import Tensor, UOp, dtypes
from tinygrad.uop.ops import AxisType

X = Tensor.arange(12, dtype=dtypes.float64).reshape(4, 3).contiguous().realize()
M = Tensor([[0, 1], [1, 2], [1, 4], [2, 5]], dtype=dtypes.float64).realize()
batch = UOp.range(3, -1, AxisType.LOOP)
keep = UOp.const(dtypes.index, 0)
x = X.vmapin((keep, batch))  # (4,): one column of X for each step of the batch

# `stack` makes an ADD, and the index after it reads that ADD once for each element it picks: it becomes a buffer
reduce_index = Tensor.stack(x[:2].sum(), x[2:].sum())[[0, 1]]
print("reduce+index   ", reduce_index.vmapout((batch, keep)).tolist())

# the same without a reduce of its own
no_reduce_index = Tensor.stack(x[0] + x[1], x[2] + x[3]).contiguous()[[0, 1]]
print("no reduce+index", no_reduce_index.vmapout((batch, keep)).tolist())

matmul_index = (x @ M)[[0, 1]]
print("matmul+index   ", matmul_index.vmapout((batch, keep)).tolist())
