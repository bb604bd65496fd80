"""Values of vmapped programs against the loop over single elements. Each row of the data is different, so that a row
that gets the value of another one (often of the last one) is seen."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from func_ops.table import OPS
from lanes import one_of
from scopes import (
    LOOP,
    OUTER,
    Map,
    assert_same,
    check,
    check_map,
    loop,
    make_range,
    numbers,
    unroll,
    varg_in,
    varg_out,
    vmap,
)
from tinygrad import Tensor, TinyJit, UOp, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType

F32, F64, I32 = np.float32, np.float64, np.int32
BOTH = pytest.mark.parametrize("axis_type", [LOOP, OUTER], ids=["loop", "outer"])

_weights: dict[tuple[Any, ...], np.ndarray] = {}


def weight(x: Tensor, *shape: int, seed: int = 1) -> Tensor:
    """A constant from outside of the scope, of the dtype of x."""
    array = _weights.setdefault((*shape, seed), numbers(*shape, dtype=F64, seed=seed))
    return Tensor(array.astype(np.float64)).cast(x.dtype)


# *** single functions: the table of func_ops, and what it lacks


def set_strides(x: Tensor) -> Tensor:
    z = x + 1
    z[::2, ::3] = x[:2, :2]
    z[..., 5] = x[..., 0]
    return z


def set_tensors(x: Tensor) -> Tensor:
    z = x * 1
    z[Tensor([3, 1])] = x[:2] * 5
    return z


def set_lists_behind_slices(x: Tensor) -> Tensor:
    z = x * 1
    z[1:3, [0, 2]] = x[:2, :2] + 20
    z[:, [5]] = 3
    z[::2, Tensor([1, 4])] = 4
    return z


def set_behind_an_ellipsis(x: Tensor) -> Tensor:
    z = x * 1
    z[..., [0, 2]] = x[:, 1:3]
    return z


def set_at_an_index_of_the_element(x: Tensor) -> Tensor:
    z = x * 1
    z[x[:, 0].argmax()] = 11
    return z


def set_in_zeros(x: Tensor) -> Tensor:
    z = Tensor.zeros(4, 6, dtype=x.dtype).contiguous()
    z[::2] = x[:2]
    return z + x


def set_several_times(x: Tensor) -> Tensor:
    z = x * 1
    z[0] = x[1]
    z[0, 1:3] = 2
    z[1:] += 1
    z[[3, 1]] = z[:2]
    return z * z[0].sum()


def in_place(x: Tensor) -> Tensor:
    z = x * 1
    z += 1
    z.assign(z * 2)
    return z


# the element has shape (4, 6)
FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "cast to half": lambda x: x.cast(dtypes.float16),
    "dropout that is off": lambda x: x.dropout(0.5) + 1,
    "to another device and back": lambda x: ((x * 2).to(f"{x.device}:1") + 1).to(x.device),
    "matrix times element": lambda x: weight(x, 3, 4) @ x,
    "mask from outside": lambda x: Tensor([True, False, True, True, False, True]).where(x, 0),
    "index after reduce and stack": lambda x: Tensor.stack(x[:2].sum(), x[2:].sum())[[0, 1]],
    "index after matmul": lambda x: (x @ weight(x, 6, 4))[[0, 2]],
    "scalars of a stack": lambda x: (lambda f: Tensor.stack(f[0], f[4], f[8]))(
        Tensor.stack(x[0] * 1, x[1] * 2, x[2] * x[3, 3]).flatten()
    ),
    # realized inside the scope
    "contiguous input": lambda x: x.contiguous() * 2,
    "contiguous output": lambda x: (x * 2).contiguous(),
    "contiguous of a reduce": lambda x: x.sum(1).contiguous() * x.sum(1).contiguous().sum(),
    "clone": lambda x: (x * 2).clone() + x,
    "clone input": lambda x: x.clone() + x.clone().sum(),
    # setitem on a tensor that the scope made
    "set strides": set_strides,
    "set tensors": set_tensors,
    "set at an index of the element": set_at_an_index_of_the_element,
    "set in zeros": set_in_zeros,
    "set several times": set_several_times,
    "in place": in_place,
    # constants
    "a constant": lambda x: Tensor.ones(3, dtype=x.dtype),
    "a constant from outside": lambda x: weight(x, 3, 2),
    "a computed constant": lambda x: weight(x, 4, 6).sum(0),
}


def at_axis(array: np.ndarray, axis: int) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(array, 0, axis))


def check_function(
    name: str, size: int = 3, in_axis: int = 0, dtype: type = F32, out_axis: int = 0, axis_type: AxisType = LOOP
) -> None:
    """Floats of an op of the table are of the dtype, which can hold them."""
    if name in FUNCTIONS:
        fn, batches = FUNCTIONS[name], [numbers(size, 4, 6, dtype=dtype)]
    else:
        fn, batches = OPS[name].fn, [batch.reshape(-1, *batch.shape[2:])[:size] for batch in OPS[name].arrays()]
        batches = [batch.astype(dtype) if batch.dtype == F32 else batch for batch in batches]
    moved = [at_axis(batch, in_axis) for batch in batches]
    check_map(fn, *moved, in_axis=in_axis, out_axis=out_axis, axis_type=axis_type)


# `python -m tests.overlay.func_ops` runs the whole table
EACH_OP = one_of([*OPS][::3], 2)


@pytest.mark.parametrize("name", EACH_OP)
def test_op(name: str) -> None:
    """Each with another batch size, other axes and another dtype."""
    number = [*OPS].index(name)
    dtype = F64 if number % 5 == 1 and name != "bitcast" else F32
    check_function(name, 2 + number % 4, (0, -1)[number % 2], dtype, (0, -1)[number // 2 % 2])


@pytest.mark.parametrize(
    ("dtype", "size", "in_axis", "out_axis"),
    [
        pytest.param(F32, 3, 0, 0, id="float32"),
        pytest.param(F64, 2, 1, -1, id="float64", marks=pytest.mark.slow),
        pytest.param(I32, 5, -1, 0, id="int32", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str, dtype: type, size: int, in_axis: int, out_axis: int) -> None:
    check_function(name, size, in_axis, dtype, out_axis)


OUTER_FUNCTIONS = [
    "add", "sum", "matmul", "index after reduce and stack", "index after matmul", "scalars of a stack",
    "contiguous", "clone", "topk values", "cumsum 1", "conv2d", "max_pool2d", "gather at argmax", "setitem slice",
    "set tensors", "in place", "a constant from outside", "one_hot", "softmax", "attention", "layernorm", "std_mean",
    "softmax of softmax",
]  # fmt: skip


@pytest.mark.parametrize("name", one_of(OUTER_FUNCTIONS, 2))
def test_function_with_an_outer_range(name: str) -> None:
    check_function(name, out_axis=-1, axis_type=OUTER)


SOME = ["index after reduce and stack", "contiguous", "cumsum 1", "sum", "transpose", "setitem slice"]


@BOTH
@pytest.mark.parametrize("size", [1, 3, *[pytest.param(size, marks=pytest.mark.slow) for size in (2, 5, 7)]])
@pytest.mark.parametrize("name", SOME)
def test_batch_size(name: str, size: int, axis_type: AxisType) -> None:
    check_function(name, size, axis_type=axis_type)


def two_d(x: Tensor) -> Tensor:
    return (x @ weight(x, int(x.shape[-1]), 3)).contiguous() - x.sum()


# each option in every run, all pairs in the slow lane
@pytest.mark.parametrize(
    ("in_axis", "out_axis"),
    [
        pytest.param(i, o, marks=() if (i - o) % 6 == 1 else pytest.mark.slow)
        for i, o in itertools.product((0, 1, 2, -1, -2, -3), repeat=2)
    ],
)
def test_any_in_axis_and_out_axis(in_axis: int, out_axis: int) -> None:
    check_map(two_d, numbers(3, 5, 2), in_axis=in_axis, out_axis=out_axis)


def test_a_batch_that_the_cpu_device_splits_into_threads() -> None:
    check_map(lambda a: (a.softmax() * a.sum()).contiguous() + 1, numbers(257, 33))


def test_setitem_by_slices_and_lists() -> None:
    """Stock tinygrad writes other rows too, so numpy is what it is compared with."""
    x = numbers(3, 4, 6)
    want, behind_an_ellipsis = x.copy(), x.copy()
    for row, source in zip(want, x, strict=True):
        row[1:3, [0, 2]] = source[:2, :2] + 20
        row[:, [5]] = 3
        row[::2, [1, 4]] = 4
    behind_an_ellipsis[..., [0, 2]] = x[..., 1:3]
    assert_same(vmap(set_lists_behind_slices)(Tensor(x)), want)
    assert_same(vmap(set_behind_an_ellipsis)(Tensor(x)), behind_an_ellipsis)


# *** several inputs and results


Program = Callable[..., Any]


def stacked(m: Map, x: Tensor) -> Tensor:
    return m(lambda a: Tensor.stack(a[0], a.flip(0)[0], a.max())[[2, 0]])(x)


def scaled(m: Map, x: Tensor) -> Tensor:
    return m(lambda a: a * a.sum())(x)


def product(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return (a @ b).contiguous() + c.sum() * a.sum()


def weighted(a: Tensor, w: Tensor) -> Tensor:
    return (a @ w).softmax() + w.sum(0)


X, W5 = numbers(3, 4), numbers(4, 5)
DTYPES = (np.float16, np.bool_, np.uint8, np.int8, np.int64)
# name -> the program, which gets the map first, and its inputs
SCOPES: dict[str, tuple[Program, tuple[np.ndarray, ...]]] = {
    "a scalar element": (lambda m, x: m(lambda a: a * 2 + 1)(x), (numbers(5),)),
    "a scalar, expanded": (lambda m, x: m(lambda a: a.reshape(1).expand(3) * weight(a, 3), 0, 1)(x), (numbers(5),)),
    **{f"{dtype.__name__}": (stacked, (numbers(3, 4, dtype=dtype),)) for dtype in DTYPES},
    "an input that is not realized": (lambda m, x: scaled(m, (x * 3).flip(1).contiguous() - x), (X,)),
    "an input that is a reduce": (lambda m, x: scaled(m, x.T + x.sum(1)), (X,)),
    "a constant": (lambda m: scaled(m, Tensor.ones(3, 4)), ()),
    "an arange": (lambda m: scaled(m, Tensor.arange(12).reshape(3, 4)), ()),
    "a strided view": (lambda m, x: scaled(m, x.realize()[1:, ::2].T), (numbers(4, 6),)),
    "an expanded view": (lambda m, x: scaled(m, x.realize()[0].expand(5, 6)), (numbers(4, 6),)),
    "a padded view": (lambda m, x: scaled(m, x.realize().pad(((1, 1), (0, 0)))), (numbers(2, 3),)),
    "inputs mapped at different axes": (
        lambda m, *xs: m(product, (0, -1, 1), 1)(*xs),
        (numbers(3, 2, 4), numbers(4, 5, 3, seed=1), numbers(6, 3, seed=2)),
    ),
    "the second input is whole": (lambda m, *xs: m(weighted, (0, None))(*xs), (X, W5)),
    "the first input is whole": (lambda m, *xs: m(weighted, (None, 1))(*xs), (numbers(4), numbers(4, 3, 5))),
    "a tensor mapped and whole": (lambda m, x: m(lambda a, b: a * b.sum(0) + b[0], (0, None))(x, x), (X,)),
    "a tensor mapped and closed over": (lambda m, x: m(lambda a: (a * x).sum(0).softmax())(x), (X,)),
    "a tensor mapped at two axes": (lambda m, x: m(lambda a, b: (a * b).sum(), (0, 1))(x, x), (numbers(3, 3),)),
    "one value as two results": (lambda m, x: m(lambda a: ((y := a.softmax()), y), 0, (0, 1))(x), (X,)),
    # each row of these results is the same
    "a result without the range": (lambda m, *xs: m(lambda a, w: w * 2, (0, None))(*xs), (X, W5)),
    "one of two without it": (lambda m, *xs: m(lambda a, w: (a, w.softmax()), (0, None))(*xs), (X, W5)),
    "contiguous without it": (lambda m, *xs: m(lambda a, w: (w * 2).contiguous(), (0, None))(*xs), (X, W5)),
    "contiguous, at axis 1": (lambda m, *xs: m(lambda a, w: (w * 2).contiguous(), (0, None), 1)(*xs), (X, W5)),
}


@BOTH
@pytest.mark.parametrize("name", one_of(SCOPES, 2))
def test_one_scope(name: str, axis_type: AxisType) -> None:
    program, arrays = SCOPES[name]
    check(program, *arrays, axis_type=axis_type)


def test_the_same_range_on_two_axes_of_two_inputs() -> None:
    r = make_range(3)
    x, y = numbers(3, 4), numbers(2, 3, seed=1)
    got = (Tensor(x).vmapin(varg_in(r, 2, 0)).sum() * Tensor(y).vmapin(varg_in(r, 2, 1))).vmapout(varg_out(r, 1, -1))
    assert_same(got, (x.sum(1) * y).astype(F32))


def test_two_ranges_in_one_vmapin() -> None:
    r, s = make_range(3), make_range(4)
    zero = UOp.const(dtypes.index, 0)
    x = numbers(3, 5, 4)
    inner = Tensor(x).vmapin((r, zero, s))
    got = (inner.softmax() * inner.sum())[[4, 0]].vmapout((s, zero, r))
    want = loop(loop(lambda a: (a.softmax() * a.sum())[[4, 0]], 1), 0, -1)(Tensor(x))
    assert_same(got, want)


def several(a: Tensor) -> tuple[Tensor, ...]:
    y = (a * 2).contiguous()
    return y, y.sum(), (y.softmax() + a)[[1, 0]], a


@BOTH
@pytest.mark.parametrize("how", ["together", "one by one", "backwards", "lazy sum"])
def test_several_results_of_one_scope(how: str, axis_type: AxisType) -> None:
    got = vmap(several, 0, (0, 0, 1, -1), axis_type=axis_type)(Tensor(numbers(3, 4)))
    want = loop(several, 0, (0, 0, 1, -1))(Tensor(numbers(3, 4)))
    if how == "together":
        Tensor.realize(*got)
    if how == "one by one":
        for v in got:
            v.realize()
    if how == "backwards":
        for v in reversed(got):
            v.realize()
    if how == "lazy sum":
        assert_same(got[0] + got[3].T * got[1].reshape(3, 1), want[0] + want[3].T * want[1].reshape(3, 1))
    assert_same(got, want)


def test_an_inner_value_used_in_two_scopes() -> None:
    """A value from outside of both, and one VMAPIN with two VMAPOUTs around different values."""
    r = make_range(3)
    x = Tensor(numbers(3, 4))
    inner = x.vmapin(varg_in(r, 2, 0))
    shared = (inner * 3).contiguous()
    first, second = shared.sum().vmapout((r,)), (shared.flip(0) + inner).vmapout(varg_out(r, 1, 1))
    assert_same((first, second), loop(lambda a: ((a * 3).sum(), (a * 3).flip(0) + a), 0, (0, 1))(x))


# *** after the scope

AFTER: dict[str, Callable[[Tensor], Tensor]] = {
    "reshape": lambda y: y.reshape(y.numel() // 2, 2),
    "flatten": lambda y: y.flatten(),
    "transpose": lambda y: y.transpose(),
    "pad": lambda y: y.pad(((1, 0), (0, 2))),
    "flip": lambda y: y.flip(0),
    "int index": lambda y: y[2, 3],
    "slice": lambda y: y[1:3],
    "list index": lambda y: y[[2, 0]],
    "tensor index": lambda y: y[Tensor([1, 1, 2])],
    "sum": lambda y: y.sum(),
    "sum of the batch": lambda y: y.sum(0),
    "sum of the rest": lambda y: y.sum(1),
    "max": lambda y: y.max(0),
    "equal": lambda y: y == 0.0,
    "greater": lambda y: y > 1.0,
    "matmul": lambda y: y @ weight(y, 4, 2),
    "cat": lambda y: Tensor.cat(y, weight(y, 2, 4)),
    "stack": lambda y: Tensor.stack(y, y * 2),
    "softmax of the batch": lambda y: y.softmax(0),
    "cumsum": lambda y: y.cumsum(0),
    "plus itself flipped": lambda y: y + y.flip(0) * y.sum(0),
    "expand": lambda y: y.unsqueeze(0).expand(2, 3, 4) + 1,
    "contiguous": lambda y: y.contiguous() + y,
    "contiguous of a view": lambda y: y.T.contiguous(),
    "contiguous of a reshape": lambda y: y.reshape(4, 3).contiguous() * 2,
    "clone": lambda y: y.clone() * 2,
    "cast": lambda y: y.cast(dtypes.float64),
}
BEFORE: dict[str, Callable[[Tensor], Tensor]] = {
    "elementwise": lambda a: a * 2 - 1,
    "reduce": lambda a: Tensor.stack(a[:2].sum(), a[2:].sum(), a.max(), a[0])[[3, 0, 1, 2]],
}


AFTER_OUTER = [("reduce", after, OUTER) for after in ("flip", "sum of the batch", "contiguous", "reshape", "stack")]


@pytest.mark.parametrize(
    ("before", "after", "axis_type"), one_of([*itertools.product(BEFORE, AFTER, [LOOP]), *AFTER_OUTER], 2)
)
def test_after_the_scope(before: str, after: str, axis_type: AxisType) -> None:
    check(lambda m, x: AFTER[after](m(BEFORE[before])(x)), X, axis_type=axis_type)


def test_the_result_assigned_to_a_buffer() -> None:
    target = Tensor.zeros(3, 4).contiguous().realize()
    x = Tensor(numbers(3, 4))
    target.assign(vmap(lambda a: a.softmax())(x)).realize()
    assert_same(target, loop(lambda a: a.softmax())(x))


def test_setitem_on_the_result_and_from_the_result() -> None:
    x = Tensor(numbers(3, 4))
    y = vmap(lambda a: a * 2)(x).contiguous().realize()
    y[0] = 5
    target = Tensor.zeros(4, 4).contiguous().realize()
    target[1:] = vmap(lambda a: a * 3)(x)
    want = numbers(3, 4) * 2
    want[0] = 5
    assert_same(y, want)
    assert_same(target, np.concatenate([np.zeros((1, 4), F32), numbers(3, 4) * 3]))


# *** one scope after another, with the same RANGE

BETWEEN: dict[str, Callable[[Tensor], Tensor]] = {
    "as it is": lambda y: y,
    "flip": lambda y: y.flip(0),
    "transpose": lambda y: y.T,
    "every second": lambda y: Tensor.cat(y[::2], y[1::2]),
    "reshape": lambda y: y.reshape(2, 2, 4).transpose(0, 1).reshape(4, 4),
    "roll": lambda y: y.roll(1, 0),
    "sum": lambda y: y.sum(0, keepdim=True).expand(4, 4) + y,
    "softmax of the batch": lambda y: y.softmax(0),
    "contiguous": lambda y: y.flip(0).contiguous(),
    "pad": lambda y: y.pad(((1, 0), (0, 0)))[:4],
}
CONTENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "elementwise": lambda a: a * 2,
    "softmax": lambda a: a.softmax(),
    "contiguous": lambda a: (a * 2).contiguous() + 1,
}


@BOTH
@pytest.mark.parametrize("between", one_of(BETWEEN, 2))
@pytest.mark.parametrize("contents", CONTENTS)
def test_the_same_range_again_in_a_later_scope(contents: str, between: str, axis_type: AxisType) -> None:
    """One VMAPOUT feeds another scope that has an equal RANGE: its steps are other steps."""

    def program(m: Map, x: Tensor) -> Tensor:
        y = BETWEEN[between](m(CONTENTS[contents], axis_id=-1)(x))
        return m(lambda a: a * a.sum() + a.max(), axis_id=-1)(y)

    check(program, numbers(4, 4), axis_type=axis_type)


def every_second_row(m: Map, x: Tensor) -> Tensor:
    """The second scope has the same axis id and another size."""
    y = m(lambda a: a.softmax(), axis_id=-1)(x)
    return m(lambda a: (a * 2).contiguous() + a.sum(), axis_id=-1)(y[::2])


def chain_of_four(m: Map, x: Tensor) -> Tensor:
    for _ in range(4):
        x = m(lambda a: a.softmax() + a.flip(0), axis_id=-1)(x.flip(0).T)
    return x


def meet_again(m: Map, x: Tensor) -> Tensor:
    y = m(lambda a: a.softmax(), axis_id=-1)(x)
    z = m(lambda a: a.cumsum(), axis_id=-1)(x.flip(0))
    w = m(lambda a, b: a * b.sum(), axis_id=-1)(y, z.flip(0))
    return w + y.flip(0) * z


def swap_places(m: Map, x: Tensor) -> Tensor:
    y = m(lambda a: m(lambda b: a * b.max(), axis_id=-2)(x), axis_id=-1)(x)
    return m(lambda a: m(lambda b: a.sum(0) - b, axis_id=-1)(x.flip(0)), axis_id=-2)(y)


def mix_two_ranges(m: Map, x: Tensor) -> Tensor:
    return m(lambda b: m(lambda a: (a * b).contiguous() + 1)(x))(x[:2] + 1)


def inner_over_unmapped(m: Map, x: Tensor) -> Tensor:
    def outer(a: Tensor) -> Tensor:
        rows = m(lambda row: (row * 2).softmax())(w)  # does not depend on a
        return (rows @ a).softmax() + m(lambda row: row.sum() * a.sum())(w)

    w = x.flip(0)[:3] * 2
    return m(outer)(x)


SEVERAL_SCOPES = (every_second_row, chain_of_four, meet_again, swap_places, mix_two_ranges, inner_over_unmapped)


@BOTH
@pytest.mark.parametrize("program", SEVERAL_SCOPES)
def test_several_scopes(program: Program, axis_type: AxisType) -> None:
    check(program, numbers(4, 4), axis_type=axis_type)


@pytest.mark.parametrize("axis_id", [0, 1, 3, 100])
@BOTH
def test_a_range_with_an_id_from_zero_up(axis_id: int, axis_type: AxisType) -> None:
    """The ids of the pass itself start at 0: they must not be the id of a user's RANGE."""
    check_map(lambda a: (a.sum() * a).contiguous().softmax() + 1, numbers(3, 4), axis_id=axis_id, axis_type=axis_type)


@BOTH
@pytest.mark.parametrize("ids", [(-1, -1), (2, 2), (0, -1), (0, 1)])
def test_two_ranges_with_the_same_id_and_different_sizes(ids: tuple[int, int], axis_type: AxisType) -> None:
    def program(m: Map, x: Tensor) -> Tensor:
        def outer(a: Tensor) -> Tensor:
            return m(lambda b: (a * b).contiguous().sum() + b, axis_id=ids[1])(a)

        return m(outer, axis_id=ids[0])(x)

    check(program, numbers(3, 4), axis_type=axis_type)


# *** nesting


@pytest.mark.parametrize("inner_type", [LOOP, OUTER])
@pytest.mark.parametrize("outer_type", [LOOP, OUTER])
@pytest.mark.parametrize("out_axis", one_of([0, -1], 2))
def test_nested_softmax(outer_type: AxisType, inner_type: AxisType, out_axis: int) -> None:
    def program(m: Map, x: Tensor) -> Tensor:
        def outer(b: Tensor) -> Tensor:
            rows = m(lambda a: (a.softmax() * b.sum(0)).softmax(), 1, out_axis, axis_type=inner_type)(b)
            return rows.softmax(0) - b.sum()

        return m(outer, 1, out_axis, axis_type=outer_type)(x)

    check(program, numbers(4, 3, 4))


# a prime of its own as the size of each level
SIZES = (2, 3, 5, 7, 11)


def nested(m: Map, depth: int, axis_type: AxisType, level: int = 0) -> Callable[[Tensor], Tensor]:
    """The in-axis at alternating ends; stack, reduce and list index inside."""

    def fn(a: Tensor) -> Tensor:
        if level == depth:
            return Tensor.stack(a.sum(), (a * a).sum(), a.max())[[0, 2, 1]]
        in_axis = level % 2 if a.ndim > 1 else 0
        inner = m(nested(m, depth, axis_type, level + 1), in_axis, level % 2, axis_type=axis_type)(a)
        return inner - inner.sum(0, keepdim=True) * 0.25

    return fn


def nested_by_hand(a: np.ndarray, depth: int, level: int = 0) -> np.ndarray:
    if level == depth:
        return np.stack([a.sum(), a.max(), (a * a).sum()])
    in_axis = level % 2 if a.ndim > 1 else 0
    rows = [nested_by_hand(row, depth, level + 1) for row in np.moveaxis(a, in_axis, 0)]
    inner = np.stack(rows, axis=level % 2)
    return inner - inner.sum(0, keepdims=True) * 0.25


SIZES_OF_OUTER = (2, 2, 3, 2, 2)


@pytest.mark.parametrize(
    ("sizes", "axis_type"),
    [*((SIZES[:depth], LOOP) for depth in (2, 3, 4, 5)), *((s, OUTER) for s in (SIZES[:2], SIZES[:3], SIZES_OF_OUTER))],
)
def test_nesting(sizes: tuple[int, ...], axis_type: AxisType) -> None:
    depth = len(sizes)
    x = numbers(*sizes[::-1], 2, dtype=F64)
    want = nested_by_hand(x, depth)
    assert_same(nested(vmap, depth, axis_type)(Tensor(x)), want)
    if depth == 2:
        assert_same(nested(loop, depth, axis_type)(Tensor(x)), want)


@pytest.mark.parametrize("depth", [3, 4, 5])
def test_nesting_over_closed_over_values(depth: int) -> None:
    """Every level is over a tensor of its own; the innermost value depends on all RANGEs at once."""
    arrays = [numbers(n, 2, dtype=F64, seed=n) for n in SIZES[:depth]]

    def level(rest: list[Tensor], product: Tensor) -> Tensor:
        if not rest:
            return Tensor.stack(product.sum(), product.max()).contiguous()[[1, 0]]
        return vmap(lambda a: level(rest[1:], product * a + 1))(rest[0])

    want = np.ones(2)
    for array in arrays:
        want = want[..., None, :] * array + 1
    got = level([Tensor(a) for a in arrays], Tensor.ones(2, dtype=dtypes.float64))
    assert_same(got, np.stack([want.max(-1), want.sum(-1)], -1))


def test_seed_001() -> None:
    """The product rule under an outer scope, over a primal with an inner scope: d(g * stack(x*g)) by g was 0."""

    def program(m: Map, z: Tensor, tangents: Tensor) -> Tensor:
        def y_of(v: Tensor) -> Tensor:
            return m(lambda e: e * v[2], 1)(v[:2].reshape(2, 1)).reshape(2)

        def jvp(t: Tensor) -> Tensor:
            y = y_of(z)
            dy = m(lambda e, de: e * t[2] + de * z[2], 1)(z[:2].reshape(2, 1), t[:2].reshape(2, 1)).reshape(2)
            stacked, dstacked = Tensor.stack(y[0], y[1]), Tensor.stack(dy[0], dy[1])
            return stacked * t[2] + dstacked * z[2]

        return m(jvp, 1, 1)(tangents)

    z = np.array([2.0, 3.0, 5.0])
    want = np.array([[25.0, 0, 20], [0, 25, 30]])
    assert_same(program(vmap, Tensor(z), Tensor(np.eye(3))), want)
    assert_same(program(loop, Tensor(z), Tensor(np.eye(3))), want)


# *** schedules: once, again, under TinyJit


def test_the_same_program_twice_with_other_data() -> None:
    """The second schedule comes from tinygrad's schedule cache."""
    fn = vmap(lambda a: (a.softmax() @ weight(a, 4, 4))[[2, 0]], axis_id=-7)
    for seed in range(3):
        x = Tensor(numbers(3, 4, seed=seed)).realize()
        assert_same(fn(x), loop(lambda a: (a.softmax() @ weight(a, 4, 4))[[2, 0]])(x))


@BOTH
def test_under_tinyjit(axis_type: AxisType) -> None:
    w = Tensor(numbers(4, 4, seed=9)).realize()

    def element(a: Tensor) -> tuple[Tensor, Tensor]:
        return (a @ w).softmax()[[2, 0]], Tensor.stack(a[:2].sum(), a[2:].sum())[[0, 1]]

    @TinyJit
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = vmap(element, axis_type=axis_type)(x)
        return first.realize(), (second + 1).realize()

    for seed in range(4):
        x = Tensor(numbers(3, 4, seed=seed)).realize()
        got = step(x)
        first, second = loop(element)(x)
        assert_same(got, (first, second + 1))


def test_with_an_unrelated_schedule_at_the_same_time() -> None:
    x = Tensor(numbers(3, 4))
    y, other = vmap(lambda a: a.softmax())(x), (x * 2).sum(0)
    Tensor.realize(y, other)
    assert_same(y, loop(lambda a: a.softmax())(x))
    np.testing.assert_allclose(other.numpy(), numbers(3, 4).sum(0) * 2, rtol=1e-5)
    assert_same(x, numbers(3, 4))


# *** gradients

GRADIENTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "matmul": lambda x, w: (x @ w).square().sum(),
    "softmax": lambda x, w: ((x @ w).softmax() * x).sum(),
    "relu": lambda x, w: (x @ w).relu().square().sum(),
    "max": lambda x, w: (x @ w).max() * w.sum() + x.max().square(),
    "contiguous": lambda x, w: ((x @ w).contiguous() * w.contiguous().sum(0)).square().sum(),
    "index": lambda x, w: (x @ w)[[0, 2, 2]].square().sum(),
    "stack and index": lambda x, w: Tensor.stack((x * w[0]).sum(), (x @ w).max())[[1, 0]].square().sum(),
    "cumsum": lambda x, w: ((x * w.sum(1)).cumsum() * x).sum(),
    "layernorm": lambda x, w: ((x @ w).layernorm() * x).sum(),
    "sort": lambda x, w: ((x @ w).sort()[0] * w[1]).square().sum(),
    "where": lambda x, w: (x > 0).where(x @ w, w.sum(0)).square().sum(),
}


def gradients(loss: Callable[..., Tensor], *arrays: np.ndarray) -> tuple[Tensor, ...]:
    tensors = [Tensor(a, requires_grad=True) for a in arrays]
    loss(*tensors).backward()
    assert all(t.grad is not None for t in tensors)
    return tuple(t.grad for t in tensors)  # type: ignore[misc]


def check_gradients(loss: Callable[..., Tensor], *arrays: np.ndarray, axis_type: AxisType = LOOP) -> None:
    """`loss(map, *tensors)`: its gradients through scopes against the gradients through lazily stacked slices."""
    got = gradients(lambda *ts: loss(functools.partial(vmap, axis_type=axis_type), *ts), *arrays)
    assert_same(got, gradients(lambda *ts: loss(unroll, *ts), *arrays))


GX, GW = numbers(3, 4, dtype=F64), numbers(4, 4, dtype=F64, seed=1)


@pytest.mark.parametrize("name", one_of(GRADIENTS, 2))
def test_backward_through_a_scope(name: str) -> None:
    fn = GRADIENTS[name]
    check_gradients(lambda m, x, w: m(fn, (0, None))(x, w).square().sum(), GX, GW)


def inside_and_outside(name: str, m: Map, x: Tensor, w: Tensor) -> Tensor:
    return (m(lambda a: GRADIENTS[name](a, w))(x) * w.sum()).sum() + (w * w).sum() * x.sum()


def of_nested_scopes(name: str, m: Map, x: Tensor, w: Tensor) -> Tensor:
    return m(lambda a: m(lambda row: (a * row).sum() * GRADIENTS[name](a, w))(w).square().sum())(x).sum()


@pytest.mark.parametrize(
    "name", ["softmax", *[pytest.param(name, marks=pytest.mark.slow) for name in ("index", "layernorm")]]
)
def test_backward_through_nested_scopes(name: str) -> None:
    check_gradients(functools.partial(of_nested_scopes, name), GX, GW)


@BOTH
@pytest.mark.parametrize(
    "name", ["softmax", "relu", "contiguous", "stack and index", pytest.param("sort", marks=pytest.mark.slow)]
)
def test_vmap_of_a_gradient(name: str, axis_type: AxisType) -> None:
    fn = GRADIENTS[name]
    check_map(lambda a, w: tuple(fn(a, w).gradient(a, w)), GX, GW, in_axis=(0, None), axis_type=axis_type)


def product_of_results(m: Map, x: Tensor, w: Tensor) -> Tensor:
    first, second = m(lambda a: (a @ w, (w @ a).softmax()))(x)
    return (first * second).sum()


def same_range_twice(m: Map, x: Tensor, w: Tensor) -> Tensor:
    y = m(lambda a: a * w.sum(0), axis_id=-1)(x)
    return m(lambda a: (a @ w).softmax(), axis_id=-1)(y.flip(0)).square().sum()


def at_axis_of_both(m: Map, axis: int, w: Tensor) -> Tensor:
    return (m(lambda a, b: a * b.softmax(), (axis, 1), axis)(w + 1, w) * w).square().sum()


LOSSES: dict[str, Callable[[Map, Tensor, Tensor], Tensor]] = {
    **{
        f"a weight inside and outside, {name}": functools.partial(inside_and_outside, name)
        for name in ("softmax", "index", "contiguous", "stack and index")
    },
    "a vmap of a gradient": lambda m, x, w: (
        m(lambda a: GRADIENTS["softmax"](a, w).gradient(a)[0])(x).square().sum() + w.sum()
    ),
    "axis 0": lambda m, x, w: at_axis_of_both(m, 0, w) + x.sum(),
    "axis 1": lambda m, x, w: at_axis_of_both(m, 1, w) + x.sum(),
    "axis -1": lambda m, x, w: at_axis_of_both(m, -1, w) + x.sum(),
    "a tensor mapped and whole": lambda m, x, w: m(lambda a: (w @ a).softmax() * a)(w).square().sum() + x.sum(),
    "two scopes with the same range": same_range_twice,
    "a result without the range": lambda m, x, w: (m(lambda a: w.sum(0))(x) * x).sum(),
    "several results": product_of_results,
    "results of softmax": lambda m, x, w: m(lambda a: (a @ w).softmax())(x).square().sum(),
}


@BOTH
@pytest.mark.parametrize("name", one_of(LOSSES, 3))
def test_backward_through(name: str, axis_type: AxisType) -> None:
    check_gradients(LOSSES[name], GX, GW, axis_type=axis_type)


def over_cotangents(m: Map, x: Tensor, w: Tensor, cotangents: Tensor) -> tuple[Tensor, ...]:
    y = (x[0] @ w).tanh() * x[0]
    return m(lambda ct: tuple(y.gradient(x, w, gradient=ct)))(cotangents)


def of_a_scope(m: Map, x: Tensor, w: Tensor, cotangents: Tensor) -> tuple[Tensor, ...]:
    """The value that is differentiated has a scope of its own."""
    y = m(lambda a: (a * x[0]).softmax())(w)
    return m(lambda ct: tuple(y.gradient(x, w, gradient=ct * y.detach())))(cotangents)


def jacobian_of_each(m: Map, x: Tensor, w: Tensor, eye: Tensor) -> Tensor:
    """A scope over elements, and in it a scope over the rows of the identity."""

    def one(a: Tensor) -> Tensor:
        y = (a @ w).tanh() * a
        return m(lambda ct: y.gradient(a, gradient=ct)[0])(eye)

    return m(one)(x)


def hessian_of_each(m: Map, x: Tensor, w: Tensor, eye: Tensor) -> Tensor:
    def one(a: Tensor) -> Tensor:
        y = ((a @ w).tanh() * a).sum().gradient(a)[0]
        return m(lambda ct: y.gradient(a, gradient=ct)[0])(eye)

    return m(one)(x)


@BOTH
@pytest.mark.parametrize("program", one_of([over_cotangents, of_a_scope, jacobian_of_each, hessian_of_each], 2))
def test_vmap_over_cotangents(program: Program, axis_type: AxisType) -> None:
    arrays = GX, GW, np.eye(4)
    got, want = (program(m, *map(Tensor, arrays)) for m in (functools.partial(vmap, axis_type=axis_type), unroll))
    assert_same(got, want)


def test_a_training_step() -> None:
    """Gradients of a weight under an optimizer, three steps: the loss goes where the loop's goes."""
    from tinygrad.nn.optim import SGD

    losses = []
    for m in (vmap, unroll):
        w = Tensor(GW.astype(F32), requires_grad=True)
        optimizer = SGD([w], lr=0.01)
        loss_of_step = []
        with Tensor.train():
            for step in range(3):
                x = Tensor(numbers(3, 4, seed=step))
                optimizer.zero_grad()
                loss = m(lambda a, w=w: ((a @ w).softmax() - a).square().mean())(x).mean()
                loss.backward()
                optimizer.step()
                loss_of_step.append(loss.item())
        losses.append((loss_of_step, w.numpy()))
    np.testing.assert_allclose(losses[0][0], losses[1][0], rtol=1e-4)
    np.testing.assert_allclose(losses[0][1], losses[1][1], rtol=1e-4, atol=1e-5)


def test_a_scalar_of_the_scope_is_computed_once_for_each_element_of_the_batch() -> None:
    """Without a buffer for it, `x.sum()` would run again for each element of x that reads it."""

    def body(x: Tensor) -> Tensor:
        return (x > 0).where(x, -x.sum())

    values = numbers(3, 5)
    expected = np.where(values > 0, values, -values.sum(1, keepdims=True))
    assert_same(vmap(body)(Tensor(values)).numpy(), expected)
    x = Tensor(values).realize()
    by_hand = (x > 0).where(x, -x.sum(1, keepdim=True))
    vmapped, twin = (
        [item.ast for item in result.contiguous().schedule() if item.ast.op is Ops.SINK]
        for result in (vmap(body)(x), by_hand)
    )
    assert len(vmapped) == len(twin)
