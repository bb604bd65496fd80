# The projections of latent attention (MLA) one after the other: three LOCAL buffers, each small enough, too large together.
#
# What to see: with fuse-broadcast alone one kernel holds the three latent rows, 16,384 + 12,288 + 10,240 = 38,912 bytes; Metal has 32,768.
# local-budget makes the largest GLOBAL, the other two fit. fusion-guard refuses all three: a kernel with a LOCAL buffer gets no opts, and
# one thread would do the work of four kernels with 256, 192, 160 and 128 threadgroups.
#
#   vmapdbg show samples/mla_locals.py --target metal --patches fuse-broadcast --only bufferize,kernels
#   vmapdbg diff samples/mla_locals.py --target metal --patches fuse-broadcast,local-budget --baseline=fuse-broadcast
#   vmapdbg diff samples/mla_locals.py --target metal --baseline=fuse-broadcast
#
# expect[metal: fuse-broadcast]: kernels 1
# expect[metal: fuse-broadcast]: local 38912
# expect[metal: fuse-broadcast,local-budget]: kernels 2
# expect[metal: fuse-broadcast,local-budget]: local 22528
# expect[metal: fuse-broadcast,local-budget]: node MUL "local-budget" "3 LOCAL buffers of its kernel need 38,912 bytes, the target has 32,768"
# expect[metal: all]: kernels 4
# expect[metal: all]: node MUL "fusion-guard" "in a kernel that gets no opts"
from tinygrad import Tensor

x = Tensor.empty(1, 2048)
query = (x @ Tensor.empty(2048, 4096)).silu()
latent = (query @ Tensor.empty(4096, 3072)).silu()
heads = (latent @ Tensor.empty(3072, 2560)).silu()
out = heads @ Tensor.empty(2560, 2048)
# `out` is left lazy: it is scheduled and rendered, and never run
