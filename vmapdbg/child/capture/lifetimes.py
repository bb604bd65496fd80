"""When values have memory, and the peak that results if some of them have less of it. Knows nothing of tinygrad."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from vmapdbg.child.listen.allocations import Allocation, Batch, Use

Span = tuple[int, int, int]
"""From (included), until (excluded), and the bytes meanwhile."""


@dataclass(eq=False)
class Value:
    """What an allocation holds, or what the planner put in a part of it (`is_planned`). `used` has the launches that
    use it, in order, and `written` the launches that write it; `writer` is the batch and the index of the first."""

    memory: Allocation
    offset: int
    bytes: int
    dtype: str
    is_planned: bool
    used: list[int] = field(default_factory=list[int])
    written: list[int] = field(default_factory=list[int])
    writer: tuple[Batch, int] | None = None

    def note(self, batch: Batch, index: int, writes: bool) -> None:
        launch = batch.launch + index
        self.used.append(launch)
        if writes:
            self.written.append(launch)
            self.writer = self.writer or (batch, index)

    def overlaps(self, other: Value | Use) -> bool:
        return self.offset < other.offset + other.bytes and other.offset < self.offset + self.bytes


def find_most(spans: Iterable[Span]) -> tuple[int, int]:
    """Returns the most bytes of some spans at a time, and the first time with them."""
    changes = defaultdict[int, int](int)
    for start, end, size in spans:
        if start < end:
            changes[start] += size
            changes[end] -= size
    times = sorted(changes)
    levels = list(accumulate(changes[time] for time in times))
    most = max(levels, default=0)
    return most, times[levels.index(most)] if levels else 0


class Lifetimes:
    """All values of a run. `events` has the bytes, the allocation and the launch of each; `whole` has the value of each
    allocation, and `planned` the values of the allocations that the planner shares. `peak` is reached with event
    `top`, and launch `at` uses the most of the planner's memory then. `fullest` has for each allocation of the planner
    the launch that decides its size."""

    def __init__(self, events: Sequence[tuple[int, Allocation, int]], batches: Sequence[Batch], launches: int) -> None:
        self.events, self.batches, self.launches = events, batches, launches
        self._launched = [batch for batch in batches if batch.kind != "read" and batch.uses]
        self._starts = [batch.launch for batch in self._launched]
        self.levels = list(accumulate(event[0] for event in events))
        self.times = [launch for _, _, launch in events]
        self.peak = max(self.levels, default=0)
        self.top = self.levels.index(self.peak) if events else 0
        self.whole = {a: Value(a, 0, a.bytes, a.dtype, False) for size, a, _ in events if size > 0}
        views, others = set[Allocation](), set[Allocation]()
        seen: dict[int, Batch] = {}
        for batch in batches:
            if id(batch.uses) not in seen:
                for use in (use for uses in batch.uses for use in uses):
                    if not isinstance(use.memory, int):
                        (views if use.is_view else others).add(use.memory)
            # replays are alike: the first and the last stand for all
            seen[id(batch.uses)] = batch
            others.update(use.memory for use in batch.inputs if use and not isinstance(use.memory, int))
        # nothing but the planner makes bytes that are only used in parts
        self.planned: dict[Allocation, list[Value]] = {a: [] for a in views - others if a.dtype == "char"}
        firsts = {id(batch.uses): batch for batch in reversed(batches)}.values()
        for batch in {id(batch): batch for batch in (*firsts, *seen.values())}.values():
            self._place(batch)
        self.fullest = {a: find_most(map(self.span_of, values))[1] for a, values in self.planned.items()}
        self.at = self._find_launch()
        self._note_uses()

    def _place(self, batch: Batch) -> None:
        """Finds the values of a batch in the planner's memory: each begins with a write, and the next write to its
        memory ends it."""
        active: dict[Allocation, list[Value]] = defaultdict(list)
        for index, uses in enumerate(batch.uses):
            for use in uses:
                if isinstance(use.memory, int) or use.memory not in self.planned:
                    continue
                known = active[use.memory]
                found = [value for value in known if value.overlaps(use)]
                if use.writes or not found:
                    found = [Value(use.memory, use.offset, use.bytes, use.dtype, True)]
                    known[:] = [value for value in known if not value.overlaps(use)] + found
                    self.planned[use.memory] += found
                for value in found:
                    value.note(batch, index, use.writes)

    def _find_launch(self) -> int:
        """Returns the launch during the peak at which the values in the planner's memory have the most bytes."""
        if not self.events:
            return 0
        start, end = self.times[self.top], self.launches
        if self.top + 1 < len(self.events):
            end = self.times[self.top + 1]
        spans = (self.span_of(value) for a in self.planned if self.has_memory(a) for value in self.planned[a])
        size, launch = find_most((max(a, start), min(b, end), size) for a, b, size in spans)
        return launch if size else min(start, max(self.launches - 1, 0))

    def _note_uses(self) -> None:
        """Notes which launches use whole allocations: of replays that do not run at the peak the first and last use."""
        indexes: dict[int, dict[Allocation | int, list[tuple[int, bool]]]] = {}
        for batch in self.batches:
            if id(batch.uses) not in indexes:
                found = indexes[id(batch.uses)] = defaultdict(list)
                for index, uses in enumerate(batch.uses):
                    for use in uses:
                        found[use.memory].append((index, use.writes))
            is_peak = batch.kind != "replay" or batch.launch <= self.at < batch.launch + len(batch.uses)
            for memory, noted in indexes[id(batch.uses)].items():
                if isinstance(memory, int):
                    given = batch.inputs[memory] if memory < len(batch.inputs) else None
                    if given is None or isinstance(given.memory, int):
                        continue
                    memory = given.memory
                if memory not in self.planned:
                    for index, writes in noted if is_peak else (noted[0], noted[-1]):
                        self.whole[memory].note(batch, index, writes)

    # *** launches

    def find_batch(self, launch: int) -> Batch | None:
        """Returns the schedule or replay that a launch belongs to; None if there is none."""
        place = bisect_right(self._starts, launch) - 1
        return self._launched[place] if place >= 0 and launch < self.launches else None

    def find_line(self, launch: int) -> str | None:
        """Returns the user's line that runs a launch, or reads before it."""
        return next((batch.line for batch in reversed(self.batches) if batch.launch <= launch), None)

    def find_source(self, use: Use, launch: int) -> Value | None:
        """Returns the value that a launch reads; None if unknown."""
        if isinstance(use.memory, int):
            return None
        values = (value for value in self.planned.get(use.memory, ()) if value.overlaps(use) and launch in value.used)
        return next(values, None) if use.memory in self.planned else self.whole[use.memory]

    # *** what has memory when

    def has_memory(self, memory: Allocation) -> bool:
        """Whether an allocation is a part of the peak."""
        return memory.born <= self.top and (memory.freed is None or memory.freed > self.top)

    def list_live(self) -> list[Value]:
        """Returns the values that have memory at the peak, the largest first; of the planner's memory the values that
        decide its size."""
        live = [value for memory, value in self.whole.items() if self.has_memory(memory) and memory not in self.planned]
        for memory, values in self.planned.items():
            if self.has_memory(memory):
                live += [value for value in values if value.used[0] <= self.fullest[memory] <= value.used[-1]]
        return sorted(live, key=lambda value: -value.bytes)

    def span_of(self, value: Value) -> Span:
        """Returns the launches in which a value of the planner has its memory, or the events in which another has."""
        if value.is_planned:
            return value.used[0], value.used[-1] + 1, value.bytes
        end = len(self.events) if value.memory.freed is None else value.memory.freed
        return value.memory.born, end, value.bytes

    def time_of(self, value: Value) -> int:
        """Returns the launch at which a value counts for the peak."""
        return self.fullest[value.memory] if value.is_planned else self.at

    def find_gap(self, value: Value) -> tuple[int, int] | None:
        """Returns the last launch before the peak and the first launch after it that use a value; None if it is used at
        the peak, or not again."""
        place = bisect_left(value.used, self.time_of(value))
        if place in (0, len(value.used)) or value.used[place] == self.time_of(value):
            return None
        return value.used[place - 1], value.used[place]

    # *** what if

    def without(self, value: Value, after: int, before: int | None = None) -> list[Span]:
        """Returns the spans of a value without memory after a launch, and until before another (None: never again)."""
        start, end, size = self.span_of(value)
        if value.is_planned:
            again = end if before is None else before
            return [(start, after + 1, size), (again, end, size)]
        again = end if before is None else bisect_left(self.times, before)
        return [(start, min(bisect_right(self.times, after), end), size), (again, end, size)]

    def until(self, value: Value, launch: int) -> Span:
        """Returns the span of a value that has its memory at least until a launch is done."""
        start, end, size = self.span_of(value)
        return start, max(end, launch + 1 if value.is_planned else bisect_right(self.times, launch)), size

    def find_peak(self, changed: Mapping[Value, Sequence[Span]]) -> int:
        """Returns the peak with other spans for some values. The planner's memory then has as much more than its values
        need as it has now."""
        spans: list[Span] = []
        for memory, whole in self.whole.items():
            start, end, size = self.span_of(whole)
            values = self.planned.get(memory, [])
            if not changed.keys().isdisjoint(values):
                needed, _ = find_most(map(self.span_of, values))
                spared, _ = find_most(span for v in values for span in changed.get(v, [self.span_of(v)]))
                spans.append((start, end, size - needed + spared))
            else:
                spans += changed.get(whole, [(start, end, size)])
        return find_most(spans)[0]
