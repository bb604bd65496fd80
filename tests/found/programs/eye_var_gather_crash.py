# cause: the same, where the variance of an eye is gathered: codegen finds no order for the loops of the kernel
# found by: hunt, seed 3 number 186
# on 0.12.0: crash: AssertionError:
# on 0.13.0: ok
# on 0.14.0: ok
# on patches: crash: AssertionError:
from tinygrad import Tensor

x = Tensor.eye(33).var(1)
print(x.gather(0, x.argsort(0)).numpy())
