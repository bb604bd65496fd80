# cause: the same where what is read is gathered, and the assign turns the buffer around
# found by: hunt, seed 0 number 31
# on 0.12.0: wrong: program.py:11: output 0: 30 of 33 elements of float (1, 3, 11) are wrong, at (0, 0, 0) it is 1.0783424377441406 and not 0.18905338644981384
# on 0.13.0: ok
# on 0.14.0: ok
# on patches: ok
import numpy as np
from tinygrad import Tensor

x = Tensor(np.random.default_rng(2).standard_normal((1, 33)).astype("float32")).realize()
rows = x.reshape(1, 3, 11)
chosen = x[:, Tensor([24])]
x.assign(x[:, ::-1])
larger = (chosen > rows).where(chosen, rows)
Tensor.realize(larger, x)
print(larger.numpy())
