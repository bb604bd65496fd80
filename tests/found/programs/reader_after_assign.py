# cause: a value that reads a buffer in two kernels, realized together with an assign to that buffer: the second kernel
# reads what the assign wrote
# found by: hunt, seed 0 number 32
# on 0.12.0: wrong: program.py:10: output 0: 2 of 2 elements of float (2, 1) are wrong, at (0, 0) it is 0.0 and not -1.0
# on 0.13.0: ok
# on 0.14.0: ok
# on patches: ok
import numpy as np
from tinygrad import Tensor

x = Tensor(np.array([[1.0], [2.0]], dtype="float32")).realize()
less = x - x.max(0, keepdim=True)
x.assign(x * 2)
Tensor.realize(less, x)
print(less.numpy())
