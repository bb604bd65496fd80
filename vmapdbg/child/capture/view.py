"""One run of the rangeify pass, as the model needs it. Nothing here depends on a release of tinygrad."""

import functools
import importlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from vmapdbg.child.listen.records import DecisionRecord, Launch, PassRecord, UOp, group_launches, number_kernels
from vmapdbg.child.listen.releases import INDICES
from vmapdbg.child.memory import name_dtype
from vmapdbg.child.program.reach import find_outside
from vmapdbg.model import capture as model
from vmapdbg.model.wording import cut_end

Ranges = tuple[UOp, ...]

_SHAPED = frozenset({"RESHAPE", "EXPAND", "PAD", "SHRINK", "COPY"})  # all sources but the first are sizes or places
_PLACES = frozenset({"BUFFER", "PARAM", "BUFFER_VIEW", "CONST"})  # all sources of these are sizes or places
_NOT_NODES = frozenset({"DEVICE", "UNIQUE", "LUNIQUE", "SINK", "RANGE"})  # places, and the schedule's own root
_MOST_PARTS = 4  # how many parts of a list are shown
_MOST_CHARACTERS = 80


class PassView:
    """One run of the rangeify pass, with the model's names: `ids` of nodes, ranges, values. `launches` are in the
    schedule's order, joined for one kernel. `is_brief`: only kernels' names and buffers, and nothing for `lint`."""

    def __init__(self, passed: PassRecord, is_brief: bool = False) -> None:
        self.passed, self.is_brief = passed, is_brief
        self._names: dict[UOp, str] = {}
        self.find_outside = functools.cache(find_outside)  # thousands of nodes share few index expressions
        self.ids = {u: number for number, u in enumerate(list_nodes(passed))}
        self.numbers = number_kernels(passed.kernels)  # of the compute kernel of each launch of the pass
        self.launches = list(self._join_launches())

    def asked_of(self, consumer: UOp, node: UOp) -> Ranges | None:
        """Returns the ranges that a consumer indexes a node with: from 0.14 on, it may have more. None: no ranges."""
        ranges = self.passed.range_map.get(consumer)
        broadcast: Any = getattr(sys.modules.get("tinygrad.schedule.indexing"), "broadcast_rngs", None)
        if ranges is None or broadcast is None:
            return ranges and ranges[0]
        return broadcast(consumer, node, ranges[0])

    def render(self, u: UOp) -> str:
        """Returns tinygrad's `render()`; it remembers the parts, because nodes share index expressions."""
        if u not in self._names:
            renderer = _find_renderer()
            for part in u.toposort(gate=lambda x: x not in self._names):
                self._names[part] = str(renderer.rewrite(part, ctx=self._names))
        return self._names[u]

    def render_all(self, ranges: Iterable[UOp]) -> tuple[str, ...]:
        return tuple(map(self.render, ranges))

    def describe_decision(self, decision: DecisionRecord) -> model.Decision:
        """Returns a decision with its values rendered: a node as `EXPAND 50`, a range as tinygrad renders it."""
        values = ({text: self._describe_value(v) for text, v in c.values.items()} for c in decision.conditions)
        conditions = tuple(replace(c, values=shown) for c, shown in zip(decision.conditions, values, strict=True))
        return model.Decision(decision.file, decision.line, decision.function, decision.text, conditions)

    def _describe_value(self, value: Any) -> str:
        if isinstance(value, (list, tuple)):
            shown = list(map(self._describe_value, value[:_MOST_PARTS]))
            if len(value) > _MOST_PARTS:
                shown.append(f"and {len(value) - _MOST_PARTS} more")
            parts = ", ".join(shown)
            return f"[{parts}]" if isinstance(value, list) else f"({parts})"
        if not hasattr(value, "op") or not hasattr(value, "src"):
            text = " ".join(str(value).split())
        elif value in self.ids:
            text = f"{value.op.name} {self.ids[value]}"
        elif name_dtype(value.dtype) in INDICES:
            text = self.render(value)
        else:
            text = value.op.name
        return cut_end(text, _MOST_CHARACTERS)

    def _join_launches(self) -> Iterator[Launch]:
        """Joins launches of one kernel that differ only in the value of a variable, as the steps of an OUTER range."""
        for indices in group_launches(self.passed.kernels):
            first = self.passed.kernels[indices[0]]
            are_steps = len(indices) > 1 and indices[-1] - indices[0] + 1 == len(indices)
            varied = frozenset(first.variables if are_steps else ())
            node = first.node if first.node in self.ids else None
            yield replace(first, node=node, count=len(indices), varied=varied)


def list_nodes(passed: PassRecord) -> list[UOp]:
    """Returns the UOps of the graph that compute something, in its order: not the UOps that only give a size. From 0.13
    on a shape consists of constants of a weak int, which may be numbers of the program as well."""
    values = {passed.tsink}
    for u in reversed(passed.toposort):
        if u in values:
            values.update(values_of(u))
            if u.op.name == "STORE":
                values.add(u.src[0])  # the place that it writes to is a node, too
    named = ((u, name_dtype(u.dtype).partition(".")[0]) for u in passed.toposort if u.op.name not in _NOT_NODES)
    return [u for u, scalar in named if scalar != "index" and (u in values or scalar != "weakint")]


def values_of(u: UOp) -> tuple[UOp, ...]:
    """Returns the sources that a UOp computes with: not its sizes, and not the place that a STORE writes to."""
    op = u.op.name  # an enum looks its name up each time
    if op in _PLACES:
        return ()
    if op == "STORE":
        return u.src[1:2]
    return u.src[:1] if op in _SHAPED else u.src


@functools.cache
def _find_renderer() -> Any:
    """Returns tinygrad's rules that render an expression. They moved after 0.12."""
    for name in ("tinygrad.uop.render", "tinygrad.uop.ops"):
        with suppress(ImportError, AttributeError):
            return importlib.import_module(name).renderer
    raise AttributeError("this tinygrad has no rules to render an expression with")


# *** sizes


def size_of(s: Any) -> int | str:
    """Returns the size of an axis: a number, or a symbolic size as tinygrad renders it."""
    if not hasattr(s, "op"):
        return int(s)
    return s.arg if s.op.name == "CONST" else s.render()


def sizes_of(sizes: Iterable[Any] | None) -> tuple[int | str, ...] | None:
    """Returns the size of each axis, None if there are no axes."""
    return None if sizes is None else tuple(map(size_of, sizes))


def largest_of(s: Any) -> int:
    """Returns the size of an axis, the largest if it is symbolic."""
    return int(getattr(s, "vmax", s))
