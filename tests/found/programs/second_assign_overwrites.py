# cause: of two pending assigns to a tensor, the second with a value made before the first: it is written to the memory
#        that the first one reads
# found by: hunt with numpy twins, seed 4242 number 183
# on 0.12.0: wrong: program.py:14: input 0: 4 of 4 elements of float (4,) are wrong, at (0,) it is 2.0 and not -1.0
# on 0.13.0: crash
# on 0.14.0: crash
# on patches: wrong: program.py:14: input 0: 4 of 4 elements of float (4,) are wrong, at (0,) it is 2.0 and not -1.0
from tinygrad import Tensor

x = Tensor([-1.0, -1.0, 0.0, -3.0]).realize()
y = Tensor([2.0, 0.0, 1.0, 2.0]).realize()
before = y * 0.5 + 1
y.assign(x * 2)
y.assign(before * 0.5 + 1).realize()
print(x.tolist(), y.tolist())
