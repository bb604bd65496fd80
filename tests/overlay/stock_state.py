"""Programs with state, random numbers, devices, symbolic shapes, TinyJit, and RANGEs of stock tinygrad."""

from __future__ import annotations

from typing import Any

from stock_registry import DEVICES, FLOATS, MATRICES, data, program, shapes
from tinygrad import Tensor, TinyJit, UOp, Variable, nn
from tinygrad.nn.optim import SGD, Adam
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType

# *** assign, random, several outputs, schedules that follow one another


@program(*shapes((4,), (3, 5), (16, 16)))
def assign(shape: tuple[int, ...]) -> None:
    x, y = data(*shape), data(*shape)
    x.assign(x + y).realize()
    x.assign(x * 2)
    y.assign(x.flip(0) + y)
    Tensor.realize(x, y)
    x += y.sum()
    x.realize()


@program(*shapes((4,), (3, 5)))
def assign_to_view(shape: tuple[int, ...]) -> None:
    x = data(*shape)
    x.flip(0).contiguous().realize()
    x.shrink(tuple((0, size - 1) for size in shape)).assign(data(*(size - 1 for size in shape))).realize()
    x.assign(x.flip(-1)).realize()


@program(*((shape, dtype) for shape in ((3,), (4, 7)) for dtype in FLOATS))
def random(shape: tuple[int, ...], dtype: Any) -> Any:
    first = Tensor.rand(*shape, dtype=dtype)
    first.realize()
    return first + Tensor.rand(*shape, dtype=dtype), Tensor.randn(*shape, dtype=dtype), Tensor.uniform(*shape)


@program(4, 17)
def random_choices(n: int) -> Any:
    weights = data(n)
    with Tensor.train():
        dropped = data(n, n).dropout(0.3)
    return (
        Tensor.randint(n, high=9),
        Tensor.randperm(n),
        weights.softmax().multinomial(3, replacement=True),
        dropped.sum(),
    )


@program(*MATRICES)
def several_outputs(*shape: int) -> Any:
    x = data(*shape)
    shared = (x.exp() + 1).contiguous()
    total = shared.sum(1, keepdim=True)
    return shared, total, shared / total, shared.T @ shared, (shared * total).sum(0), x + 1


@program(*MATRICES)
def shared_subgraphs(*shape: int) -> Any:
    x, y = data(*shape), data(*shape)
    common = (x * y).sum(1)
    return (common + x[:, 0], common.exp().sum(), (common.reshape(-1, 1) + x).max(0), (x + y).permute(1, 0) + (x + y).T)


@program(2, 5)
def realized_steps(steps: int) -> Any:
    state, weight = data(4, 4), data(4, 4)
    for _ in range(steps):
        state = (state @ weight).tanh().realize()
    return state.sum()


@program(*shapes((4, 4), (2, 3, 4)))
def detached(shape: tuple[int, ...]) -> Any:
    x = data(*shape).requires_grad_()
    ((x.detach() * x).contiguous_backward().sum() + x.contiguous().mean()).backward()
    return x.grad, x.detach() + 1, x.clone()


# *** symbolic shapes, devices, TinyJit


@program(*((value, rows) for value in (1, 3) for rows in (4, 10)))
def symbolic(value: int, rows: int) -> Any:
    n = Variable("n", 1, rows).bind(value)
    x, y = data(rows, 6), data(6, rows)
    return (
        x[:n].sum(0),
        (x[:n] * 2).contiguous(),
        x[n - 1] + 1,
        (x[:n] @ y).sum(0),
        x.shrink(((0, n), None)).max(1).sum(),
    )


@program(*((value, length) for value in (1, 5) for length in (8,)))
def symbolic_attention(value: int, length: int) -> Any:
    start = Variable("start", 0, length - 1).bind(value)
    cache, q = data(2, 1, length, 2, 4), data(1, 2, 1, 4)
    cache[:, :, start : start + 1, :, :].assign(data(2, 1, 1, 2, 4).contiguous()).realize()
    keys, values = (cache[i][:, 0 : start + 1].transpose(1, 2) for i in range(2))
    return q.scaled_dot_product_attention(keys, values)


@program(*((axis, count) for axis in (None, 0, 1) for count in (2, 4)))
def sharded(axis: int | None, count: int) -> Any:
    x, w = data(8, 8).shard(DEVICES[:count], axis), data(8, 8).shard(DEVICES[:count])
    return (x @ w).relu(), x.sum(0), x.sum(1), x.softmax(1), (x + w).sum(), x.permute(1, 0) + 1


@program(2, 4)
def sharded_training(count: int) -> None:
    layers = [nn.Linear(8, 8), Tensor.relu, nn.Linear(8, 4)]
    parameters = nn.state.get_parameters(layers)
    for parameter in parameters:
        parameter.shard_(DEVICES[:count])
    optimizer = SGD(parameters, 0.1)
    with Tensor.train():
        x = data(8, 8).shard(DEVICES[:count], 0)
        x.sequential(layers).square().mean().backward()
        optimizer.step()


@program(*shapes((4,), (3, 5)))
def copies(shape: tuple[int, ...]) -> Any:
    x = data(*shape, device=DEVICES[1])
    there = (x + 1).to(DEVICES[2])
    return (there * 2, (there.to(DEVICES[1]) + x).sum(), x.to(DEVICES[3]).contiguous(), x.flip(0).to(DEVICES[2]))


@program(*(([1, 2, 3],), ([[1.5, 2.0], [3.0, 4.0]],), ([],), (5,)))
def from_python(value: Any) -> Any:
    x = Tensor(value)
    return x + 1, x.sum()


@program(1, 3, executes=True)
def jitted(layers: int) -> None:
    weights = [data(4, 4) for _ in range(layers)]

    def step(x: Tensor) -> Tensor:
        for weight in weights:
            x = (x @ weight).softmax(-1)
        return (x + 1).realize()

    compiled = TinyJit(step)
    for _ in range(3):
        compiled(data(4, 4).contiguous().realize())


@program(2, executes=True)
def jitted_symbolic(rows: int) -> None:
    def step(x: Tensor) -> Tensor:
        return (x.sum(0) * 2).realize()

    compiled, x = TinyJit(step), data(8, 4)
    for value in range(1, 4):
        compiled(x[: Variable("rows", 1, 8).bind(value)])


@program(1, executes=True)
def jitted_training(steps: int) -> None:
    layer = nn.Linear(4, 4)
    optimizer = Adam(nn.state.get_parameters(layer))

    def step(x: Tensor) -> Tensor:
        with Tensor.train():
            optimizer.zero_grad()
            loss = layer(x).relu().mean().backward()
            return loss.realize(*optimizer.schedule_step())

    compiled = TinyJit(step)
    for _ in range(3):
        compiled(data(2, 4).contiguous().realize())


@program(3)
def decompositions(n: int) -> Any:
    coefficients: Any = (2.0, -1.5, 0.5)
    return data(n, n).newton_schulz(2, coefficients), *data(n, n).qr()


# *** ranges in a graph of stock tinygrad


@program(*((n, m) for n in (3, 10) for m in (4, 5)))
def looped_rows(n: int, m: int) -> Any:
    row = UOp.range(n, -1)
    x = data(n, m)
    return (x[row] * 2 + 1).reshape(1, m).expand(row, m).contiguous()


@program(*((n, m) for n in (3, 10) for m in (4, 5)))
def looped_reduces(n: int, m: int) -> Any:
    row = UOp.range(n, -1)
    x, y = data(n, m, 2), data(m, n)
    return (x[row].sum(0) * 3).reshape(1, 2).expand(row, 2).contiguous(), (y[:, row] + 1).reshape(m, 1).expand(
        m, row
    ).contiguous()


@program(*((n, m, kind) for n in (3, 6) for m in (2, 5) for kind in (AxisType.LOOP, AxisType.OUTER, AxisType.REDUCE)))
def summed_over_range(n: int, m: int, kind: AxisType) -> Any:
    step = UOp.range(n, -1, kind)
    x, weights = data(1, m), data(n, m, m)
    if kind is AxisType.REDUCE:
        rows = data(n, m)[step]
        return Tensor(UOp(Ops.REDUCE, dtype=rows.uop.dtype, src=(rows.uop, step), arg=Ops.ADD))
    out = (x @ weights[step]).reshape(1, m).pad(((step, (n - step) - 1), None))
    return Tensor(out.uop.reduce(step, arg=Ops.ADD)) * 2


@program(*((n, m) for n in (3, 7) for m in (4, 6)))
def outer_fold(n: int, m: int) -> Any:
    step = UOp.range(n, -100, AxisType.OUTER)
    state, weights = data(1, m), data(n, m, m)
    next_state = Tensor(state.uop.after(step)).contiguous() @ weights[step]
    return Tensor(state.uop.after(state.uop.store(next_state.uop).end(step)))


@program(3, 5)
def outer_sum(n: int) -> Any:
    step = UOp.range(n, -100, AxisType.OUTER)
    total, x = data(4), data(4, n)
    before = total.uop.after(step)
    bound = UOp.variable("step", step.vmin, step.vmax).bind(step)
    return Tensor(total.uop.after(before.store(before + x[:, bound].uop).end(step)))
