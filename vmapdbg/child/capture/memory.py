"""The Memory of the model, from the recorded allocations and launches, and changes that would lower its peak. Runs in
the child."""

import functools
import gc
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from types import FunctionType, MethodType, ModuleType
from typing import Any

from vmapdbg.child.capture.lifetimes import Lifetimes, Span, span_without
from vmapdbg.child.capture.view import PassView
from vmapdbg.child.listen.allocations import Allocations, MemoryLaunch, MemoryPart, StoredValue
from vmapdbg.child.listen.guard import leaving_out
from vmapdbg.child.listen.records import ScheduleRecord
from vmapdbg.model import capture as model
from vmapdbg.model.schedule_index import group_equal
from vmapdbg.model.wording import join_first

_MOST_LIVE, _MOST_SHARES, _MOST_POINTS = 100, 4, 200
_MOST_NAMED, _LONGEST_PATH = 100_000, 12
_CLOSED = (ModuleType, FunctionType, MethodType, type, str, bytes, int, float)
_MOST_ADVICE, _MOST_OF_KIND = 5, 2
_LEAST_SHARE = 0.01  # advice saves at least this share of the peak
_MOST_HOLDERS = 2
Line = str | None
Change = Callable[[StoredValue], list[Span]]
"""Returns the spans that a value has after a change; nothing if the value cannot be changed."""


class MemoryBuilder:
    """Builds the Memory of a run that ended, and says where values come from. `built` are the recorded schedules."""

    def __init__(self, watched: Allocations, records: Sequence[ScheduleRecord], built: Sequence[model.Schedule]):
        self.watched, self.records, self.built = watched, records, built
        self.times = Lifetimes(watched)
        self.view_of = functools.cache(PassView)
        self.find_value = functools.cache(self._find_value)
        self.holders = Holders(vars(sys.modules["__main__"]))

    def add_memory(self, capture: model.Capture) -> model.Capture:
        """Returns the capture with the memory of the run, and the bytes that values have while each kernel runs."""
        peaks, live = dict[tuple[int | None, int | None], int](), self.times.measure_live()
        for launch in self.times.launches:
            place = self.place_launch(launch)
            key = place.schedule, place.kernel
            peaks[key] = max(peaks.get(key, 0), live[launch.tick])
        schedules = (
            replace(one, kernels=tuple(replace(k, peak=peaks.get((one.index, i))) for i, k in enumerate(one.kernels)))
            for one in capture.schedules
        )
        return replace(capture, schedules=tuple(schedules), memory=self.build())

    def build(self) -> model.Memory | None:
        """Returns None if no memory was allocated."""
        times = self.times
        live = times.list_live()
        if not live:
            return None
        shown, rest = live[:_MOST_LIVE], live[_MOST_LIVE:]
        return model.Memory(
            peak=times.peak,
            at=model.LaunchPlace(0, None, None) if times.at is None else self.place_launch(times.at),
            line=shown[0].line if times.at is None else times.at.line,
            launches=len(times.launches),
            timeline=self.thin(),
            live=tuple(map(self.describe, shown)),
            rest=len(rest),
            rest_bytes=sum(value.bytes for value in rest),
            unused=times.peak - sum(value.bytes for value in live),
            parts=tuple(self.list_parts()),
            advice=tuple(Adviser(self, live).advise()),
        )

    def read_pass(self, schedule: int) -> PassView:
        """Returns the pass of a schedule."""
        passed = self.records[schedule].passed
        assert passed is not None, "a schedule with a launch has a pass"
        return self.view_of(passed)

    # *** values

    def place_launch(self, launch: MemoryLaunch) -> model.LaunchPlace:
        if launch.place is None:
            return model.LaunchPlace(launch.number, None, None)
        schedule, index = launch.place
        return model.LaunchPlace(launch.number, schedule, self.read_pass(schedule).numbers[index])

    def place_first(self, launches: Sequence[MemoryLaunch]) -> model.LaunchPlace | None:
        return self.place_launch(launches[0]) if launches else None

    def _find_value(self, value: StoredValue) -> model.Placement:
        launch = value.written[0] if value.written else None
        if launch is None or launch.place is None:
            return model.Placement(None, None, value.line if launch is None else launch.line, value.bytes)
        schedule, index = launch.place
        view = self.read_pass(schedule)
        node = view.passed.kernels[index].node
        origin = view.passed.origins.get(node)
        line = self.records[schedule].line if origin is None else origin.line
        return model.Placement(schedule, view.ids.get(node), line, value.bytes)

    def describe(self, value: StoredValue) -> model.LiveBuffer:
        writer = self.place_first(value.written)
        kind = "kernel"
        if writer is None:
            kind = "data" if value.is_data or not value.touched else "empty"
        elif writer.schedule is not None and writer.kernel is None:
            kind = "copy"
        others = self.times.planned[value.arena] if value.arena is not None else []
        shares = [one for one in others if one is not value and one.overlaps(value)]
        until = self.times.count_launches(value.end)
        return model.LiveBuffer(
            kind=kind,
            value=self.find_value(value),
            device=value.device,
            dtype=value.dtype,
            name=" ".join(self.holders.names_of(value)[:1]),
            first=self.place_first(value.used),
            last=self.place_first(value.used[-1:]),
            since=self.times.count_launches(value.start),
            until=until if value.arena is None else until - 1,
            is_planned=value.arena is not None,
            shares=tuple(map(self.find_value, shares[:_MOST_SHARES])),
            others=len(shares),
        )

    def count_ops(self, value: StoredValue) -> int:
        """Returns the ops of the kernel that computes a value; 0 if unknown."""
        place = self.place_first(value.written)
        if place is None or place.schedule is None or place.kernel is None:
            return 0
        kernels = self.built[place.schedule].kernels[place.kernel :]
        return kernels[0].executed_ops // max(kernels[0].launches, 1) if kernels else 0

    # *** the run

    def thin(self) -> tuple[tuple[int, int], ...]:
        """Returns the most bytes from each of some launches until the next of these."""
        levels, launches = self.times.levels, self.times.launches
        numbers = range(0, len(launches) or 1, math.ceil(len(launches) / _MOST_POINTS) or 1)
        # the memory for a launch is allocated after the launch before it
        bounds = [0, *(launches[number - 1].tick + 1 for number in numbers[1:]), len(levels)]
        return tuple(zip(numbers, (max(levels[start:end]) for start, end in pairwise(bounds)), strict=True))

    def list_parts(self) -> list[model.PartPeak]:
        """Returns the peaks of schedules and calls, the highest first; equal ones once."""
        alike = defaultdict[Any, list[MemoryPart]](list)
        for part in self.watched.parts:
            passed = None if part.schedule is None else self.records[part.schedule].passed
            alike[passed or (part.name, part.line, part.call)].append(part)
        peaks: list[model.PartPeak] = []
        for parts in alike.values():
            first = parts[0]
            # from the level that it begins with
            most = max(max(self.times.levels[one.first - 1 : one.end]) for one in parts)
            peaks.append(model.PartPeak(first.name, first.line, len(parts), most, first.schedule, first.call))
        return sorted(peaks, key=lambda part: -part.bytes)


class Holders:
    """What holds a Buffer (by id) at the end: globals, also in collections and objects (`model.layers.0.weight`)."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        # Tensors with this memory, and Tensors still to be computed from it
        self._names: dict[int, list[str]] = defaultdict(list)
        self._lazy: dict[int, list[str]] = defaultdict(list)
        with leaving_out("what holds the memory"):
            self._walk([(name, value) for name, value in variables.items() if name[:2] != "__"])

    def names_of(self, value: StoredValue, lazy: bool = False) -> list[str]:
        """Returns the Tensors that hold a value; the `lazy` ones still have to be computed from it."""
        return (self._lazy if lazy else self._names).get(id(value.buffer()), [])

    def _walk(self, waiting: list[tuple[str, Any]]) -> None:
        from tinygrad.tensor import Tensor

        seen: set[int] = set()
        for path, value in waiting:
            is_known = id(value) in seen and not isinstance(value, Tensor)
            if is_known or isinstance(value, _CLOSED) or len(waiting) > _MOST_NAMED or path.count(".") > _LONGEST_PATH:
                continue
            seen.add(id(value))
            items = getattr(value, "__dict__", {})
            if isinstance(value, Tensor):
                self._add(path, value.uop)
                items = {"grad": value.grad}
            elif isinstance(value, (dict, list, tuple)):
                items = value if isinstance(value, dict) else dict(enumerate(value))
            waiting += [(f"{path}.{name}", one) for name, one in items.items() if one is not None]

    def _add(self, path: str, uop: Any) -> None:
        memories, found = [uop.base], self._names
        if uop.base.op.name != "BUFFER":
            memories, found = [u for u in uop.toposort() if u.op.name == "BUFFER"], self._lazy
        held = (memory.buffer for memory in memories if memory.is_realized)
        for part in chain.from_iterable(getattr(buffer, "bufs", [buffer]) for buffer in held):
            found[id(part.base)].append(path)


# *** advice


class Adviser:
    """Looks for changes at the values that are `live` at the peak. A change of a line concerns all values of that size
    that the line makes during the run: the next step may have the same peak."""

    def __init__(self, builder: MemoryBuilder, live: Sequence[StoredValue]) -> None:
        self.builder, self.times, self.holders, self.live = builder, builder.times, builder.holders, live

    def advise(self) -> list[model.MemoryAdvice]:
        """Returns the changes that lower the peak most."""
        found: list[model.MemoryAdvice] = []
        for values in group_equal(filter(self.times.find_gap, self.live), self.line_of):
            found += self.judge("recompute", values, self.recompute)
        floats = [value for value in self.live if value.dtype == "float" and value.written]
        for values in group_equal(floats, self.line_of):
            found += self.judge("half", values, lambda value: [(value.start, value.end, value.bytes // 2)])
        dead = [one for one in self.live if one.arena is None and one.used and one.touched[-1] < self.times.tick]
        # no Tensor of the program has these: lazy Tensors hold them, as gradients do after a backward pass
        nameless = [value for value in dead if not self.holders.names_of(value)]
        lazy = chain.from_iterable(self.holders.names_of(value, lazy=True) for value in self.list_alike(nameless))
        found += self.judge("free", nameless, self.drop, join_first(list(dict.fromkeys(lazy)), _MOST_HOLDERS))
        large = (value for value in dead if value.bytes >= _LEAST_SHARE * self.times.peak)
        found += filter(None, map(self.advise_delete, large))
        least = self.times.peak * (1 - _LEAST_SHARE)
        chosen: list[model.MemoryAdvice] = []
        for advice in sorted(found, key=lambda advice: (advice.peak, advice.ops)):
            if advice.peak <= least and sum(one.kind == advice.kind for one in chosen) < _MOST_OF_KIND:
                chosen.append(advice)
        return chosen[:_MOST_ADVICE]

    def line_of(self, value: StoredValue) -> Line:
        return self.builder.find_value(value).line

    def list_alike(self, values: Sequence[StoredValue]) -> list[StoredValue]:
        """Returns all values of the run that are like some live values."""
        keys = {(self.line_of(value), value.bytes) for value in values}
        return [one for one in self.times.values if one.used and (self.line_of(one), one.bytes) in keys]

    def judge(self, kind: Any, live: Sequence[StoredValue], change: Change, name: str = "") -> list[model.MemoryAdvice]:
        """Returns the advice to change some live values and what is like them; nothing if none can be changed."""
        possible = [value for value in live if change(value)]
        changed = {value: spans for value in self.list_alike(possible) if (spans := change(value))}
        if not possible:
            return []
        ops = sum(map(self.builder.count_ops, possible)) if kind == "recompute" else 0
        line = None if kind == "free" else self.line_of(live[0])
        size = sum(value.bytes for value in possible)
        return [model.MemoryAdvice(kind, line, name, len(possible), size, self.times.find_peak(changed), ops)]

    def recompute(self, value: StoredValue) -> list[Span]:
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

    def drop(self, value: StoredValue) -> list[Span]:
        """Has the planner free a value after its last use, in the schedule that computes it."""
        return [] if self.holders.names_of(value) else span_without(value, value.touched[-1])

    def advise_delete(self, value: StoredValue) -> model.MemoryAdvice | None:
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
        return model.MemoryAdvice("free", line, ", ".join(sorted(names)), 1, value.bytes, peak)
