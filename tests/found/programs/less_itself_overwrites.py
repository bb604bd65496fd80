# cause: x - x is folded to a constant that keeps the buffer of x, which is then written to
# found by: hunt, seed 0 number 14
# on 0.12.0: wrong: program.py:7: input 0: 1 of 1 elements of float (1,) are wrong, at (0,) it is 0.0 and not 0.1889999955892563
# on 0.13.0: ok
# on 0.14.0: ok
# on patches: wrong: program.py:7: input 0: 1 of 1 elements of float (1,) are wrong, at (0,) it is 0.0 and not 0.1889999955892563
import numpy as np
from tinygrad import Tensor

x = Tensor(np.array([[0.189]], dtype="float32")).realize()
print((x - x).numpy())
print(x.numpy())
