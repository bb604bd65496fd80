"""Programs without VMAP ops. The table of func_ops has the single ops; `python -m tests.upstream` compares the
schedules of tinygrad's own tests, which have more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from func_ops.table import OPS, Op
from tinygrad import Device, Tensor, TinyJit, UOp, Variable, dtypes, nn
from tinygrad.nn.optim import LAMB, Adam, AdamW, Muon
from tinygrad.uop.ops import AxisType

Program = Callable[..., Any]
PROGRAMS: list[tuple[str, Program, tuple[Any, ...], bool]] = []
FLOATS = (dtypes.float32, dtypes.half, dtypes.bfloat16, dtypes.double)
INTS = (dtypes.int8, dtypes.int32, dtypes.uint8, dtypes.int64)
MATRICES = ((3, 5), (16, 16), (1, 7), (8, 128))
DEVICES = tuple(f"{Device.DEFAULT}:{i}" for i in range(4))


def program(*variants: Any, executes: bool = False) -> Callable[[Program], Program]:
    """Registers a program once for each variant: a tuple of its arguments, or its only argument."""

    def register(function: Program) -> Program:
        for variant in variants or ((),):
            arguments = variant if isinstance(variant, tuple) else (variant,)
            PROGRAMS.append((function.__name__, function, arguments, executes))
        return function

    return register


def shapes(*choices: tuple[int, ...]) -> list[tuple[tuple[int, ...]]]:
    return [(choice,) for choice in choices]


def data(*shape: Any, dtype: Any = dtypes.float32, **options: Any) -> Tensor:
    """Returns a tensor that is a buffer already."""
    return Tensor.empty(*shape, dtype=dtype, **options)


def apply_op(op: Op) -> list[Tensor]:
    """Returns the result of an op of the table of `tinygrad.func`, and its gradient by each float."""
    inputs = [data(*array.shape[2:], dtype=getattr(dtypes, str(array.dtype))) for array in op.arrays()]
    result = op.fn(*inputs)
    moved = [x for x in inputs if op.moves and x.is_floating_point()]
    if not moved:
        return [result]
    cotangent = data(*result.shape, dtype=result.dtype)
    return [result, *result.gradient(*moved, gradient=cotangent, materialize_grads=True)]


PROGRAMS += [(f"op {name}", partial(apply_op, op), (), False) for name, op in OPS.items()]


# *** dtypes and shapes


@program(*FLOATS, *INTS)
def numbers(dtype: Any) -> Any:
    x, y = data(4, 8, 8, dtype=dtype), data(4, 8, 8, dtype=dtype)
    return (
        (x < y).where(x, y * 2) + x.maximum(y),
        x.sum(2).sum(1),
        (x - x.sum(2, keepdim=True)).max(0),
        x.matmul(y, dtype=dtypes.float32),
        x.cast(dtypes.int32) @ y.cast(dtypes.bool),
        x.cast(dtypes.float32).softmax(1).softmax(2).cast(dtype),
        x.sum(0).cast(dtypes.half),
    )


@program(*MATRICES)
def rows(*shape: int) -> Any:
    x, y = data(*shape), data(*shape)
    return (
        x.softmax(0) * x.softmax(1).sum(0),
        x.layernorm() + (x - x.mean()) / x.std(),
        (x @ y.T).relu() @ y,
        x.exp().sum(1, keepdim=True) * x + x.max(),
        x.flip(0).pad(((1, 2), (0, 3))).roll(2, 1).reshape(-1).unsqueeze(0).expand(3, -1).contiguous(),
        Tensor.cat(x, y, x + y, dim=1).sum(0),
    )


@program()
def constant_folding() -> Any:
    x, ones, zeros = data(4, 4), Tensor.ones(4, 4), Tensor.zeros(4, 4)
    folded = x * 0 + 1, x + zeros, x * ones, ones.sum(), (ones + 2).sum(0), zeros.contiguous()
    return *folded, Tensor.full((3,), 7.0) ** 2, Tensor.arange(30, 0, -2) + 1, Tensor.linspace(0, 1, 300).contiguous()


@program(*shapes((0,), (0, 4), (3, 0, 2)))
def size_zero(shape: tuple[int, ...]) -> Any:
    x = data(*shape)
    return x + 1, x.sum(), x.sum(0), x.exp().contiguous(), Tensor.ones(2, *shape[1:]).cat(x)


@program(*shapes((256, 255), (64, 1024), (70000,), (3, 40000)))
def split_reduces(shape: tuple[int, ...]) -> Any:
    x = data(*shape)
    return x.sum(), (x * 2).sum(-1), x.max(), (x.sum() + x.max()) * x[..., 0].sum()


@program(*((n, axis) for n in (5, 600) for axis in (0, 1)))
def scans(n: int, axis: int) -> Any:
    x = data(n, 4) if axis == 0 else data(4, n)
    return x.cumsum(axis), x.cumprod(axis), x.cummax(axis)[0], x.logcumsumexp(axis)


# *** networks


@program((1, 1, 8, 4), (2, 2, 33, 16))
def attention(batch: int, heads: int, length: int, width: int) -> Any:
    q, k, v = (data(batch, heads, length, width).requires_grad_() for _ in range(3))
    mask = data(length, length, dtype=dtypes.bool)
    q.scaled_dot_product_attention(k, v, is_causal=True).square().mean().backward()
    return q.grad, k.grad, v.grad, q.scaled_dot_product_attention(k, v, attn_mask=mask)


@program()
def transformer_training() -> Any:
    table, qkv, norm, head = nn.Embedding(11, 16), nn.Linear(16, 48), nn.RMSNorm(16), nn.Linear(16, 11)
    tokens = data(2, 9, dtype=dtypes.int32)
    optimizer = AdamW(nn.state.get_parameters([table, qkv, norm, head]), lr=1e-3)
    with Tensor.train():
        x = table(tokens[:, :-1])
        q, k, v = qkv(norm(x)).reshape(2, 8, 3, 2, 8).permute(2, 0, 3, 1, 4).chunk(3)
        mixed = q[0].scaled_dot_product_attention(k[0], v[0], is_causal=True)
        x = x + mixed.transpose(1, 2).reshape(2, 8, 16).layernorm()
        loss = head(x.silu() * x).sparse_categorical_crossentropy(tokens[:, 1:])
        loss.backward()
        optimizer.step()
    return loss


@program("LAMB", "Muon")
def optimizers(kind: str) -> None:
    layers = [nn.Linear(6, 8, bias=False), Tensor.relu, nn.Linear(8, 3, bias=False)]
    optimizer = {"LAMB": LAMB, "Muon": Muon}[kind](nn.state.get_parameters(layers))
    with Tensor.train():
        for _ in range(2):
            optimizer.zero_grad()
            data(5, 6).sequential(layers).cross_entropy(data(5, dtype=dtypes.int32)).backward()
            optimizer.step()


@program(1, 3)
def recurrent(steps: int) -> Any:
    cell, state = nn.LSTMCell(4, 6), None
    for _ in range(steps):
        state = cell(data(2, 4), state)
    return state


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
    x[0] = 3
    x[..., 1:3] = x[..., 0:2] + 1
    x.realize()


@program(*((shape, dtype) for shape in ((3,), (4, 7)) for dtype in FLOATS))
def random(shape: tuple[int, ...], dtype: Any) -> Any:
    first = Tensor.rand(*shape, dtype=dtype)
    first.realize()
    return first + Tensor.rand(*shape, dtype=dtype), Tensor.randn(*shape, dtype=dtype), Tensor.uniform(*shape)


@program(*MATRICES)
def several_outputs(*shape: int) -> Any:
    x, y = data(*shape).requires_grad_(), data(*shape)
    shared = (x.exp() + y).contiguous()
    total = shared.sum(1, keepdim=True)
    ((x.detach() * shared).contiguous_backward().sum() + shared.mean()).backward()
    return shared, total, shared / total, shared.T @ shared, (shared * total).max(0), (x + y).T, x.grad, x.clone()


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


@program(*shapes((4,), (3, 5)))
def copies(shape: tuple[int, ...]) -> Any:
    x = data(*shape, device=DEVICES[1])
    there = (x + 1).to(DEVICES[2])
    return (there * 2, (there.to(DEVICES[1]) + x).sum(), x.to(DEVICES[3]).contiguous(), x.flip(0).to(DEVICES[2]))


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


# *** ranges in a graph of stock tinygrad; `python -m tests.upstream` has test_outerworld.py


@program(*((n, m) for n in (3, 10) for m in (4, 5)))
def looped_rows(n: int, m: int) -> Any:
    row = UOp.range(n, -1)
    x = data(n, m)
    return (x[row] * 2 + 1).reshape(1, m).expand(row, m).contiguous()


@program(*((n, m) for n in (3, 7) for m in (4, 6)))
def outer_fold(n: int, m: int) -> Any:
    step = UOp.range(n, -100, AxisType.OUTER)
    state, weights = data(1, m), data(n, m, m)
    next_state = Tensor(state.uop.after(step)).contiguous() @ weights[step]
    return Tensor(state.uop.after(state.uop.store(next_state.uop).end(step)))
