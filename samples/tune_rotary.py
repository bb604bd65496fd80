# Rotary embeddings written where they are used, to be tuned: which edit of the program makes it faster?
#
# What to see: tinygrad as it is computes each cosine and sine again for each product of the matmul. `tune` tries to store them, and other
# values of those lines, measures each in turns with the program as it is, compares the values, and prints the edit as a diff.
#
#   vmapdbg show samples/tune_rotary.py --patches none --time
#   vmapdbg tune samples/tune_rotary.py --patches none
#   vmapdbg tune samples/tune_rotary.py --tinygrad 0.14.0 --budget 120
#
# expect[none]: kernels 1
from tinygrad import Tensor

HEADS, TOKENS, HEAD = 4, 256, 16


def rotate(x: Tensor) -> Tensor:
    frequencies = 10000 ** -(Tensor.arange(0, HEAD, 2) / HEAD)
    angles = Tensor.arange(TOKENS).reshape(TOKENS, 1) * frequencies
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, dim=-1)
    return (first * cos - second * sin).cat(first * sin + second * cos, dim=-1)


size = HEADS * TOKENS * HEAD
q, k = (Tensor([i * step % 17 / 17 for i in range(size)]).reshape(HEADS, TOKENS, HEAD) for step in (5, 7))
scores = (rotate(q) @ rotate(k).transpose(-2, -1)).realize()
