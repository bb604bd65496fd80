# Fewer kernels, and many times slower: a feed-forward block that fuse-broadcast alone makes one kernel of.
#
# What to see: one kernel instead of two, and one thread: the row between the matmuls is a LOCAL buffer, and a kernel with a LOCAL buffer
# gets no opts. fusion-guard puts the realize point back, and says with which numbers. `why` tells it for each node.
#
#   vmapdbg show samples/ffn_overfusion.py
#   vmapdbg diff samples/ffn_overfusion.py --baseline=all,-fusion-guard
#   vmapdbg diff samples/ffn_overfusion.py --target metal --baseline=all,-fusion-guard
#   vmapdbg why samples/ffn_overfusion.py
#
# expect: kernels 2
# expect[all,-fusion-guard]: kernels 1
# expect[none]: kernels 2
# expect: node MUL "fusion-guard" "its LOCAL buffer would be read 8,388,608 times, in a kernel that gets no opts (16,384 reads are allowed)"
from tinygrad import Tensor

x = Tensor.empty(64, 256)
gate, up, down = Tensor.empty(256, 512), Tensor.empty(256, 512), Tensor.empty(512, 256)
out = ((x @ gate).silu() * (x @ up)) @ down
# `out` is left lazy: it is scheduled and rendered, and never run
