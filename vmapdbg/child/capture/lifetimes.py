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
    use it, in order, and `written` the launches that write it."""

    memory: Allocation
    offset: int
    bytes: int
    dtype: str
    is_planned: bool
    used: list[int] = field(default_factory=list[int])
    written: list[int] = field(default_factory=list[int])

    def note(self, launch: int, writes: bool) -> None:
        self.used.append(launch)
        if writes:
            self.written.append(launch)

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
        # the bytes before each event, and at the end
        self.levels = list(accumulate((size for size, _, _ in events), initial=0))
        # the launch of each event, and of the end
        self.times = [*(launch for _, _, launch in events), launches]
        self.peak = max(self.levels)
        self.top = self.levels.index(self.peak) - 1
        self.whole = {a: Value(a, 0, a.bytes, a.dtype, False) for size, a, _ in events if size > 0}
        # a schedule or a read, or the replays of a captured call: their uses are the same list
        alike = defaultdict[int, list[Batch]](list)
        for batch in batches:
            alike[id(batch.uses)].append(batch)
        self.planned = self._find_shared([first for first, *_ in alike.values()])
        for first, *others in alike.values():
            # replays are alike: the first and the last stand for all
            for batch in (first, *others[-1:]):
                self._place(batch)
        self.fullest = {a: find_most(map(self.span_of, values))[1] for a, values in self.planned.items()}
        self.at = self._find_launch()
        noted = {key: _group_uses(first) for key, (first, *_) in alike.items()}
        for batch in batches:
            self._note_uses(batch, noted[id(batch.uses)])

    def _find_shared(self, different: Sequence[Batch]) -> dict[Allocation, list[Value]]:
        """Returns the allocations that the planner shares: nothing else makes bytes that are only used in parts."""
        views, others = set[Allocation | int](), set[Allocation | int]()
        for use in (use for batch in different for uses in batch.uses for use in uses):
            (views if use.is_view else others).add(use.memory)
        others.update(*(batch.inputs for batch in self.batches))
        return {a: [] for a in self.whole if a in views - others and a.dtype == "char"}

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
                    value.note(batch.launch + index, use.writes)

    def _find_launch(self) -> int:
        """Returns the launch during the peak at which the values in the planner's memory have the most bytes."""
        if not self.events:
            return 0
        start, end = self.times[self.top : self.top + 2]
        spans = (self.span_of(value) for a in self.planned if self.has_memory(a) for value in self.planned[a])
        size, launch = find_most((max(a, start), min(b, end), size) for a, b, size in spans)
        return launch if size else min(start, max(self.launches - 1, 0))

    def _note_uses(self, batch: Batch, noted: Mapping[Allocation | int, Sequence[tuple[int, bool]]]) -> None:
        """Notes which launches use whole allocations: of replays that do not run at the peak the first and last use."""
        is_peak = batch.kind != "replay" or batch.launch <= self.at < batch.launch + len(batch.uses)
        for known, found in noted.items():
            memory = batch.find_memory(known)
            if memory is not None and memory not in self.planned:
                for index, writes in found if is_peak else (found[0], found[-1]):
                    self.whole[memory].note(batch.launch + index, writes)

    # *** launches

    def find_batch(self, launch: int) -> Batch | None:
        """Returns the schedule or replay that a launch belongs to; None if there is none."""
        place = bisect_right(self._starts, launch) - 1
        return self._launched[place] if place >= 0 and launch < self.launches else None

    def find_line(self, launch: int) -> str | None:
        """Returns the user's line that runs a launch, or reads before it."""
        return next((batch.line for batch in reversed(self.batches) if batch.launch <= launch), None)

    def find_source(self, batch: Batch, use: Use, launch: int) -> Value | None:
        """Returns the value that a launch of a batch reads; None if unknown."""
        memory = batch.find_memory(use.memory)
        if memory not in self.planned:
            return memory and self.whole[memory]
        values = (value for value in self.planned[memory] if value.overlaps(use) and launch in value.used)
        return next(values, None)

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

    def find_gap(self, value: Value) -> tuple[int, int] | None:
        """Returns the last launch before the peak and the first launch after it that use a value; None if it is used at
        the peak, or not again."""
        at = self.fullest[value.memory] if value.is_planned else self.at
        place = bisect_left(value.used, at)
        if place in (0, len(value.used)) or value.used[place] == at:
            return None
        return value.used[place - 1], value.used[place]

    # *** what if

    def _count_events(self, launch: int) -> int:
        """Returns how many events happen before a launch is done."""
        return bisect_right(self.times, launch, hi=len(self.events))

    def without(self, value: Value, after: int, before: int | None = None) -> list[Span]:
        """Returns the spans of a value without memory after a launch, and until before another (None: never again)."""
        start, end, size = self.span_of(value)
        if not value.is_planned:
            after = self._count_events(after) - 1
            before = None if before is None else bisect_left(self.times, before)
        return [(start, min(after + 1, end), size), (end if before is None else before, end, size)]

    def until(self, value: Value, launch: int) -> Span:
        """Returns the span of a value that has its memory at least until a launch is done."""
        start, end, size = self.span_of(value)
        return start, max(end, launch + 1 if value.is_planned else self._count_events(launch)), size

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


def _group_uses(batch: Batch) -> dict[Allocation | int, list[tuple[int, bool]]]:
    """Maps what a batch uses to the indices of the launches that use it, and whether they write it."""
    noted = defaultdict[Allocation | int, list[tuple[int, bool]]](list)
    for index, uses in enumerate(batch.uses):
        for use in uses:
            noted[use.memory].append((index, use.writes))
    return noted
