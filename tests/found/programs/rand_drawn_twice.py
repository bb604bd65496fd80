# cause: two tensors of random numbers that are drawn after a third one is realized get the same numbers
# found by: run --check on test/backend/test_symbolic_jit.py of 0.14.0
# on 0.12.0: ok
# on 0.13.0: wrong: program.py:10: output 0: 2 of 2 elements of float (2,) are wrong
# on 0.14.0: ok
# on patches: ok
# right: three different pairs of numbers
from tinygrad import Tensor

first, second, third = Tensor.rand(2), Tensor.rand(2), Tensor.rand(2)
print(first.tolist(), second.tolist(), third.tolist())
