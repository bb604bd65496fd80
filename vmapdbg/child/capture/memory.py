"""The Memory of the model, from the recorded allocations and launches. Runs in the child."""

from __future__ import annotations

import functools
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import FunctionType, MethodType, ModuleType
from typing import Any

from vmapdbg.child.capture.lifetimes import Lifetimes
from vmapdbg.child.capture.memory_advice import Adviser
from vmapdbg.child.capture.view import list_nodes
from vmapdbg.child.listen.allocations import Allocations, MemoryLaunch, MemoryPart, Value
from vmapdbg.child.listen.guard import leaving_out
from vmapdbg.child.listen.records import PassRecord, ScheduleRecord, number_kernels
from vmapdbg.model import capture as model

_MOST_LIVE, _MOST_SHARES, _MOST_POINTS = 100, 4, 200
_MOST_NAMED, _LONGEST_PATH = 100_000, 12
_CLOSED = (ModuleType, FunctionType, MethodType, type, str, bytes, int, float)


class MemoryBuilder:
    """Builds the Memory of a run that ended, and says where values come from. `built` are the recorded schedules."""

    def __init__(
        self, watched: Allocations, records: Sequence[ScheduleRecord], built: Sequence[model.Schedule]
    ) -> None:
        self.watched, self.records, self.built = watched, records, built
        self.times = Lifetimes(watched)
        self.known: dict[PassRecord, tuple[dict[Any, int], list[int | None]]] = {}
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

    def read_pass(self, schedule: int) -> tuple[PassRecord, dict[Any, int], list[int | None]]:
        """Returns the pass of a schedule, the ids of its nodes, and the numbers of the kernels of its launches."""
        passed = self.records[schedule].passed
        assert passed is not None, "a schedule with a launch has a pass"
        if passed not in self.known:
            ids = {u: number for number, u in enumerate(list_nodes(passed))}
            self.known[passed] = ids, number_kernels(passed.kernels)
        return passed, *self.known[passed]

    # *** values

    def place_launch(self, launch: MemoryLaunch) -> model.LaunchPlace:
        if launch.place is None:
            return model.LaunchPlace(launch.number, None, None)
        schedule, index = launch.place
        return model.LaunchPlace(launch.number, schedule, self.read_pass(schedule)[2][index])

    def place_first(self, launches: Sequence[MemoryLaunch]) -> model.LaunchPlace | None:
        return self.place_launch(launches[0]) if launches else None

    def _find_value(self, value: Value) -> model.Placement:
        if not value.written:
            return model.Placement(None, None, value.line, value.bytes)
        launch = value.written[0]
        if launch.place is None:
            return model.Placement(None, None, launch.line, value.bytes)
        schedule, index = launch.place
        passed, ids, _ = self.read_pass(schedule)
        node = passed.kernels[index].node
        origin = passed.origins.get(node)
        line = self.records[schedule].line if origin is None else origin.line
        return model.Placement(schedule, ids.get(node), line, value.bytes)

    def describe(self, value: Value) -> model.LiveBuffer:
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

    def count_ops(self, value: Value) -> int:
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
        for first, *others in alike.values():
            # from the level that it begins with
            most = max(max(self.times.levels[one.first - 1 : one.end]) for one in (first, *others))
            peaks.append(model.PartPeak(first.name, first.line, 1 + len(others), most, first.schedule, first.call))
        return sorted(peaks, key=lambda part: -part.bytes)


class Holders:
    """What holds a Buffer (by id) at the end: globals, also in collections and objects (`model.layers.0.weight`)."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        # Tensors with this memory, and Tensors still to be computed from it
        self._names: dict[int, list[str]] = defaultdict(list)
        self._lazy: dict[int, list[str]] = defaultdict(list)
        with leaving_out("what holds the memory"):
            self._walk([(name, value) for name, value in variables.items() if name[:2] != "__"])

    def names_of(self, value: Value) -> list[str]:
        """Returns the Tensors that hold a value."""
        return self._names.get(id(value.buffer()), [])

    def lazy_of(self, value: Value) -> list[str]:
        """Returns the Tensors that still have to be computed from a value."""
        return self._lazy.get(id(value.buffer()), [])

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
            elif isinstance(value, dict):
                items = value
            elif isinstance(value, (list, tuple)):
                items = dict(enumerate(value))
            waiting += [(f"{path}.{name}", one) for name, one in items.items() if one is not None]

    def _add(self, path: str, uop: Any) -> None:
        memories, found = [uop.base], self._names
        if uop.base.op.name != "BUFFER":
            memories, found = [u for u in uop.toposort() if u.op.name == "BUFFER"], self._lazy
        for memory in memories:
            if memory.is_realized:
                for part in getattr(memory.buffer, "bufs", [memory.buffer]):
                    found[id(part.base)].append(path)
