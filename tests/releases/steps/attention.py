"""An attention with rotary embeddings and a mask, three matmuls on one line."""

from tinygrad import Tensor

BATCH, TOKENS, WIDTH, HEADS = 2, 32, 32, 4
HEAD = WIDTH // HEADS


def rotate(x: Tensor) -> Tensor:
    angles = Tensor.arange(TOKENS).reshape(TOKENS, 1) * 10000 ** -(Tensor.arange(0, HEAD, 2) / HEAD)
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, dim=-1)
    return (first * cos - second * sin).cat(first * sin + second * cos, dim=-1)


x = Tensor.rand(BATCH, TOKENS, WIDTH)
to_q, to_k, to_v, to_out = (Tensor.rand(WIDTH, WIDTH) for _ in range(4))
q, k, v = (x @ to_q, x @ to_k, x @ to_v)
q, k, v = (each.reshape(BATCH, TOKENS, HEADS, HEAD).transpose(1, 2) for each in (q, k, v))
scores = rotate(q) @ rotate(k).transpose(-1, -2) / HEAD**0.5
scores = scores.masked_fill(Tensor.ones(TOKENS, TOKENS).tril() == 0, -1e9)
mixed = scores.softmax() @ v
out = (mixed.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH) @ to_out).realize()
