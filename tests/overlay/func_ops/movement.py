"""Movement ops, padding, stacking and splitting, interpolation."""

from __future__ import annotations

from tinygrad import Tensor

from .data import Op, X, floats, op

IMAGE = floats(1, 1, 2, 3)

OPS: list[Op] = [
    op("reshape", lambda x: x.reshape(3, 2)),
    op("reshape to a scalar", lambda x: x.reshape(()), floats(1, 1)),
    op("reshape and sum", lambda x: x.reshape(3, 2).sum(0)),
    op("permute", lambda x: x.permute(2, 0, 1), floats(2, 1, 3)),
    op("transpose", lambda x: x.T * 2),
    op("flip", lambda x: x.flip(1)),
    op("flip both", lambda x: x.flip((0, 1)).exp()),
    op("expand", lambda x: x.unsqueeze(1).expand(2, 2, 3)),
    op("expand a scalar", lambda x: x.expand(2, 3), floats()),
    op("unsqueeze squeeze", lambda x: x.unsqueeze(0).squeeze(0)),
    op("flatten", lambda x: x.flatten()),
    op("unflatten", lambda x: x.unflatten(1, (1, 3))),
    op("view", lambda x: x.view(6)),
    op("shrink", lambda x: x.shrink(((0, 1), (1, 3)))),
    op("pad", lambda x: x.pad(((0, 1), (2, 0)))),
    op("pad with a value", lambda x: x.pad((1, 1), value=2.0)),
    op("pad negative", lambda x: x.pad((-1, 1))),
    op("pad reflect", lambda x: x.pad((1, 1, 0, 0), mode="reflect"), IMAGE),
    op("pad replicate", lambda x: x.pad((1, 2, 1, 0), mode="replicate"), IMAGE),
    op("pad circular", lambda x: x.pad((1, 1, 0, 1), mode="circular"), IMAGE),
    op("pad of exp", lambda x: x.exp().pad(((1, 0), (0, 1)))),
    op("pad and reshape", lambda x: x.pad(((0, 0), (0, 1))).reshape(4, 2)),
    op("roll", lambda x: x.roll(1, 1)),
    op("roll both", lambda x: x.roll((1, -1), (0, 1))),
    op("repeat", lambda x: x.repeat((1, 2))),
    op("repeat_interleave", lambda x: x.repeat_interleave(2, 1)),
    op("unfold", lambda x: x.unfold(1, 2, 1)),
    op("diag", lambda x: x.diag(), floats(3)),
    op("diagonal", lambda x: x.diagonal(), floats(3, 3)),
    op("tril", lambda x: x.tril(), floats(3, 3)),
    op("triu", lambda x: x.triu(1), floats(3, 3)),
    op("meshgrid", lambda x, y: (lambda g: g[0] * g[1])(x.meshgrid(y)), floats(2), floats(3)),
    op("cat", lambda x, y: x.cat(y, dim=0), X, floats(1, 3)),
    op("cat with itself", lambda x: x.cat(x * 2, x.exp(), dim=1)),
    op("stack", lambda x, y: Tensor.stack(x, y), X, floats(2, 3)),
    op("stack at the end", lambda x: Tensor.stack(x, x.sin(), dim=-1)),
    op("stack of scalars", lambda x: Tensor.stack(x[0].sum(), x[1].sum(), x.max())),
    op("stack and max", lambda x: Tensor.stack(x, x * -2).max(0)),
    op("split", lambda x: (lambda p: p[0] * p[1])(x.split(1, 0))),
    op("chunk", lambda x: Tensor.cat(*reversed(x.chunk(3, 1)), dim=1)),
    op("interpolate linear", lambda x: x.interpolate((4,)), floats(1, 1, 3)),
    op("interpolate nearest", lambda x: x.interpolate((4,), mode="nearest"), floats(1, 1, 3)),
    op("interpolate bilinear", lambda x: x.interpolate((3, 2), align_corners=True), IMAGE),
]
