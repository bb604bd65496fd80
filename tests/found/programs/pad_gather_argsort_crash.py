# cause: ours (fuse-broadcast), mended: codegen finds no order for the loops of the kernel
# found by: hunt, seed 2 number 56
# on 0.12.0: ok
# on 0.13.0: ok
# on 0.14.0: ok
# on patches: ok
import numpy as np
from tinygrad import Tensor

x = Tensor(np.array([[0.2, -0.5]], dtype="float32")).realize().pad(((2, 0), (0, 0)))
print(x.gather(1, x.argsort(1)).numpy())
