# A sine for each element of a matmul: rotary embeddings written where they are used.
#
# What to see: a cosine and a sine of 128 x 16 angles. Nothing of them is read from memory, so stock gives them no buffer, and each reader
# computes them again: the matmul q @ k computes them for each of its 128 x 128 products, along each of its rows. realize-reused sees that
# in the loops around them, and stores what is cheaper stored: the rotated q and k, which a matmul reads, and the sines, which they read.
#
#   vmapdbg show samples/rotary.py --only bufferize,kernels
#   vmapdbg diff samples/rotary.py --baseline=all,-realize-reused
#   vmapdbg lint samples/rotary.py --patches none
#
# expect: kernels 9
# expect: node SIN "ending-ranges" "ends at EXPAND"
# expect[all,-realize-reused]: kernels 3
from tinygrad import Tensor

HEADS, TOKENS, HEAD = 4, 128, 32


def rotate(x: Tensor) -> Tensor:
    frequencies = 10000 ** -(Tensor.arange(0, HEAD, 2) / HEAD)
    angles = Tensor.arange(TOKENS).reshape(TOKENS, 1) * frequencies
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, dim=-1)
    return (first * cos - second * sin).cat(first * sin + second * cos, dim=-1)


q, k = Tensor.empty(HEADS, TOKENS, HEAD), Tensor.empty(HEADS, TOKENS, HEAD)
scores = (rotate(q) @ rotate(k).transpose(-2, -1)).softmax()
# `scores` is left lazy: it is scheduled and rendered, and never run
