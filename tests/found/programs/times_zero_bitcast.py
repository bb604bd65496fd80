# cause: `x * 0` is taken for zero: where x is negative it is -0.0, and a bitcast sees the sign
# found by: hunt, seed 3 number 213
# on 0.12.0: wrong: program.py:8: output 0: 1 of 2 elements of int (2,) are wrong, at (1,) it is 0 and not -2147483648
# on 0.13.0: wrong: program.py:8: output 0: 1 of 2 elements of int (2,) are wrong, at (1,) it is 0 and not -2147483648
# on 0.14.0: wrong: program.py:8: output 0: 1 of 2 elements of int (2,) are wrong, at (1,) it is 0 and not -2147483648
# on patches: wrong: program.py:8: output 0: 1 of 2 elements of int (2,) are wrong, at (1,) it is 0 and not -2147483648
import numpy as np
from tinygrad import Tensor, dtypes

x = Tensor(np.array([1.0, -1.0], dtype="float32")).realize()
print((x * Tensor([0.0, 0.0])).bitcast(dtypes.int).numpy())
print((x * Tensor.arange(1, dtype=dtypes.float)).bitcast(dtypes.int).numpy())
