# cause: a value that is masked out altogether is folded to a constant that keeps the buffer of what was padded, which is then written to
# found by: lint (VD110) in upstream's own test_schedule
# on 0.12.0: wrong: program.py:6: input 0: 4 of 4 elements of float (4,) are wrong, at (0,) it is 0.0 and not 0.1889999955892563
# on 0.13.0: ok
# on 0.14.0: ok
# on patches: wrong: program.py:6: input 0: 4 of 4 elements of float (4,) are wrong, at (0,) it is 0.0 and not 0.1889999955892563
from tinygrad import Tensor

x = Tensor([[0.189, 2.5], [1.5, 3.0]]).realize()
print(x.pad(((0, 2), None))[2:].contiguous().numpy())
print(x.numpy())
