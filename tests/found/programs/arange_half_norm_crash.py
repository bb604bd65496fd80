# cause: the reduces of an arange and of the mean share a loop that gets two ends: the C does not compile
# found by: hunt, seed 3 number 80
# on 0.12.0: crash: compiler: use of undeclared identifier 'Ridx0'
# on 0.13.0: ok
# on 0.14.0: ok
# on patches: crash: compiler: use of undeclared identifier 'Ridx0'
from tinygrad import Tensor, dtypes

x = Tensor.arange(121, dtype=dtypes.half).reshape(11, 11)
print((x / (x.square().mean(1, keepdim=True) + 1).sqrt()).numpy())
