"""Makes a failing program smaller: fewer results, steps and scopes, smaller shapes, plainer scopes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from .evaluate import Trace, batch_places, evaluate
from .ops import OPS
from .program import (
    Apply,
    Body,
    Derive,
    Input,
    Invalid,
    Map,
    Program,
    Step,
    all_steps,
    args_of,
    bodies,
    outs_of,
    used_program,
)

Rename = dict[str, str]


def shrink(program: Program, outcome: Any, check: Callable[[Program], Any], seconds: float) -> tuple[Program, Any]:
    """Returns the smallest program found in that time that fails in the same way, and its outcome."""
    began = time.monotonic()
    tried: set[str] = set()
    progress = True
    while progress:
        progress = False
        for candidate in candidates(program):
            if time.monotonic() - began > seconds:
                return program, outcome
            try:
                candidate = used_program(candidate)
                if repr(candidate) in tried or size_of(candidate) >= size_of(program):
                    continue
                tried.add(repr(candidate))
                found = check(candidate)
            except Invalid:
                continue
            if found.failed and found.same_as(outcome):
                program, outcome, progress = candidate, found, True
                break
    return program, outcome


PLAINNESS = {"each": 0, "together": 1, "jit": 2, "data": 1, "realized": 0, "arange": 1, "full": 1}
PLAINNESS |= {"loop": 0, "outer": 1, "ranges": 0, "vargs": 1, "pad_reduce": 1}


def size_of(program: Program) -> tuple[int, ...]:
    """What is made smaller, the most important first."""
    steps = list(all_steps(program))
    maps = [s for s in steps if isinstance(s, Map)]
    elements = sum(s for x in program.inputs for s in (len(x.shape), *x.shape))
    axes = [a for m in maps for axes in (*m.in_axes, *m.out_axes) for a in axes]
    return (
        len(steps) + 2 * len(maps) + 2 * sum(isinstance(s, Derive) for s in steps) + sum(len(m.sizes) for m in maps),
        len(program.body.results) + sum(len(m.outs) + len(m.args) for m in maps),
        PLAINNESS[program.mode] + sum(PLAINNESS[m.axis_type] + PLAINNESS[m.method] for m in maps),
        sum(OPS[s.op].arity * 100 - OPS[s.op].weight for s in steps if isinstance(s, Apply)),
        len(program.inputs),
        elements,
        sum(PLAINNESS[x.kind] for x in program.inputs),
        sum(abs(a) + (a < 0) for a in axes if a is not None),
    )


def candidates(program: Program) -> Iterator[Program]:
    trace = evaluate(program)[1]
    results = program.body.results
    for r in results if len(results) > 1 else ():
        yield replace(program, body=replace(program.body, results=(r,)))
    for i in range(len(results) if len(results) > 2 else 0):
        yield replace(program, body=replace(program.body, results=results[:i] + results[i + 1 :]))
    yield from earlier_results(program)
    for mode in ("each", "together"):
        yield replace(program, mode=mode)
    steps = [(body, i) for body, _ in bodies(program.body) for i in range(len(body.steps))]
    for body, i in reversed(steps):
        yield from without_step(program, body, i, trace)
    for body, i in steps:
        if isinstance(step := body.steps[i], Map):
            yield from plainer_maps(program, body, i, step)
            yield from without_scope(program, body, i, step, trace)
    yield from smaller_inputs(program)


def earlier_results(program: Program) -> Iterator[Program]:
    if len(program.body.results) == 1:
        for step in program.body.steps:
            for out in outs_of(step):
                yield replace(program, body=replace(program.body, results=(out,)))


def without_step(program: Program, body: Body, i: int, trace: Trace) -> Iterator[Program]:
    """Each value of the step is replaced by another of its shape and dtype, or by an input of its own."""
    step = body.steps[i]
    for out in outs_of(step):
        alike = [n for n in known_at(program, body, i) if same_type(trace, n, out)]
        for other in sorted(alike, key=lambda n: n not in args_of(step)):
            yield renamed(program, {out: other})
        # also another of one rank more or less, as the rest may take it
        for other in args_of(step):
            if other not in alike and other in trace.values:
                yield renamed(program, {out: other})
        if not trace.scopes[out]:
            value = trace.values[out]
            fresh = Input(f"x_{out}", value.shape, value.dtype.name, "realized", i)
            yield replace(renamed(program, {out: fresh.name}), inputs=(*program.inputs, fresh))
    if isinstance(step, Apply) and OPS[step.op].after is None:
        for plain in ("neg", "contiguous"):
            if step.op != plain:
                yield with_steps(program, body, i, (Apply(step.out, plain, step.args[:1]),))


def same_type(trace: Trace, a: str, b: str) -> bool:
    if a not in trace.values or b not in trace.values:
        return False
    x, y = trace.values[a], trace.values[b]
    return x.shape == y.shape and x.dtype == y.dtype


def known_at(program: Program, body: Body, i: int) -> list[str]:
    around = next(around for b, around in bodies(program.body) if b is body)
    names = [x.name for x in program.inputs]
    for outer, inner in zip(around, (*around, body)[1:], strict=True):
        names += outer.params
        for step in outer.steps:
            if isinstance(step, Map) and step.body is inner:
                break
            names += outs_of(step)
    names += body.params
    return names + [o for s in body.steps[:i] for o in outs_of(s)]


def plainer_maps(program: Program, body: Body, i: int, step: Map) -> Iterator[Program]:
    def put(new: Map) -> Program:
        return with_steps(program, body, i, (new,))

    if step.axis_type != "loop":
        yield put(replace(step, axis_type="loop"))
    if step.method != "ranges" and len(step.sizes) == 1:
        yield put(replace(step, method="ranges", axis_ids=()))
    for j in range(len(step.body.results) if len(step.outs) > 1 else 0):
        keep = [k for k in range(len(step.outs)) if k != j]
        yield put(
            replace(
                step,
                outs=tuple(step.outs[k] for k in keep),
                out_axes=tuple(step.out_axes[k] for k in keep),
                body=replace(step.body, results=tuple(step.body.results[k] for k in keep)),
            )
        )
    for j, result in enumerate(step.body.results):
        for inner in step.body.steps:
            for out in (*args_of(inner), *outs_of(inner)):
                if out != result:
                    results = (*step.body.results[:j], out, *step.body.results[j + 1 :])
                    yield put(replace(step, body=replace(step.body, results=results)))
    if len(step.sizes) == 1:
        for j, axes in enumerate(step.out_axes):
            if axes not in ((0,), (None,)):
                yield put(replace(step, out_axes=(*step.out_axes[:j], (0,), *step.out_axes[j + 1 :])))
    if len(step.sizes) == 2:
        yield from one_range(put, step)


def one_range(put: Callable[[Map], Program], step: Map) -> Iterator[Program]:
    # one RANGE gets the batch, the axis of the other does not move
    for k in range(2):
        yield put(
            replace(
                step,
                sizes=step.sizes[k : k + 1],
                axis_ids=step.axis_ids[k : k + 1],
                in_axes=tuple(a[k : k + 1] for a in step.in_axes),
                out_axes=tuple((0,) for _ in step.out_axes),
            )
        )


def without_scope(program: Program, body: Body, i: int, step: Map, trace: Trace) -> Iterator[Program]:
    """The body's steps for the first element, whose results are repeated over the batch."""
    if len(step.sizes) != 1:
        return
    steps: list[Step] = []
    rename: Rename = {}
    for param, arg, (axis,) in zip(step.body.params, step.args, step.in_axes, strict=True):
        if axis is None:
            rename[param] = arg
        else:
            steps.append(Apply(param, "index", (arg,), (axis % trace.values[arg].ndim, 0)))
    steps += step.body.steps
    for out, name, (axis,) in zip(step.outs, step.body.results, step.out_axes, strict=True):
        if axis is None:
            rename[out] = name
        else:
            ndim = trace.values[name].ndim
            (place,) = batch_places((axis,), ndim)
            steps.append(Apply(out, "repeat", (name,), (place, step.sizes[0], ndim)))
    yield renamed(with_steps(program, body, i, tuple(steps)), rename)


def smaller_inputs(program: Program) -> Iterator[Program]:
    sizes = sorted({s for x in program.inputs for s in x.shape if s > 1}, reverse=True)
    # one size in all the inputs, as the axes of several must fit together
    for size, smaller in itertools.product(sizes, (1, 2, 3)):
        if smaller < size:
            inputs = (replace(x, shape=tuple(smaller if s == size else s for s in x.shape)) for x in program.inputs)
            yield with_sizes(replace(program, inputs=tuple(inputs)), {size: smaller})
    for i, x in enumerate(program.inputs):
        for axis, size in enumerate(x.shape):
            for smaller in {1, 2} - {size} if size > 1 else ():
                shape = (*x.shape[:axis], smaller, *x.shape[axis + 1 :])
                changed = replace(program, inputs=replaced(program.inputs, i, replace(x, shape=shape)))
                yield changed
                yield with_sizes(changed, {size: smaller})
        if x.kind != "realized":
            yield replace(program, inputs=replaced(program.inputs, i, replace(x, kind="realized")))
        if x.dtype == "float32":
            yield replace(program, inputs=replaced(program.inputs, i, replace(x, dtype="float64")))


def replaced(items: tuple[Any, ...], i: int, new: Any) -> tuple[Any, ...]:
    return (*items[:i], new, *items[i + 1 :])


# *** rewriting


def rewrite(body: Body, change: Callable[[Body], Body]) -> Body:
    """The body with `change` applied to it and to those below, the outer ones first."""
    body = change(body)
    steps = tuple(replace(s, body=rewrite(s.body, change)) if isinstance(s, Map) else s for s in body.steps)
    return replace(body, steps=steps)


def with_steps(program: Program, body: Body, i: int, steps: tuple[Step, ...]) -> Program:
    new = replace(body, steps=(*body.steps[:i], *steps, *body.steps[i + 1 :]))
    return replace(program, body=rewrite(program.body, lambda b: new if b is body else b))


def renamed(program: Program, names: Rename) -> Program:
    """Replaces every use of a name by another name."""

    def name(n: str) -> str:
        while n in names and names[n] != n:
            n = names[n]
        return n

    def change(step: Step) -> Step:
        if isinstance(step, Apply):
            return replace(step, args=tuple(name(a) for a in step.args))
        if isinstance(step, Derive):
            return replace(step, y=name(step.y), x=name(step.x))
        return replace(step, args=tuple(name(a) for a in step.args))

    def in_body(body: Body) -> Body:
        return replace(body, steps=tuple(change(s) for s in body.steps), results=tuple(name(r) for r in body.results))

    return replace(program, body=rewrite(program.body, in_body))


def with_sizes(program: Program, sizes: dict[int, int]) -> Program:
    def change(step: Step) -> Step:
        if isinstance(step, Map):
            return replace(step, sizes=tuple(sizes.get(s, s) for s in step.sizes))
        return step

    return replace(program, body=rewrite(program.body, lambda b: replace(b, steps=tuple(change(s) for s in b.steps))))
