"""Ops of networks and linear algebra, and programs of several ops."""

from __future__ import annotations

from tinygrad import Tensor

from .ops import ELEMENTWISE, INDEXING, MOVEMENT, REDUCTIONS, Op, X, floats, integers, op, positive

# *** products, convolutions, pooling, losses, attention, linear algebra

SQUARE = floats(3, 3)
IMAGE = floats(1, 2, 3, 3)
WEIGHT = floats(2, 2, 2, 2)
QUERY = floats(2, 3)

NETWORKS = [
    op("dot", lambda x, y: x.dot(y), floats(3), floats(3)),
    op("matrix @ vector", lambda x, y: x @ y, X, floats(3)),
    op("matmul", lambda x, y: x @ y, X, floats(3, 2)),
    op("x @ x.T", lambda x: x @ x.T),
    op("matmul batched", lambda x, y: x @ y, floats(2, 1, 3), floats(3, 2)),
    op("linear", lambda x, w, b: x.linear(w, b), X, floats(3, 2), floats(2)),
    op("outer product", lambda x, y: x.unsqueeze(1) * y, floats(2), floats(3)),
    op("einsum", lambda x, y: Tensor.einsum("ij,kj->ik", x, y), X, floats(2, 3)),
    op("einsum trace", lambda x: Tensor.einsum("ii->", x), SQUARE),
    op("conv1d", lambda x, w: x.conv2d(w, padding=1), floats(1, 1, 3), floats(2, 1, 2)),
    op("conv2d", lambda x, w: x.conv2d(w), IMAGE, WEIGHT),
    op("conv2d bias stride", lambda x, w, b: x.conv2d(w, b, stride=2, padding=1), IMAGE, WEIGHT, floats(2)),
    op("conv2d grouped", lambda x, w: x.conv2d(w, groups=2), IMAGE, floats(2, 1, 2, 2)),
    op("conv2d dilated", lambda x, w: x.conv2d(w, dilation=2), IMAGE, WEIGHT),
    op("conv_transpose2d", lambda x, w: x.conv_transpose2d(w), floats(1, 1, 2, 2), floats(1, 1, 2, 2)),
    op("max_pool2d", lambda x: x.max_pool2d(2, 1), floats(1, 1, 3, 3)),
    op("max_pool2d indices", lambda x: x.max_pool2d(2, 1, return_indices=True)[1], floats(1, 1, 3, 3), moves=False),
    op("avg_pool2d", lambda x: x.avg_pool2d(2, 1), floats(1, 1, 3, 3)),
    op("binary_crossentropy", lambda x, y: x.sigmoid().binary_crossentropy(y.sigmoid()), X, floats(2, 3)),
    op("cross_entropy", lambda x, i: x.cross_entropy(i), X, integers(0, 3, 2)),
    op("attention", lambda q, k, v: q.scaled_dot_product_attention(k, v), QUERY, floats(2, 3), floats(2, 3)),
    op(
        "attention causal",
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
        QUERY, floats(2, 3), floats(2, 3),
    ),
    op(
        "attention masked",
        lambda q, k, v, m: q.scaled_dot_product_attention(k, v, attn_mask=m),
        QUERY, floats(2, 3), floats(2, 3), floats(2, 2),
    ),
    op(
        "inverse 2x2",
        lambda x: Tensor.stack(x[1, 1], -x[0, 1], -x[1, 0], x[0, 0]).reshape(2, 2)
        / (x[0, 0] * x[1, 1] - x[0, 1] * x[1, 0]),
        positive(2, 2),
    ),
    op("newton_schulz", lambda x: x.newton_schulz(2, (3.4445, -4.7750, 2.0315)), floats(2, 2)),
    op("qr", lambda x: x.qr()[1], floats(2, 2), moves=False),
]  # fmt: skip

# *** contiguous in odd places, shared subexpressions, closures, models of motion

M = [[0.5, -1.0, 0.25], [2.0, 0.75, -0.5], [1.0, 0.0, -1.5]]


def shared(x: Tensor) -> Tensor:
    y = x.exp()
    z = y.sum(1, keepdim=True)
    return (y / z) * z.log() + y[:, [1, 0, 2]]


PATTERNS = [
    op("contiguous", lambda x: x.contiguous() * 2),
    op("contiguous of a permute", lambda x: x.T.contiguous().reshape(2, 3) + x),
    op("contiguous after a reduce", lambda x: x.sum(0).contiguous().exp()),
    op("contiguous twice", lambda x: (x.exp().contiguous().sum(1).contiguous() * 2)[[1, 0]]),
    op("contiguous of a scalar", lambda x: x.sum().contiguous() * x),
    op("contiguous of an expand", lambda x: x.sum(0).expand(2, 3).contiguous() * x),
    op("contiguous_backward", lambda x: (x.contiguous_backward() * 3).sin()),
    op("detach", lambda x: x.detach() * x + x),
    op("shared subexpression", shared),
    op("x twice", lambda x: x * x.sum() + x.max()),
    op("closure over a matrix", lambda x: (x @ Tensor(M)).relu()),
    op("closure indexed by the element", lambda x: Tensor(M)[(x.sum(1) > 0).int()] * x),
    op("arange in the function", lambda x: x * Tensor.arange(3) + Tensor.eye(3)[:2]),
    op("reduce of a reduce", lambda x: x.sum(1).softmax(0).max()),
    op("reduce, expand, reduce", lambda x: (x - x.mean(1, keepdim=True)).square().sum(1) / x.abs().sum()),
    op("pairwise distances", lambda x: (x.unsqueeze(0) - x.unsqueeze(1)).square().sum(-1)),
    op("one element", lambda x: x * 2 + x.sum(), floats(1)),
    op("a scalar element", lambda x: x.sin() * x, floats()),
    op("two scalar elements", lambda x, y: x / y, floats(), positive()),
]


ALL: list[Op] = [*ELEMENTWISE, *REDUCTIONS, *MOVEMENT, *INDEXING, *NETWORKS, *PATTERNS]
OPS: dict[str, Op] = {found.name: found for found in ALL}
assert len(OPS) == len(ALL), "two ops of one name"
