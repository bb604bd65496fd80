"""Changes that lower the peak, predicted from the recorded lifetimes. Runs in the child."""

from __future__ import annotations

import gc
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from vmapdbg.child.capture.lifetimes import Span, Value
from vmapdbg.model.capture import MemoryAdvice

if TYPE_CHECKING:
    from vmapdbg.child.capture.memory import MemoryBuilder

_MOST, _MOST_OF_KIND = 5, 2
_LEAST_SHARE = 0.01
"""Advice saves at least this share of the peak."""
_MOST_HOLDERS = 2
Spans = dict[Value, list[Span]]
Line = str | None


class Adviser:
    """Looks for changes at the values that are `live` at the peak. A change of a line concerns all values of that size
    that the line makes during the run: the next step may have the same peak."""

    def __init__(self, builder: MemoryBuilder, live: Sequence[Value]) -> None:
        self.builder, self.times, self.live = builder, builder.times, live
        self.holders, self.variables = builder.holders, vars(sys.modules["__main__"])
        # line and bytes -> all values, by the line of the code that computes them
        self.alike: dict[tuple[Line, int], list[Value]] = defaultdict(list)
        planned = [value for values in self.times.planned.values() for value in values]
        for value in (*self.times.whole.values(), *planned):
            if value.is_planned or (value.used and value.memory not in self.times.planned):
                self.alike[self.line_of(value), value.bytes].append(value)

    def advise(self) -> list[MemoryAdvice]:
        """Returns the changes that lower the peak most."""
        least = self.times.peak * (1 - _LEAST_SHARE)
        found = [*self.advise_recompute(), *self.advise_half(), *self.advise_unused(), *self.advise_delete()]
        chosen: list[MemoryAdvice] = []
        for advice in sorted(found, key=lambda advice: (advice.peak, advice.ops)):
            if advice.peak <= least and sum(one.kind == advice.kind for one in chosen) < _MOST_OF_KIND:
                chosen.append(advice)
        return chosen[:_MOST]

    def line_of(self, value: Value) -> Line:
        return self.builder.find_value(value).line

    def group(self, values: Iterable[Value]) -> Iterable[list[Value]]:
        """Returns groups of values with one line."""
        groups: dict[Line, list[Value]] = defaultdict(list)
        for value in values:
            groups[self.line_of(value)].append(value)
        return groups.values()

    def list_alike(self, values: Sequence[Value]) -> list[Value]:
        """Returns all values of the run that are like some live values, these first."""
        keys = dict.fromkeys((self.line_of(value), value.bytes) for value in values)
        return list(dict.fromkeys([*values, *(one for key in keys for one in self.alike[key])]))

    def make(self, kind: Any, values: Sequence[Value], changed: Mapping[Value, Sequence[Span]], **more: Any) -> Any:
        given: dict[str, Any] = {"line": self.line_of(values[0]), "name": "", **more}
        size = sum(value.bytes for value in values)
        return MemoryAdvice(kind, buffers=len(values), bytes=size, peak=self.times.find_peak(changed), **given)

    # *** recompute instead of keep

    def advise_recompute(self) -> list[MemoryAdvice]:
        found: list[MemoryAdvice] = []
        for values in self.group(one for one in self.live if self.times.find_gap(one)):
            possible = {value: spans for value in values if (spans := self.try_recompute(value)) is not None}
            if not possible:
                continue
            changed: Spans = {}
            for value in self.list_alike(list(possible)):
                spans = possible.get(value) or self.try_recompute(value) or {}
                # an input of several values is kept for all of them; a value is recomputed, not kept
                changed |= {one: kept for one, kept in spans.items() if one not in changed or one is value}
            ops = sum(map(self.builder.count_ops, possible))
            found.append(self.make("recompute", list(possible), changed, ops=ops))
        return found

    def try_recompute(self, value: Value) -> Spans | None:
        """Returns the spans that change if a kernel computes a value again for its next reader: its own, and the spans
        of inputs that must be kept for it. None if that is not possible."""
        times, gap = self.times, self.times.find_gap(value)
        if gap is None and len(value.used) > 1:
            # another step has it when the peak is over
            gap = max(pairwise(value.used), key=lambda pair: pair[1] - pair[0])
        # a Tensor that the program holds is meant to be kept
        if gap is None or len(value.written) != 1 or self.holders.names_of(value):
            return None
        written, again = value.written[0], gap[1]
        batch = times.find_batch(written)
        if batch is None or self.builder.place_launch(written).kernel is None:
            return None
        changed = {value: times.without(value, *gap)}
        for use in batch.uses[written - batch.launch]:
            if use.writes:
                continue
            source = times.find_source(batch, use, written)
            if source is None or any(written < launch <= again for launch in source.written):
                return None
            kept = times.until(source, again)
            if kept != times.span_of(source):
                if not source.is_planned:
                    # the program lets go of it before
                    return None
                changed[source] = [kept]
        return changed

    # *** keep in half precision

    def advise_half(self) -> list[MemoryAdvice]:
        found: list[MemoryAdvice] = []
        for values in self.group(one for one in self.live if one.dtype == "float" and one.written):
            spans = {value: self.times.span_of(value) for value in self.list_alike(values)}
            halved = {value: [(start, end, size // 2)] for value, (start, end, size) in spans.items()}
            found.append(self.make("half", values, halved))
        return found

    # *** free earlier

    def advise_unused(self) -> list[MemoryAdvice]:
        """Returns the advice to free what is no Tensor of the program and what no launch uses from the peak on: lazy
        Tensors hold it, as gradients do after a backward pass."""
        dead = [value for value in self.live if self.is_dead(value) and not self.holders.names_of(value)]
        if not dead:
            return []
        alike = self.list_alike(dead)
        nameless = (value for value in alike if not self.holders.names_of(value))
        changed = {value: self.times.without(value, value.used[-1]) for value in nameless}
        lazy = (self.holders.lazy.get(id(value.memory.buffer()), ()) for value in alike)
        holders = list(dict.fromkeys(chain.from_iterable(lazy)))
        name = ", ".join(holders[:_MOST_HOLDERS])
        if len(holders) > _MOST_HOLDERS:
            name += f" and {len(holders) - _MOST_HOLDERS} more"
        return [self.make("free", dead, changed, line=None, name=name)]

    def is_dead(self, value: Value) -> bool:
        return not value.is_planned and bool(value.used) and value.used[-1] < self.times.at

    def advise_delete(self) -> list[MemoryAdvice]:
        """Returns the advice to delete a global that nothing uses from the peak on. To be sure that nothing else holds
        its memory, it deletes the global."""
        found: list[MemoryAdvice] = []
        for value in self.live:
            names = self.holders.names_of(value)
            if value.bytes < _LEAST_SHARE * self.times.peak or not self.is_dead(value) or not names:
                continue
            # an attribute or an item has no name of its own
            if not self.variables.keys() >= set(names):
                continue
            for name in names:
                del self.variables[name]
            gc.collect()
            if value.memory.buffer() is None:
                changed = {value: self.times.without(value, value.used[-1])}
                line = self.times.find_line(value.used[-1])
                found.append(self.make("free", [value], changed, line=line, name=", ".join(sorted(names))))
        return found
