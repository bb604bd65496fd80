# cause: an item assignment with a list of integers beside an integer or a slice: its mask is spread over the whole tensor
# found by: hand
# on 0.12.0: wrong: program.py:6: unchosen 0: 6 of 24 elements of float (2, 4, 3) are wrong, at (1, 0, 0) it is 99.0 and not 12.0
# on 0.13.0: ok
# on 0.14.0: ok
# on patches: wrong: program.py:6: unchosen 0: 6 of 24 elements of float (2, 4, 3) are wrong, at (1, 0, 0) it is 99.0 and not 12.0
from tinygrad import Tensor

x = Tensor.arange(24).float().reshape(2, 4, 3).contiguous().realize()
x[0, [0, 2]] = 99.0
print(x.numpy())
