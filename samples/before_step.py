# A value from before a step of an optimizer, computed after it: lazy, and the step changes its input in place.
#
# What to see: on stock tinygrad 0.12.0 the direction is half of what it is. Its sum of squares is a kernel before the assign, and its
# division a kernel after the assign: it divides the new weights by the norm of the old ones. No error is raised. `check` computes every
# output again without the scheduler, and names the kernel that reads too late; `lint` sees it without a run. fuse-broadcast makes one
# kernel of the direction, and the value is right; in tinygrad 0.13.0 it is right, too.
#
#   vmapdbg check samples/before_step.py --patches none
#   vmapdbg lint samples/before_step.py --patches none
#   vmapdbg show samples/before_step.py --patches none
#
# expect: prints "before the step [[0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5]]"
# expect[none]: prints "before the step [[0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]]"
from tinygrad import Tensor

weight = Tensor.ones(2, 4).contiguous().realize()
direction = weight / weight.square().sum(-1, keepdim=True).sqrt()  # lazy: nothing is computed yet
weight.assign(weight * 0.5)  # the step
Tensor.realize(direction, weight)
print("before the step", direction.tolist())
