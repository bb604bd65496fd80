# cause: codegen rewrites for ever: an index that is an arange, in the sum that a scatter is
# found by: hunt, seed 2 number 19
# on 0.12.0: hang: in uop/ops.py:unified_rewrite
# on 0.13.0: ok
# on 0.14.0: ok
# on patches: hang: in uop/ops.py:unified_rewrite
from tinygrad import Tensor, dtypes

x = Tensor.arange(4, dtype=dtypes.half).reshape((4,))
print(x.scatter(0, x.argsort(0), x + 1).numpy())
