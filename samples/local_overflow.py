# Three matmuls of a feed-forward block, fused: the intermediate row is LOCAL memory that the target does not have.
#
# What to see: without local-budget the row of 10,240 floats is a LOCAL buffer of 40,960 bytes; Metal has 32,768 for a threadgroup, and
# the kernel does not start. With it the buffer is GLOBAL: two kernels. CUDA has 49,152 bytes, there it fits.
#
#   vmapdbg show samples/local_overflow.py --target metal --patches all,-fusion-guard --only bufferize,kernels
#   vmapdbg diff samples/local_overflow.py --target metal --patches all,-fusion-guard --baseline=fuse-broadcast
#
# expect[metal: all,-fusion-guard]: kernels 2
# expect[metal: fuse-broadcast]: kernels 1
# expect[metal: fuse-broadcast]: local 40960
# expect[cuda: all,-fusion-guard]: local 40960
# expect[metal: all,-fusion-guard]: node MUL "local-budget" "its LOCAL buffer needs 40,960 bytes, the target has 32,768"
from tinygrad import Tensor

x = Tensor.empty(1, 2048)
gate, up, down = Tensor.empty(2048, 10240), Tensor.empty(2048, 10240), Tensor.empty(10240, 2048)
out = ((x @ gate).silu() * (x @ up)) @ down
# `out` is left lazy: it is scheduled and rendered, and never run
