"""Makes a plan small while it fails in the same way: fewer results and statements, plainer inputs, smaller shapes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.fuzz.hunt.draw import write_data
from tests.fuzz.hunt.plan import Plan, Statement, keep_used, rename, write_program


def reduce_plan(plan: Plan, fails: Callable[[Plan], bool], seconds: float) -> Plan:
    """Returns the smallest plan that was found in that time and for which `fails` holds."""
    end = time.monotonic() + seconds
    tried = {write_program(plan)}
    progress = True
    while progress:
        progress = False
        for candidate in candidates(plan):
            if time.monotonic() > end:
                return plan
            smaller = keep_used(candidate)
            source = write_program(smaller)
            if source in tried or not smaller.results or rank(smaller) >= rank(plan):
                continue
            tried.add(source)
            if fails(smaller):
                plan, progress = smaller, True
                break
    return plan


def rank(plan: Plan) -> tuple[int, ...]:
    plain = sum("standard_normal" not in s.text or ".realize()" not in s.text for s in plan.inputs)
    return (*plan.find_size()[:2], plain, *plan.find_size()[2:], len(write_program(plan)))


def candidates(plan: Plan) -> Iterator[Plan]:
    for i in range(len(plan.results) if len(plan.results) > 1 else 0):
        yield replace(plan, results=(*plan.results[:i], *plan.results[i + 1 :]))
    if plan.ending != "each":
        yield replace(plan, ending="each")
    yield from earlier_results(plan)
    for i in reversed(range(len(plan.steps))):
        yield from without_step(plan, i)
    yield from plainer_inputs(plan)
    yield from smaller_shapes(plan)


def earlier_results(plan: Plan) -> Iterator[Plan]:
    for i, result in enumerate(plan.results):
        for step in plan.steps:
            if step.out == result:
                for arg in step.args:
                    yield replace(plan, results=(*plan.results[:i], arg, *plan.results[i + 1 :]))


def without_step(plan: Plan, i: int) -> Iterator[Plan]:
    step, others = plan.steps[i], (*plan.steps[:i], *plan.steps[i + 1 :])
    if step.out is None:
        yield replace(plan, steps=others)
        return
    kinds = plan.kinds
    for arg in step.args:
        if kinds.get(arg) == step.kind:
            results = tuple(dict.fromkeys(arg if r == step.out else r for r in plan.results))
            yield replace(plan, steps=tuple(rename(s, {step.out: arg}) for s in others), results=results)
    if step.kind is not None and step.kind.dtype in ("float", "int", "half"):
        data = write_data(step.kind.shape, step.kind.dtype, 40 + i)
        fresh = Statement(f"{data}.realize()", (), step.out, step.kind)
        yield replace(plan, inputs=(*plan.inputs, fresh), steps=others)


def plainer_inputs(plan: Plan) -> Iterator[Plan]:
    for i, statement in enumerate(plan.inputs):
        if statement.kind is not None and "default_rng" not in statement.text:
            data = write_data(statement.kind.shape, statement.kind.dtype, 60 + i)
            yield with_input(plan, i, f"{data}.realize()")
        if statement.text.endswith(")") and not statement.text.endswith(".realize()"):
            yield with_input(plan, i, f"{statement.text}.realize()")


def smaller_shapes(plan: Plan) -> Iterator[Plan]:
    """Other sizes in the inputs. If they do not fit the rest, the program fails in another way."""
    for i, statement in enumerate(plan.inputs):
        if statement.kind is None:
            continue
        shape = statement.kind.shape
        for at, size in enumerate(shape):
            for smaller in {1, 2, 3, size // 2} - {0}:
                if smaller >= size:
                    continue
                new = (*shape[:at], smaller, *shape[at + 1 :])
                text = re.sub(r"\(" + r", ".join(map(str, shape)) + r",?\)", str(new), statement.text)
                changed = replace(statement, text=text, kind=replace(statement.kind, shape=new))
                yield replace(plan, inputs=(*plan.inputs[:i], changed, *plan.inputs[i + 1 :]))


def with_input(plan: Plan, i: int, text: str) -> Plan:
    changed = replace(plan.inputs[i], text=text)
    return replace(plan, inputs=(*plan.inputs[:i], changed, *plan.inputs[i + 1 :]))
