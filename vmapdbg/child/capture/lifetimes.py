"""When values have memory, and the peak that results if some of them have less of it. Knows nothing of tinygrad."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain

from vmapdbg.child.listen.allocations import Allocations, MemoryLaunch, StoredValue, Use

Span = tuple[int, int, int]
"""From tick (included), until tick (excluded), and the bytes meanwhile."""


def find_most(spans: Iterable[Span]) -> tuple[int, int]:
    """Returns the most bytes of some spans at a time, and the first tick with them."""
    changes = defaultdict[int, int](int)
    for start, end, size in spans:
        if start < end:
            changes[start] += size
            changes[end] -= size
    ticks = sorted(changes)
    levels = list(accumulate(changes[tick] for tick in ticks))
    most = max(levels, default=0)
    return most, ticks[levels.index(most)] if levels else 0


def span_without(value: StoredValue, after: int, before: int | None = None) -> list[Span]:
    """Returns the spans of a value without memory after a launch, and until before another (None: never again)."""
    start, end, size = value.span
    return [(start, after + 1, size), (end if before is None else before, end, size)]


class Lifetimes:
    """All `values` of a run. The `peak` (bytes) is at tick `top`; launch `at` (None without launches) then uses most of
    the planner's memory. `planned`: values in each planned Buffer; `fullest`: the tick that decides its size."""

    def __init__(self, watched: Allocations) -> None:
        self.levels, self.launches, self._buffers = watched.levels, watched.launches, watched.values
        self.peak = max(self.levels)
        self.top = self.levels.index(self.peak)
        self.planned: dict[StoredValue, list[StoredValue]] = {value: [] for value in watched.values if value.is_shared}
        self.sources: dict[int, list[StoredValue]] = defaultdict(list)  # the values that a launch reads, by its number
        active: dict[StoredValue, list[StoredValue]] = defaultdict(list)
        for launch in self.launches:
            for use in launch.uses:
                found = [use.value]
                if use.value in self.planned:
                    # the replays of a captured call are alike: in the planner's memory the first stands for all
                    found = [] if launch.is_repeated else self._place(active[use.value], use, launch.tick)
                for value in found:
                    value.note(launch, use.writes)
                self.sources[launch.number] += [] if use.writes else found
        whole = (value for value in watched.values if value not in self.planned)
        self.values = [*whole, *chain.from_iterable(self.planned.values())]
        self.fullest = {arena: find_most(v.span for v in values)[1] for arena, values in self.planned.items()}
        self.at = self._find_launch()
        self.tick = self.top if self.at is None else self.at.tick

    def _place(self, active: list[StoredValue], use: Use, tick: int) -> list[StoredValue]:
        """Returns the values in a use of the planner's memory: a value lasts from a write to the next write there."""
        found = [value for value in active if value.overlaps(use)]
        if use.writes or not found:
            arena = use.value
            made = StoredValue(arena.buffer, use.bytes, arena.device, use.dtype, arena.line, False, tick)
            made.offset, made.arena = use.offset, arena
            active[:] = [value for value in active if value not in found] + [made]
            self.planned[arena].append(made)
            found = [made]
        return found

    def _find_launch(self) -> MemoryLaunch | None:
        """Returns the launch during the peak at which the values in the planner's memory have the most bytes."""
        levels = enumerate(self.levels[self.top :], self.top)
        end = next((tick for tick, level in levels if level < self.peak), len(self.levels))
        parts = (value for value in self.values if value.arena is not None and self.has_memory(value.arena))
        size, tick = find_most((max(v.start, self.top), min(v.end, end), v.bytes) for v in parts)
        number = self.count_launches(tick if size else self.top)
        return next(iter(self.launches[number : number + 1] or self.launches[-1:]), None)

    def count_launches(self, tick: int) -> int:
        """Returns how many launches there are before a tick."""
        return bisect_left(self.launches, tick, key=lambda launch: launch.tick)

    # *** what has memory when

    def measure_live(self) -> list[int]:
        """Returns the bytes of all values at each tick, without what the planner's memory holds for no value."""
        changes = [0] * (len(self.levels) + 1)
        for value in self.values:
            changes[min(value.start, len(self.levels))] += value.bytes
            changes[min(value.end, len(self.levels))] -= value.bytes
        return list(accumulate(changes))

    def has_memory(self, value: StoredValue) -> bool:
        """Whether a value is a part of the peak: in the planner's memory, if it decides the size of that."""
        if value.arena is not None and not self.has_memory(value.arena):
            return False
        moment = self.top if value.arena is None else self.fullest[value.arena]
        return value.start <= moment < value.end

    def list_live(self) -> list[StoredValue]:
        """Returns the values that have memory at the peak, the largest first."""
        return sorted(filter(self.has_memory, self.values), key=lambda value: -value.bytes)

    def find_gap(self, value: StoredValue) -> tuple[int, int] | None:
        """Returns the last use before the peak and the first after it; None if used at the peak, or not again."""
        at = self.tick if value.arena is None else self.fullest[value.arena]
        touched = value.touched
        place = bisect_left(touched, at)
        if place in (0, len(touched)) or touched[place] == at:
            return None
        return touched[place - 1], touched[place]

    def find_peak(self, changed: Mapping[StoredValue, Sequence[Span]]) -> int:
        """Returns the peak with other spans for some values. The unused part of the planner's memory stays as large."""
        spans: list[Span] = []
        for buffer in self._buffers:
            values = self.planned.get(buffer, [])
            if changed.keys().isdisjoint(values):
                spans += changed.get(buffer, [buffer.span])
            else:
                needed, _ = find_most(value.span for value in values)
                spared, _ = find_most(span for value in values for span in changed.get(value, [value.span]))
                spans.append((buffer.start, buffer.end, buffer.bytes - needed + spared))
        return find_most(spans)[0]
