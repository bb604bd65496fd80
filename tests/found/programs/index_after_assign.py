# cause: a value reads a buffer by index, and an assign to it is realized in the same call: it reads what was assigned
# found by: hunt, seed 2 number 190
# on 0.12.0: wrong: program.py:9: output 1: 3 of 3 elements of float (3, 1, 1) are wrong, at (0, 0, 0) it is 0.0 and not -1.0
# on 0.13.0: ok
# on 0.14.0: ok
# on patches: wrong: program.py:9: output 1: 3 of 3 elements of float (3, 1, 1, 1) are wrong, at (0, 0, 0, 0) it is 0.0 and not -1.0
import numpy as np
from tinygrad import Tensor

x = Tensor(np.array([[[-1.0]]], dtype="float32")).realize()
chosen = x[[0, 0, 0]]
x.assign(x + 1)
Tensor.realize(x, chosen)
print(chosen.numpy())
