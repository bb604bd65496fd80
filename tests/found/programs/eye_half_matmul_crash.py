# cause: the C of a vector of halves, built from a condition, does not compile
# found by: hunt, seed 0 number 19
# on 0.12.0: crash: compiler: use of undeclared identifier 'Ridx0'
# on 0.13.0: ok
# on 0.14.0: ok
# on patches: crash: compiler: use of undeclared identifier 'Ridx0'
from tinygrad import Tensor, dtypes

x = Tensor.eye(4, dtype=dtypes.half)
y = x - x.max(1, keepdim=True)
print((y @ y.transpose(-1, -2)).numpy())
