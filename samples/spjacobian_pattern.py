# The pattern of a sparse Jacobian: stack several results, flatten, pick elements by number.
#
# What to see: each JVP holds a reduce, the stack of them is read once for each element that is picked, so the scheduler
# writes it to a buffer inside the scope. Its BUFFERIZE closes rm1*: one stack for each of the four batch elements.
#
#   vmapdbg show samples/spjacobian_pattern.py
#   vmapdbg show samples/spjacobian_pattern.py --patches all,-ambient-ranges
#
# expect: prints "[[0.0, 2.0, 5.0], [9.0, 5.0, 50.0], [36.0, 8.0, 149.0], [81.0, 11.0, 302.0]]"
# expect[all,-ambient-ranges]: prints "[[81.0, 11.0, 302.0], [81.0, 11.0, 302.0], [81.0, 11.0, 302.0], [81.0, 11.0, 302.0]]"
from tinygrad import Tensor, dtypes
from tinygrad.func import vmap

X = Tensor.arange(12, dtype=dtypes.float64).reshape(4, 3).contiguous().realize()
COLOURS = (Tensor([1.0, 0.0, 0.0]), Tensor([0.0, 0.0, 1.0]), 1.0)


def nonzeros(x: Tensor) -> Tensor:
    # three results, each with a reduce: stands for the JVPs along three colours
    jvps = [Tensor.stack((x * colour).sum(), (x * x * colour).sum()) for colour in COLOURS]
    flat = Tensor.stack(*jvps).flatten()  # (6,)
    return Tensor.stack(*[flat[i] for i in (1, 2, 5)])


print(vmap(nonzeros)(X).tolist())
