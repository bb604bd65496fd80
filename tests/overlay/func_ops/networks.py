"""Products, convolutions, pooling, losses, attention, linear algebra."""

from __future__ import annotations

from tinygrad import Tensor

from .data import Op, X, bools, floats, integers, op, positive, unit

SQUARE = floats(3, 3)
IMAGE = floats(1, 2, 3, 3)
WEIGHT = floats(2, 2, 2, 2)
QUERY = floats(2, 3)

OPS: list[Op] = [
    op("dot", lambda x, y: x.dot(y), floats(3), floats(3)),
    op("matrix @ vector", lambda x, y: x @ y, X, floats(3)),
    op("vector @ matrix", lambda x, y: x @ y, floats(2), X),
    op("matmul", lambda x, y: x @ y, X, floats(3, 2)),
    op("x @ x.T", lambda x: x @ x.T),
    op("matmul batched", lambda x, y: x @ y, floats(2, 1, 3), floats(3, 2)),
    op("matmul chain", lambda x, y, z: x @ y @ z, X, floats(3, 2), floats(2, 3)),
    op("linear", lambda x, w, b: x.linear(w, b), X, floats(3, 2), floats(2)),
    op("outer product", lambda x, y: x.unsqueeze(1) * y, floats(2), floats(3)),
    op("einsum", lambda x, y: Tensor.einsum("ij,kj->ik", x, y), X, floats(2, 3)),
    op("einsum trace", lambda x: Tensor.einsum("ii->", x), SQUARE),
    op("einsum bilinear", lambda x, m, y: Tensor.einsum("i,ij,j->", x, m, y), floats(2), X, floats(3)),
    op("conv1d", lambda x, w: x.conv2d(w, padding=1), floats(1, 1, 3), floats(2, 1, 2)),
    op("conv2d", lambda x, w: x.conv2d(w), IMAGE, WEIGHT),
    op("conv2d bias stride", lambda x, w, b: x.conv2d(w, b, stride=2, padding=1), IMAGE, WEIGHT, floats(2)),
    op("conv2d grouped", lambda x, w: x.conv2d(w, groups=2), IMAGE, floats(2, 1, 2, 2)),
    op("conv2d dilated", lambda x, w: x.conv2d(w, dilation=2), IMAGE, WEIGHT),
    op("conv2d asymmetric pad", lambda x, w: x.conv2d(w, padding=(1, 0, 0, 1)), floats(1, 1, 2, 3), floats(1, 1, 2, 2)),
    op("conv_transpose2d", lambda x, w: x.conv_transpose2d(w), floats(1, 1, 2, 2), floats(1, 1, 2, 2)),
    op("max_pool2d", lambda x: x.max_pool2d(2, 1), floats(1, 1, 3, 3)),
    op("max_pool2d padded", lambda x: x.max_pool2d(2, padding=1), floats(1, 1, 3, 3)),
    op("max_pool2d indices", lambda x: x.max_pool2d(2, 1, return_indices=True)[1], floats(1, 1, 3, 3), moves=False),
    op("avg_pool2d", lambda x: x.avg_pool2d(2, 1), floats(1, 1, 3, 3)),
    op("avg_pool2d ceil", lambda x: x.avg_pool2d(2, ceil_mode=True, count_include_pad=False), floats(1, 1, 3, 3)),
    op("binary_crossentropy", lambda x, y: x.sigmoid().binary_crossentropy(y.sigmoid()), X, floats(2, 3)),
    op("bce with logits", lambda x, m: x.binary_crossentropy_logits(m.float()), X, bools(2, 3)),
    op("cross_entropy", lambda x, i: x.cross_entropy(i), X, integers(0, 3, 2)),
    op("cross_entropy smoothed", lambda x, i: x.cross_entropy(i, label_smoothing=0.2), X, integers(0, 3, 2)),
    op(
        "sparse crossentropy",
        lambda x, i: x.sparse_categorical_crossentropy(i, reduction="sum"),
        X, integers(0, 3, 2),
    ),
    op("nll_loss", lambda x, i: x.log_softmax(-1).nll_loss(i, reduction="none"), X, integers(0, 3, 2)),
    op("squared error", lambda x, y: (x - y).square().mean(), X, floats(2, 3)),
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
        "attention of heads",
        lambda q, k: q.scaled_dot_product_attention(k, k),
        floats(2, 2, 2), floats(2, 2, 2),
    ),
    op("trace", lambda x: x.diagonal().sum(), SQUARE),
    op("determinant 2x2", lambda x: x[0, 0] * x[1, 1] - x[0, 1] * x[1, 0], floats(2, 2)),
    op(
        "inverse 2x2",
        lambda x: Tensor.stack(x[1, 1], -x[0, 1], -x[1, 0], x[0, 0]).reshape(2, 2)
        / (x[0, 0] * x[1, 1] - x[0, 1] * x[1, 0]),
        positive(2, 2),
    ),
    op("power of a matrix", lambda x: x @ x @ x, unit(2, 2)),
    op("newton_schulz", lambda x: x.newton_schulz(2, (3.4445, -4.7750, 2.0315)), floats(2, 2)),
    op("qr", lambda x: x.qr()[1], floats(2, 2), moves=False),
]  # fmt: skip
