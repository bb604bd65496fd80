# cause: a value reads a buffer by index, and an assign to it is realized in the same call: it reads what was assigned
# found by: hunt, seed 2 number 190
import numpy as np
from tinygrad import Tensor

x = Tensor(np.array([[[-1.0]]], dtype="float32")).realize()
chosen = x[[0, 0, 0]]
x.assign(x + 1)
Tensor.realize(x, chosen)
print(chosen.numpy())
