# cause: a constant of a weak dtype becomes a vector of floats, and is stored as a vector of halves: the C does not compile
# found by: hunt, seed 1 number 45
# on 0.12.0: ok
# on 0.13.0: ok
# on 0.14.0: crash: compiler: invalid conversion between ext-vector type '__fp164' (vector of 4 '__fp16' values) and 'float4' (vector of 4 'float' values)
# on patches: ok
import numpy as np
from tinygrad import Tensor

x = Tensor(np.ones((1, 4), dtype="float16")).realize()
print((x - x + 1).numpy())
