# cause: a value that is compared with its own maximum is computed again and not rounded to half; the maximum is
# found by: hunt, seed 1 number 24
# on 0.12.0: ok
# on 0.13.0: wrong: program.py:8: output 0: 1 of 2 elements of bool (1, 2) are wrong, at (0, 1) it is 0 and not 1
# on 0.14.0: wrong: program.py:8: output 0: 1 of 2 elements of bool (1, 2) are wrong, at (0, 1) it is 0 and not 1
# on patches: ok
import numpy as np
from tinygrad import Tensor

x = Tensor(np.random.default_rng(1).standard_normal((1, 2)).astype("float16")).realize()
y = x.lerp(x * 2, 0.5)
print((y == y.max()).numpy())
