# cause: the mean of a stack that is interleaved, joined with another value, is summed once for each row: 6 times too large
# found by: hand
# on 0.12.0: wrong: program.py:7: output 0: 1 of 1 elements of float () are wrong, at () it is 143.0 and not 23.83333396911621
# on 0.13.0: wrong: program.py:7: output 0: 1 of 1 elements of float () are wrong, at () it is 143.0 and not 23.83333396911621
# on 0.14.0: ok
# on patches: wrong: program.py:7: output 0: 1 of 1 elements of float () are wrong, at () it is 143.0 and not 23.83333396911621
import numpy as np
from tinygrad import Tensor

x = Tensor(np.arange(48, dtype="float32").reshape(6, 8)).realize()
print(Tensor.stack(x, x + 1).permute(1, 0, 2).reshape(6, 16).cat(x, dim=1).mean().numpy())
