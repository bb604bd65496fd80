"""Changes that lower the peak, predicted from the recorded lifetimes. Runs in the child."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from vmapdbg.child.capture.lifetimes import Span, Value, span_without
from vmapdbg.model.capture import MemoryAdvice
from vmapdbg.model.schedule_index import group_equal
from vmapdbg.model.wording import join_first

if TYPE_CHECKING:
    from vmapdbg.child.capture.memory import MemoryBuilder

_MOST, _MOST_OF_KIND = 5, 2
_LEAST_SHARE = 0.01  # advice saves at least this share of the peak
_MOST_HOLDERS = 2
Line = str | None
Change = Callable[[Value], list[Span]]
"""Returns the spans that a value has after a change; nothing if the value cannot be changed."""


class Adviser:
    """Looks for changes at the values that are `live` at the peak. A change of a line concerns all values of that size
    that the line makes during the run: the next step may have the same peak."""

    def __init__(self, builder: MemoryBuilder, live: Sequence[Value]) -> None:
        self.builder, self.times, self.holders, self.live = builder, builder.times, builder.holders, live

    def advise(self) -> list[MemoryAdvice]:
        """Returns the changes that lower the peak most."""
        found: list[MemoryAdvice] = []
        for values in group_equal(filter(self.times.find_gap, self.live), self.line_of):
            found += self.judge("recompute", values, self.recompute, self.line_of(values[0]))
        floats = [value for value in self.live if value.dtype == "float" and value.written]
        for values in group_equal(floats, self.line_of):
            found += self.judge("half", values, _halve, self.line_of(values[0]))
        dead = [one for one in self.live if one.arena is None and one.used and one.touched[-1] < self.times.tick]
        # no Tensor of the program has these: lazy Tensors hold them, as gradients do after a backward pass
        nameless = [value for value in dead if not self.holders.names_of(value)]
        lazy = chain.from_iterable(map(self.holders.lazy_of, self.list_alike(nameless)))
        found += self.judge("free", nameless, self.drop, None, join_first(list(dict.fromkeys(lazy)), _MOST_HOLDERS))
        large = (value for value in dead if value.bytes >= _LEAST_SHARE * self.times.peak)
        found += filter(None, map(self.advise_delete, large))
        least = self.times.peak * (1 - _LEAST_SHARE)
        chosen: list[MemoryAdvice] = []
        for advice in sorted(found, key=lambda advice: (advice.peak, advice.ops)):
            if advice.peak <= least and sum(one.kind == advice.kind for one in chosen) < _MOST_OF_KIND:
                chosen.append(advice)
        return chosen[:_MOST]

    def line_of(self, value: Value) -> Line:
        return self.builder.find_value(value).line

    def list_alike(self, values: Sequence[Value]) -> list[Value]:
        """Returns all values of the run that are like some live values."""
        keys = {(self.line_of(value), value.bytes) for value in values}
        return [one for one in self.times.values if one.used and (self.line_of(one), one.bytes) in keys]

    def judge(self, kind: Any, live: Sequence[Value], change: Change, line: Line, name: str = "") -> list[MemoryAdvice]:
        """Returns the advice to change some live values and what is like them; nothing if none can be changed."""
        possible = [value for value in live if change(value)]
        changed = {value: spans for value in self.list_alike(possible) if (spans := change(value))}
        if not possible:
            return []
        ops = sum(map(self.builder.count_ops, possible)) if kind == "recompute" else 0
        size = sum(value.bytes for value in possible)
        return [MemoryAdvice(kind, line, name, len(possible), size, self.times.find_peak(changed), ops)]

    # *** recompute instead of keep

    def recompute(self, value: Value) -> list[Span]:
        """Has a kernel compute a value again for its next reader, if its inputs are still there."""
        gap = self.times.find_gap(value)
        if gap is None and len(value.used) > 1:
            # another step has it when the peak is over
            gap = max(pairwise(value.touched), key=lambda pair: pair[1] - pair[0])
        # a Tensor that the program holds is meant to be kept
        if gap is None or len(value.written) != 1 or self.holders.names_of(value):
            return []
        written, again = value.written[0], gap[1]
        # the program may let go of an input before, or write to it
        for source in self.times.sources[written.number]:
            if source.end <= again or any(written.tick < launch.tick <= again for launch in source.written):
                return []
        return [] if self.builder.place_launch(written).kernel is None else span_without(value, *gap)

    # *** free earlier

    def drop(self, value: Value) -> list[Span]:
        """Has the planner free a value after its last use, in the schedule that computes it."""
        return [] if self.holders.names_of(value) else span_without(value, value.touched[-1])

    def advise_delete(self, value: Value) -> MemoryAdvice | None:
        """Returns the advice to delete the globals that alone hold a value. To be sure of that, it deletes them."""
        names, variables = self.holders.names_of(value), vars(sys.modules["__main__"])
        if not names or not variables.keys() >= set(names):
            return None  # an attribute or an item has no name of its own
        for name in names:
            del variables[name]
        gc.collect()
        if value.buffer() is not None:
            return None
        last = value.touched[-1]
        line = value.reads.get(last, value.used[-1].line)
        # while a schedule or a call runs, its inputs stay
        ends = [part.end - 1 for part in self.builder.watched.parts if part.first <= last < part.end]
        peak = self.times.find_peak({value: span_without(value, max(ends, default=last))})
        return MemoryAdvice("free", line, ", ".join(sorted(names)), 1, value.bytes, peak)


def _halve(value: Value) -> list[Span]:
    return [(value.start, value.end, value.bytes // 2)]
