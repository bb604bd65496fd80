"""Evaluates a random program with numpy, one element of each batch after the other."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .ops import OPS, Array
from .program import Apply, Body, Derive, Input, Invalid, Map, Program, Step, args_of, outs_of


def input_value(x: Input) -> Array:
    dtype = np.dtype(x.dtype)
    if x.kind == "arange":
        return np.arange(int(np.prod(x.shape))).astype(dtype).reshape(x.shape)
    if x.kind == "full":
        return np.full(x.shape, True if dtype == np.bool_ else 2, dtype)
    rng = np.random.default_rng(x.seed)
    if dtype.kind == "f":
        return np.asarray(rng.standard_normal(x.shape)).astype(dtype)
    return np.asarray(rng.integers(0, 2 if dtype == np.bool_ else 7, x.shape)).astype(dtype)


@dataclass
class Trace:
    """What an evaluation saw: each value (in a scope, the value of the first element), and the scopes that it depends
    on."""

    values: dict[str, Array] = field(default_factory=dict)
    scopes: dict[str, frozenset[int]] = field(default_factory=dict)


def evaluate(program: Program) -> tuple[list[Array], Trace]:
    """Returns the results, one element of each batch after the other, and the trace. Raises Invalid.

    A derivative is not evaluated: a value of its shape replaces it.
    """
    trace = Trace()
    env: dict[str, Array] = {}
    for x in program.inputs:
        env[x.name] = trace.values[x.name] = input_value(x)
        trace.scopes[x.name] = frozenset()
    if not program.body.results:
        raise Invalid("no result")
    with np.errstate(all="ignore"):
        results = run_body(program.body, env, trace, {})
    return results, trace


def run_body(body: Body, env: dict[str, Array], trace: Trace, open_ids: dict[int, None]) -> list[Array]:
    for step in body.steps:
        try:
            values, scopes = run_step(step, env, trace, open_ids)
        except (ValueError, IndexError, TypeError, KeyError, OverflowError) as e:
            raise Invalid(f"{step}: {e}") from e
        for name, value in zip(outs_of(step), values, strict=True):
            check_value(value)
            env[name] = value
            if name not in trace.values:
                trace.values[name], trace.scopes[name] = value, scopes
    try:
        return [env[r] for r in body.results]
    except KeyError as e:
        raise Invalid(f"{e} is not known") from e


def run_step(
    step: Step, env: dict[str, Array], trace: Trace, open_ids: dict[int, None]
) -> tuple[list[Array], frozenset[int]]:
    scopes = frozenset(s for a in args_of(step) for s in trace.scopes[a]) if not isinstance(step, Map) else frozenset()
    if isinstance(step, Apply):
        return [np.asarray(OPS[step.op].value(*[env[a] for a in step.args], *step.params))], scopes
    if isinstance(step, Derive):
        if env[step.y].dtype.kind != "f" or env[step.x].dtype.kind != "f":
            raise Invalid("only floats have a derivative")
        like = env[step.x] if step.kind == "gradient" else env[step.y]
        return [like * 0 + like.dtype.type(0.5)], scopes
    return run_map(step, env, trace, open_ids)


def run_map(
    step: Map, env: dict[str, Array], trace: Trace, open_ids: dict[int, None]
) -> tuple[list[Array], frozenset[int]]:
    check_map(step, env, open_ids)
    mine = {id(step) * 2 + i: None for i in range(len(step.sizes))}
    rows: list[list[Array]] = []
    for at in itertools.product(*[range(s) for s in step.sizes]):
        inner = dict(env)
        for param, arg, axes in zip(step.body.params, step.args, step.in_axes, strict=True):
            inner[param] = take_element(env[arg], axes, at)
            if param not in trace.values:
                trace.values[param] = inner[param]
                own = {m for m, a in zip(mine, axes, strict=True) if a is not None}
                trace.scopes[param] = trace.scopes[arg] | own
        rows.append(run_body(step.body, inner, trace, {**open_ids, **dict.fromkeys(step.axis_ids)}))
    outs = []
    for i, (name, axes) in enumerate(zip(step.body.results, step.out_axes, strict=True)):
        if axes == (None,):
            if trace.scopes[name] & set(mine):
                raise Invalid("out_axes None for what depends on the batch")
            outs.append(rows[0][i])
        else:
            outs.append(put_elements([row[i] for row in rows], step.sizes, axes))
    used = {s for a in args_of(step) for s in trace.scopes.get(a, ())}
    return outs, frozenset(used - set(mine))


def check_map(step: Map, env: dict[str, Array], open_ids: dict[int, None]) -> None:
    if step.method == "pad_reduce" and step.axis_type == "outer":
        raise Invalid("an OUTER RANGE has no REDUCE over it")
    if set(step.axis_ids) & set(open_ids):
        raise Invalid("the RANGE is open already")
    for arg, axes in zip(step.args, step.in_axes, strict=True):
        given = [a % env[arg].ndim for a in axes if a is not None and -env[arg].ndim <= a < env[arg].ndim]
        if len(given) != sum(a is not None for a in axes) or len(set(given)) != len(given):
            raise Invalid("no such axis")
        for axis, size in zip(axes, step.sizes, strict=True):
            if axis is not None and env[arg].shape[axis] != size:
                raise Invalid("another size")


def take_element(x: Array, axes: tuple[int | None, ...], at: tuple[int, ...]) -> Array:
    return np.asarray(x[index_of(axes, at, x.ndim)])


def index_of(axes: tuple[int | None, ...], at: tuple[int, ...], ndim: int) -> tuple[Any, ...]:
    index: list[Any] = [slice(None)] * ndim
    for axis, i in zip(axes, at, strict=True):
        if axis is not None:
            index[axis] = i
    return tuple(index)


def batch_places(axes: tuple[int | None, ...], inner_ndim: int) -> tuple[int, ...]:
    """The place of each batch axis in the result, counted from the front."""
    ndim = inner_ndim + len(axes)
    places = tuple(a % ndim for a in axes if a is not None and -ndim <= a < ndim)
    if len(set(places)) != len(axes):
        raise Invalid("no such axis in the result")
    return places


def put_elements(rows: list[Array], sizes: tuple[int, ...], axes: tuple[int | None, ...]) -> Array:
    inner = rows[0].shape
    stacked = np.stack(rows).reshape(*sizes, *inner)
    return np.moveaxis(stacked, range(len(sizes)), batch_places(axes, len(inner)))


LARGEST_SIZE, LARGEST_VALUE = 96, 1e3


def check_value(value: Array) -> None:
    if value.size == 0 or value.size > LARGEST_SIZE or value.ndim > 6:
        raise Invalid(f"shape {value.shape}")
    if value.dtype.kind not in "fib" or value.dtype.name not in {"float32", "float64", "int32", "bool"}:
        raise Invalid(f"dtype {value.dtype}")
    if not np.all(np.isfinite(value)) or np.max(np.abs(value.astype(np.float64))) > LARGEST_VALUE:
        raise Invalid("values too large")
