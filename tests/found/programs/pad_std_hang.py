# cause: ours (fuse-broadcast), mended: the mean of padded values, fused into what is less it, is a kernel that codegen rewrites
# for ever
# found by: hunt, seed 2 number 72
# on 0.12.0: ok
# on 0.13.0: ok
# on 0.14.0: ok
# on patches: ok
import numpy as np
from tinygrad import Tensor

x = Tensor(np.ones((11, 7), dtype="float32")).realize()
print(x.pad(((1, 2), (0, 0))).std(1).numpy())
