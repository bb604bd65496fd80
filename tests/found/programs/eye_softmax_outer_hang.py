# cause: codegen rewrites for ever: a load that is a condition of ranges moves in and out of a reduce
# found by: hunt, seed 0 number 3
# on 0.12.0: hang: in uop/ops.py:unified_rewrite
# on 0.13.0: ok
# on 0.14.0: ok
# on patches: hang: in uop/ops.py:unified_rewrite
from tinygrad import Tensor

x = Tensor.eye(3).softmax(0)
print((x.unsqueeze(-1) * x.unsqueeze(-2)).sum(-1).numpy())
