# vmap without new ops: slice by a RANGE, pad back by it, reduce over it.
#
# What to see: there is no VMAPIN, so vmap_map is empty and the patches have nothing to do: this is stock tinygrad. Each
# step puts its row into a batch of zeros and the REDUCE over rm1 adds them up, 3 x 3 rows of work for 3 rows of result:
# compare `executed ops` with those of samples/lost_range.py's scopes.
#
#   vmapdbg show samples/pad_reduce.py
#
# expect: prints "[[2.0, 4.0], [10.0, 12.0], [18.0, 20.0]]"
# expect[none]: prints "[[2.0, 4.0], [10.0, 12.0], [18.0, 20.0]]"
from tinygrad import Tensor, UOp, dtypes
from tinygrad.uop.ops import AxisType, Ops

X = Tensor.arange(12, dtype=dtypes.float32).reshape(3, 4).contiguous().realize()
batch = UOp.range(3, -1, AxisType.LOOP)

row = X[batch]  # (4,): the slice at the RANGE
result = row[:2] + row[1:3] + 1.0  # the function
padded = result.reshape(1, 2).pad(((batch, 2 - batch), None))  # zeros but for row `batch`
out = Tensor(padded.uop.reduce(batch, arg=Ops.ADD))
print(out.tolist())
