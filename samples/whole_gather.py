# An index by two tensors, x[i, j] of 40,000 elements: the sum over all rows and columns of where(row == i and column == j, x, 0).
#
# What to see: stock splits a reduce of 32,768 elements and more in two kernels, and this is one. The first writes 200 products for each of
# the five results to a buffer, the second adds them up. With whole-gathers the reduce is known for what it is: one kernel of five loads, and
# `show` says at the reduce that it is not split, and what stock would make of it.
#
#   vmapdbg show samples/whole_gather.py
#   vmapdbg why 95 samples/whole_gather.py
#   vmapdbg diff samples/whole_gather.py --baseline=all,-whole-gathers
#
# expect: kernels 1
# expect[all,-whole-gathers]: kernels 2
# expect: unsplit REDUCE_AXIS "a gather, an index picks one element along axes 1, 2"
# expect: prints "[0.0, 201.0, 39999.0, 200.0, 39800.0]"
# expect[all,-whole-gathers]: prints "[0.0, 201.0, 39999.0, 200.0, 39800.0]"
from tinygrad import Tensor

x = Tensor.arange(40000).float().reshape(200, 200).contiguous().realize()
i, j = Tensor([0, 1, 199, 1, -1]).realize(), Tensor([0, 1, 199, 0, 0]).realize()
print(x[i, j].tolist())
