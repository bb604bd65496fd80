"""The Memory of the model, from the recorded allocations and launches. Runs in the child."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import FunctionType, MethodType, ModuleType
from typing import Any

from vmapdbg.child.capture.lifetimes import Lifetimes, Value
from vmapdbg.child.capture.memory_advice import Adviser
from vmapdbg.child.capture.view import list_nodes
from vmapdbg.child.listen.allocations import Allocations
from vmapdbg.child.listen.guard import leaving_out
from vmapdbg.child.listen.records import PassRecord, ScheduleRecord, number_kernels
from vmapdbg.model import capture as model

_MOST_LIVE, _MOST_SHARES, _MOST_POINTS = 100, 4, 200
_MOST_NAMED, _LONGEST_PATH = 100_000, 12
_CLOSED = (ModuleType, FunctionType, MethodType, type, str, bytes, int, float)


def build_memory(watched: Allocations, records: Sequence[ScheduleRecord], built: Sequence[model.Schedule]) -> Any:
    """Returns the Memory of a run that ended; None if no memory was allocated. `built` are the recorded schedules."""
    if not watched.events:
        return None
    times = Lifetimes(watched.events, watched.batches, watched.launches)
    return MemoryBuilder(watched, times, records, built).build()


class MemoryBuilder:
    """Builds the Memory of the model, and says where values come from."""

    def __init__(
        self, watched: Allocations, times: Lifetimes, records: Sequence[ScheduleRecord], built: Sequence[model.Schedule]
    ) -> None:
        self.watched, self.times, self.records, self.built = watched, times, records, built
        self.known: dict[int, tuple[dict[Any, int], list[int | None]]] = {}
        self.holders = Holders(vars(sys.modules["__main__"]))

    def build(self) -> model.Memory:
        times = self.times
        live = times.list_live()
        shown, rest = live[:_MOST_LIVE], live[_MOST_LIVE:]
        sizes = sum(value.bytes for value in live)
        batch = self.times.find_batch(times.at)
        return model.Memory(
            peak=times.peak,
            at=self.place_launch(times.at),
            line=batch.line if batch is not None else shown[0].memory.line,
            launches=times.launches,
            timeline=self.thin(),
            live=tuple(map(self.describe, shown)),
            rest=len(rest),
            rest_bytes=sum(value.bytes for value in rest),
            unused=times.peak - sizes,
            parts=tuple(self.list_parts()),
            advice=tuple(Adviser(self, live).advise()),
        )

    # *** launches

    def place_launch(self, launch: int) -> model.LaunchPlace:
        batch = self.times.find_batch(launch)
        place = None
        if batch is not None and launch - batch.launch < len(batch.places):
            place = batch.places[launch - batch.launch]
        if place is None:
            return model.LaunchPlace(launch, None, None)
        _, kernels = self.read_pass(place[0])
        return model.LaunchPlace(launch, place[0], kernels[place[1]])

    def read_pass(self, schedule: int) -> tuple[dict[Any, int], list[int | None]]:
        """Returns the ids of the nodes of a schedule, and the numbers of the kernels of its launches."""
        passed = self.pass_of(schedule)
        if id(passed) not in self.known:
            ids = {u: number for number, u in enumerate(list_nodes(passed))}
            self.known[id(passed)] = ids, number_kernels(passed.kernels)
        return self.known[id(passed)]

    def pass_of(self, schedule: int) -> PassRecord:
        passed = self.records[schedule].passed
        assert passed is not None, "a schedule with a launch has a pass"
        return passed

    # *** values

    def find_place(self, value: Value) -> tuple[int, int] | None:
        """Returns the schedule and the launch that write a value first; None if unknown."""
        if value.writer is None or value.writer[1] >= len(value.writer[0].places):
            return None
        return value.writer[0].places[value.writer[1]]

    def find_value(self, value: Value) -> model.Placement:
        place = self.find_place(value)
        if place is None:
            line = value.writer[0].line if value.writer is not None else value.memory.line
            return model.Placement(None, None, line, value.bytes)
        passed, (ids, _) = self.pass_of(place[0]), self.read_pass(place[0])
        node = passed.kernels[place[1]].node
        origin = passed.origins.get(node)
        line = self.records[place[0]].line if origin is None else origin.line
        return model.Placement(place[0], ids.get(node), line, value.bytes)

    def describe(self, value: Value) -> model.LiveBuffer:
        kind, memory = "kernel", value.memory
        if self.find_place(value) is not None and not self.is_computed(value):
            kind = "copy"
        elif value.writer is None:
            kind = "data" if memory.is_data or not value.used else "empty"
        since, until = self.times.times[memory.born], self.times.launches
        if memory.freed is not None:
            until = self.times.times[memory.freed]
        shares: list[Value] = []
        if value.is_planned:
            since, until = value.used[0], value.used[-1]
            # of the same schedule: the values of the other schedules have this memory, too
            values = self.times.planned[memory]
            shares = [v for v in values if v is not value and v.overlaps(value) and self.is_same_batch(v, value)]
        return model.LiveBuffer(
            kind=kind,
            value=self.find_value(value),
            device=memory.device,
            dtype=value.dtype,
            name=" ".join(self.holders.names.get(id(memory.buffer()), [])[:1]),
            first=self.place_launch(value.used[0]) if value.used else None,
            last=self.place_launch(value.used[-1]) if value.used else None,
            since=since,
            until=until,
            is_planned=value.is_planned,
            shares=tuple(map(self.find_value, shares[:_MOST_SHARES])),
            others=len(shares),
        )

    @staticmethod
    def is_same_batch(one: Value, other: Value) -> bool:
        return None not in (one.writer, other.writer) and one.writer[0] is other.writer[0]  # type: ignore[index]

    def is_computed(self, value: Value) -> bool:
        """Whether a kernel that is known computes a value."""
        place = self.find_place(value)
        return place is not None and self.pass_of(place[0]).kernels[place[1]].is_compute

    def count_ops(self, value: Value) -> int:
        """Returns the ops of the kernel that computes a value; 0 if unknown."""
        place = self.find_place(value)
        number = place and self.read_pass(place[0])[1][place[1]]
        if place is None or number is None or number >= len(self.built[place[0]].kernels):
            return 0
        kernel = self.built[place[0]].kernels[number]
        return kernel.executed_ops // max(kernel.launches, 1)

    # *** the run

    def thin(self) -> tuple[tuple[int, int], ...]:
        times = self.times
        width = max(math.ceil(times.launches / _MOST_POINTS), 1)
        most: dict[int, int] = {}
        level = 0
        for now, launch in zip(times.levels, times.times, strict=True):
            # the level before the event holds until its launch
            most.setdefault(launch // width, level)
            most[launch // width] = max(most[launch // width], now)
            most[(launch + 1) // width] = max(most.get((launch + 1) // width, 0), now)
            level = now
        return tuple((place * width, size) for place, size in sorted(most.items()) if place * width <= times.launches)

    def peak_between(self, first: int, last: int) -> int:
        levels = [0, *self.times.levels]
        return max(levels[first : last + 1])

    def list_parts(self) -> list[model.PartPeak]:
        """Returns the peaks of schedules and calls, the highest first; equal ones once."""
        found: dict[Any, model.PartPeak] = {}
        parts: list[tuple[Any, model.PartPeak]] = []
        for batch in self.watched.batches:
            place = next(filter(None, batch.places), None)
            if batch.kind == "schedule" and place is not None:
                size = self.peak_between(batch.first, batch.last)
                parts.append((id(self.pass_of(place[0])), model.PartPeak("", batch.line, 1, size, schedule=place[0])))
        for step in self.watched.steps:
            call, size = min(step.call, 2), self.peak_between(step.first, step.last)
            parts.append(((step.name, step.line, call), model.PartPeak(step.name, step.line, 1, size, call=call)))
        for key, part in parts:
            known = found.get(key, part)
            times = known.times + (known is not part)
            found[key] = replace(known, times=times, bytes=max(known.bytes, part.bytes))
        return sorted(found.values(), key=lambda part: -part.bytes)


class Holders:
    """What holds memory at the end of a run. `names` has the Tensors with memory in the snippet's globals, also in
    lists, dicts and objects, by the id of the Buffer: `x`, `model.layers.0.weight`. `lazy` has there the Tensors whose
    value still has to be computed from it."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self.names: dict[int, list[str]] = defaultdict(list)
        self.lazy: dict[int, list[str]] = defaultdict(list)
        waiting: list[tuple[str, Any]] = [(name, value) for name, value in variables.items() if name[:2] != "__"]
        with leaving_out("what holds the memory"):
            self._walk(waiting)

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
        memories, found = [uop.base], self.names
        if uop.base.op.name != "BUFFER":
            memories, found = [u for u in uop.toposort() if u.op.name == "BUFFER"], self.lazy
        for memory in memories:
            if memory.is_realized:
                for part in getattr(memory.buffer, "bufs", [memory.buffer]):
                    found[id(part.base)].append(path)
