# cause: a DETACH of what is realized, realized with another value: that value is written to the memory of the first
# found by: hunt, seed 2 number 135
# on 0.12.0: wrong: program.py:12: output 1: 4 of 4 elements of float (4,) are wrong, at (0,) it is 4.0 and not 1.0
# on 0.13.0: ok
# on 0.14.0: ok
# on patches: wrong: program.py:12: output 1: 4 of 4 elements of float (4,) are wrong, at (0,) it is 4.0 and not 1.0
import numpy as np
from tinygrad import Tensor

x = Tensor(np.array([3.0, -3.0, 0.5, 0.1], dtype="float32")).realize()
y = Tensor(np.array([1.0, 2.0, 3.0, 4.0], dtype="float32")).realize()
Tensor.realize(x + 1, y.detach())
print(y.numpy())
