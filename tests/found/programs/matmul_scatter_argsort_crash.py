# cause: ours (fuse-broadcast), mended: reduces of a fused kernel have a loop in common that gets two ends
# found by: hunt, seed 3 number 180
# on 0.12.0: ok
# on 0.13.0: ok
# on 0.14.0: ok
# on patches: ok
from tinygrad import Tensor, dtypes

x = Tensor.arange(4, dtype=dtypes.float).reshape(2, 2) @ Tensor.ones(2, 3)
print(x.scatter(0, x.argsort(0), x + 1).numpy())
