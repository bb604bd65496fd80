"""A random program as data: a list of steps, some of them with a body of steps that is mapped over a batch.

The same `Program` is drawn (generate.py), evaluated with numpy (evaluate.py) and written as Python (source.py). Each
value has a name of its own in the whole program, so that a body can use what is around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Input:
    """A tensor of the program. `kind` is how it is made: data, realized, arange or full."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str = "data"
    seed: int = 0


@dataclass(frozen=True)
class Apply:
    """out = op(args, params)."""

    out: str
    op: str
    args: tuple[str, ...]
    params: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Derive:
    """out = the gradient of the sum of y*y to x, or the derivative of y along a direction at x."""

    out: str
    kind: str  # gradient, jvp
    y: str
    x: str


@dataclass(frozen=True)
class Body:
    params: tuple[str, ...]
    steps: tuple[Step, ...]
    results: tuple[str, ...]


@dataclass(frozen=True)
class Map:
    """outs = body mapped over the axes of its inputs.

    `sizes` has a size for each RANGE: one, or two where vargs are written by hand. Each entry of `in_axes` (one for
    each argument) and `out_axes` (one for each result) has an axis for each RANGE, or None.
    """

    outs: tuple[str, ...]
    args: tuple[str, ...]
    in_axes: tuple[tuple[int | None, ...], ...]
    out_axes: tuple[tuple[int | None, ...], ...]
    body: Body
    sizes: tuple[int, ...]
    axis_type: str = "loop"  # loop, outer
    method: str = "ranges"  # ranges, pad_reduce, vargs
    axis_ids: tuple[int, ...] = ()  # of the RANGEs of vargs


Step = Apply | Derive | Map


@dataclass(frozen=True)
class Program:
    inputs: tuple[Input, ...]
    body: Body
    mode: str = "each"  # how the results are realized: each, together, jit


class Invalid(Exception):
    """The program does not fit together, or its values are of no use for a comparison."""


def outs_of(step: Step) -> tuple[str, ...]:
    return step.outs if isinstance(step, Map) else (step.out,)


def args_of(step: Step) -> tuple[str, ...]:
    """Returns the names that a step reads. If the step has a body, names from outside the body count, too."""
    if isinstance(step, Apply):
        return step.args
    if isinstance(step, Derive):
        return (step.y, step.x)
    return (*step.args, *free_names(step.body))


def free_names(body: Body) -> tuple[str, ...]:
    known = set(body.params)
    found: dict[str, None] = {}
    for step in body.steps:
        found.update((a, None) for a in args_of(step) if a not in known)
        known.update(outs_of(step))
    found.update((r, None) for r in body.results if r not in known)
    return tuple(found)


def bodies(body: Body, around: tuple[Body, ...] = ()) -> Iterator[tuple[Body, tuple[Body, ...]]]:
    """Each body with those around it, outermost first."""
    yield body, around
    for step in body.steps:
        if isinstance(step, Map):
            yield from bodies(step.body, (*around, body))


def all_steps(program: Program) -> Iterator[Step]:
    for body, _ in bodies(program.body):
        yield from body.steps


def has_derivative(program: Program) -> bool:
    return any(isinstance(s, Derive) for s in all_steps(program))


def derived_results(program: Program) -> list[bool]:
    """For each result, whether it depends on a derivative."""
    derived: set[str] = set()
    for step in program.body.steps:
        inside = Program((), step.body) if isinstance(step, Map) else Program((), Body((), (step,), ()))
        if has_derivative(inside) or derived & set(args_of(step)):
            derived.update(outs_of(step))
    return [r in derived for r in program.body.results]


def used_program(program: Program) -> Program:
    """The program without the steps and inputs that no result needs."""
    body = used_body(program.body)
    used = {*free_names(body)}
    return replace(program, body=body, inputs=tuple(x for x in program.inputs if x.name in used))


def used_body(body: Body) -> Body:
    needed, steps = set(body.results), []
    for step in reversed(body.steps):
        if not needed & set(outs_of(step)):
            continue
        if isinstance(step, Map):
            step = used_map(step, needed)
        steps.append(step)
        needed.update(args_of(step))
    return replace(body, steps=tuple(reversed(steps)))


def used_map(step: Map, needed: set[str]) -> Map:
    kept = [i for i, out in enumerate(step.outs) if out in needed]
    body = used_body(replace(step.body, results=tuple(step.body.results[i] for i in kept)))
    inside = {a for s in body.steps for a in args_of(s)} | set(body.results)
    params = [i for i, p in enumerate(body.params) if p in inside] or list(range(min(1, len(body.params))))
    return replace(
        step,
        outs=tuple(step.outs[i] for i in kept),
        out_axes=tuple(step.out_axes[i] for i in kept),
        args=tuple(step.args[i] for i in params),
        in_axes=tuple(step.in_axes[i] for i in params),
        body=replace(body, params=tuple(body.params[i] for i in params)),
    )
