# cause: ours (fuse-broadcast), mended: the maximum of padded values, fused into the comparison with it, is a kernel that codegen
# rewrites for ever
# found by: hunt, seed 1 number 0
# on 0.12.0: ok
# on 0.13.0: ok
# on 0.14.0: ok
# on patches: ok
import numpy as np
from tinygrad import Tensor

x = Tensor(np.random.default_rng(2).standard_normal((4, 4, 6)).astype("float32")).realize()
print(x.pad(((2, 2), (0, 0), (0, 0))).argmax(2).numpy())
