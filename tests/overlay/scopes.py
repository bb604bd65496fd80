"""What the tests of this folder share: `vmap` written with vargs by hand, and the loops that it is compared with.

A test writes its program once, with the map to use as its first argument, and gets it three ways:

- `vmap`: VMAPIN and VMAPOUT around the function;
- `loop`: the function on each single element, each result realized, stacked with numpy. No VMAP op is involved;
- `unroll`: the function on each slice, stacked lazily. The graph can be differentiated; no VMAP op is involved.

All three have the same signature, so that they nest.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from tinygrad import Tensor, UOp, dtypes
from tinygrad.uop.ops import AxisType

LOOP, OUTER = AxisType.LOOP, AxisType.OUTER
ZERO = UOp.const(dtypes.index, 0)
Map = Callable[..., Callable[..., Any]]

_fresh_ids = itertools.count(1000)


def make_range(size: int, axis_id: int | None = None, axis_type: AxisType = LOOP) -> UOp:
    """Returns a RANGE; without `axis_id`, a RANGE that no other scope uses."""
    return UOp.range(size, -next(_fresh_ids) if axis_id is None else axis_id, axis_type)


def varg_in(rng: UOp, ndim: int, axis: int) -> tuple[UOp, ...]:
    """Returns the vargs that map `axis` of a tensor with `ndim` axes."""
    axis %= ndim
    return tuple(rng if i == axis else ZERO for i in range(ndim))


def varg_out(rng: UOp, ndim: int, axis: int) -> tuple[UOp, ...]:
    """Returns the vargs that put the batch at `axis` of the result, over an inner value with `ndim` axes."""
    return varg_in(rng, ndim + 1, axis)


def _per_item(axis: Any, count: int) -> tuple[Any, ...]:
    return axis if isinstance(axis, tuple) else (axis,) * count


def _size(xs: tuple[Tensor, ...], axes: tuple[int | None, ...]) -> int:
    return next(int(x.shape[a]) for x, a in zip(xs, axes, strict=True) if a is not None)


def vmap(
    fn: Callable[..., Any],
    in_axis: int | tuple[int | None, ...] | None = 0,
    out_axis: int | tuple[int, ...] = 0,
    axis_id: int | None = None,
    axis_type: AxisType = LOOP,
    rng: UOp | None = None,
) -> Callable[..., Any]:
    """Maps `fn` over an axis of each input. `None` as the axis of an input leaves it whole.

    `rng` gives the RANGE itself, `axis_id` only its id; with neither, each call has a RANGE of its own.
    """

    def wrapped(*xs: Tensor) -> Any:
        axes = _per_item(in_axis, len(xs))
        r = make_range(_size(xs, axes), axis_id, axis_type) if rng is None else rng
        inner = [x if a is None else x.vmapin(varg_in(r, x.ndim, a)) for x, a in zip(xs, axes, strict=True)]
        ret = fn(*inner)
        if not isinstance(ret, tuple):
            assert isinstance(out_axis, int)
            return ret.vmapout(varg_out(r, ret.ndim, out_axis))
        outs = _per_item(out_axis, len(ret))
        return tuple(v.vmapout(varg_out(r, v.ndim, a)) for v, a in zip(ret, outs, strict=True))

    return wrapped


def loop(
    fn: Callable[..., Any],
    in_axis: int | tuple[int | None, ...] | None = 0,
    out_axis: int | tuple[int, ...] = 0,
    **_: Any,
) -> Callable[..., Any]:
    """What `vmap` must equal: one call for each element, each realized by itself."""

    def wrapped(*xs: Tensor) -> Any:
        axes = _per_item(in_axis, len(xs))
        arrays = [x.numpy() for x in xs]
        rows: list[tuple[np.ndarray, ...]] = []
        single = True
        dtype_of: tuple[Any, ...] = ()
        for i in range(_size(xs, axes)):
            args = [
                x if a is None else Tensor(np.asarray(np.take(v, i, axis=a)), dtype=x.dtype, device=x.device)
                for x, v, a in zip(xs, arrays, axes, strict=True)
            ]
            ret = fn(*args)
            single = not isinstance(ret, tuple)
            results = (ret,) if single else ret
            dtype_of = tuple(v.dtype for v in results)
            rows.append(tuple(v.numpy() for v in results))
        outs = _per_item(out_axis, len(dtype_of))
        stacked = tuple(
            Tensor(np.stack([row[j] for row in rows], axis=a), dtype=dtype)
            for j, (a, dtype) in enumerate(zip(outs, dtype_of, strict=True))
        )
        return stacked[0] if single else stacked

    return wrapped


def unroll(
    fn: Callable[..., Any],
    in_axis: int | tuple[int | None, ...] | None = 0,
    out_axis: int | tuple[int, ...] = 0,
    **_: Any,
) -> Callable[..., Any]:
    """As `loop`, but lazy: a gradient can be taken through it."""

    def wrapped(*xs: Tensor) -> Any:
        axes = _per_item(in_axis, len(xs))
        rows = []
        for i in range(_size(xs, axes)):
            rows.append(fn(*[x if a is None else _take(x, a, i) for x, a in zip(xs, axes, strict=True)]))
        if not isinstance(rows[0], tuple):
            assert isinstance(out_axis, int)
            return Tensor.stack(*rows, dim=out_axis)
        outs = _per_item(out_axis, len(rows[0]))
        return tuple(Tensor.stack(*parts, dim=a) for parts, a in zip(zip(*rows, strict=True), outs, strict=True))

    return wrapped


def _take(x: Tensor, axis: int, i: int) -> Tensor:
    axis %= x.ndim
    return x[(slice(None),) * axis + (i,)]


def same(got: Tensor, want: Any) -> None:
    """Doubles that differ by rounding at most."""
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-9, atol=1e-12)


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Returns numbers that differ in every place: between -4 and 4, for unsigned types from 0."""
    rng = np.random.default_rng([seed, *shape])
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind == "u":
        return rng.integers(0, 50, shape).astype(dtype)
    if dtype.kind == "i":
        return rng.integers(-50, 50, shape).astype(dtype)
    return (rng.permutation(int(np.prod(shape))).reshape(shape) / max(np.prod(shape), 1) * 8 - 4).astype(
        dtype
    ) + rng.random(shape).astype(dtype) * dtype.type(1e-3)


def tolerance(dtype: Any) -> dict[str, Any]:
    """Returns what `np.testing.assert_allclose` allows for a dtype."""
    return {
        np.dtype(np.float16): {"rtol": 2e-2, "atol": 1e-2},
        np.dtype(np.float32): {"rtol": 2e-4, "atol": 2e-5},
        np.dtype(np.float64): {"rtol": 1e-9, "atol": 1e-10},
    }.get(np.dtype(dtype), {"rtol": 0, "atol": 0})


def assert_same(got: Any, want: Any, what: str = "") -> None:
    """Compares results, one after the other if there are several: shape, dtype and every element."""
    if isinstance(want, tuple):
        assert isinstance(got, tuple)
        assert len(got) == len(want)
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            assert_same(g, w, f"{what} result {i}")
        return
    g = got.numpy() if isinstance(got, Tensor) else np.asarray(got)
    w = want.numpy() if isinstance(want, Tensor) else np.asarray(want)
    assert g.shape == w.shape, f"{what}: shape {g.shape} instead of {w.shape}"
    assert g.dtype == w.dtype, f"{what}: dtype {g.dtype} instead of {w.dtype}"
    np.testing.assert_allclose(g, w, err_msg=what, **tolerance(w.dtype))


def check(program: Callable[..., Any], *arrays: np.ndarray, axis_type: AxisType = LOOP) -> None:
    """Runs `program(map, *tensors)` with `vmap` and with `loop` and compares."""
    got = program(functools.partial(vmap, axis_type=axis_type), *[Tensor(a) for a in arrays])
    want = program(loop, *[Tensor(a) for a in arrays])
    assert_same(got, want)


def check_map(fn: Callable[..., Any], *arrays: np.ndarray, in_axis: Any = 0, out_axis: Any = 0, **options: Any) -> None:
    """Compares `vmap(fn)` with the loop over single elements."""
    check(lambda m, *xs: m(fn, in_axis, out_axis, **options)(*xs), *arrays)
