"""Programs of several ops: contiguous in odd places, shared subexpressions, closures, models of motion."""

from __future__ import annotations

from tinygrad import Tensor

from .data import Op, X, floats, op, positive

M = [[0.5, -1.0, 0.25], [2.0, 0.75, -0.5], [1.0, 0.0, -1.5]]


def shared(x: Tensor) -> Tensor:
    y = x.exp()
    z = y.sum(1, keepdim=True)
    return (y / z) * z.log() + y[:, [1, 0, 2]]


def runge_kutta(x: Tensor) -> Tensor:
    def rate(s: Tensor) -> Tensor:
        return Tensor.stack(s[1], -s[0].sin())

    k1 = rate(x)
    k2 = rate(x + k1 * 0.05)
    return x + k2 * 0.1


def bicycle(x: Tensor, u: Tensor) -> Tensor:
    return Tensor.stack(x[3] * x[2].cos(), x[3] * x[2].sin(), x[3] * u[1].tan() / 2.5, u[0])


def layers(x: Tensor) -> Tensor:
    for _ in range(2):
        x = (x @ Tensor(M)).tanh() + x
    return x


OPS: list[Op] = [
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
    op("normalise and multiply", lambda x, w: x.layernorm() @ w, X, floats(3, 2)),
    op("gated layer", lambda x, w: (x @ w).silu() * (x @ w), X, floats(3, 2)),
    op("two layers", layers),
    op("polynomial", lambda x: ((x * 2 + 1) * x - 3) * x + 0.5),
    op("logistic map", lambda x: (lambda y: 3.5 * y * (1 - y))(3.5 * x * (1 - x)), positive(2, 3)),
    op("pendulum step", runge_kutta, floats(2)),
    op("bicycle model", bicycle, floats(4), floats(2)),
    op("cross product", lambda x, y: x[[1, 2, 0]] * y[[2, 0, 1]] - x[[2, 0, 1]] * y[[1, 2, 0]], floats(3), floats(3)),
    op("pairwise distances", lambda x: (x.unsqueeze(0) - x.unsqueeze(1)).square().sum(-1)),
    op("guarded log", lambda x: (x > 0).where((x > 0).where(x, 1).log(), 0)),
    op("finite differences", lambda x: x[:, 1:] - x[:, :-1]),
    op("moving average", lambda x: x.pad((1, 1)).unfold(1, 3, 1).mean(-1)),
    op("one element", lambda x: x * 2 + x.sum(), floats(1)),
    op("a scalar element", lambda x: x.sin() * x, floats()),
    op("two scalar elements", lambda x, y: x / y, floats(), positive()),
]
