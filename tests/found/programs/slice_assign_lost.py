# cause: an assign to a view of which one axis is cut short of its size is lost
# found by: hunt, seed 1 number 21
# on 0.12.0: ok
# on 0.13.0: ok
# on 0.14.0: ok
# on patches: ok
import numpy as np
from tinygrad import Tensor

x = Tensor(np.array([[1.0], [2.0]], dtype="float32")).realize()
x[1:3].assign(x[1:3] * 2)
print(x.numpy())
