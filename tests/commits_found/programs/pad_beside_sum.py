# tinygrad: aa32d309db~1
# fixed by aa32d309db (2026-06-12): fix rangeify indexing for pad/reduce
# bisect: --by crash --commits aa32d309db~8..8efc8d064f
# a value padded by one row on each side, and the same by another path, both summed along their columns: the pad of one
# sum takes the ranges of the other
# right: [0.0, 6.0, 6.0, 6.0, 6.0, 0.0]
from tinygrad import Tensor

x = Tensor.ones(4, 3).contiguous().realize()
one = x.pad(((1, 1), (0, 0))).sum(axis=1)
other = x.pad(((1, 2), (0, 0))).shrink(((0, 6), (0, 3))).sum(axis=1)
print((one + other).tolist())
