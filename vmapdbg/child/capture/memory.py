"""The Memory of the model, from the recorded allocations and launches. Runs in the child."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import FunctionType, MethodType, ModuleType
from typing import Any

from vmapdbg.child.capture.lifetimes import Lifetimes, Value
from vmapdbg.child.capture.memory_advice import Adviser
from vmapdbg.child.capture.view import list_nodes
from vmapdbg.child.listen.allocations import Allocations, Batch, Place, Step
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
        self.times = Lifetimes(watched.events, watched.batches, watched.launches)
        self.known: dict[int, tuple[dict[Any, int], list[int | None]]] = {}
        self.holders = Holders(vars(sys.modules["__main__"]))

    def build(self) -> model.Memory | None:
        """Returns None if no memory was allocated."""
        times = self.times
        if not times.events:
            return None
        live = times.list_live()
        shown, rest = live[:_MOST_LIVE], live[_MOST_LIVE:]
        sizes = sum(value.bytes for value in live)
        batch = times.find_batch(times.at)
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

    def find_place(self, launch: int) -> Place | None:
        """Returns the schedule and the number of a launch in it; None if unknown."""
        batch = self.times.find_batch(launch)
        if batch is None or launch - batch.launch >= len(batch.places):
            return None
        return batch.places[launch - batch.launch]

    def place_launch(self, launch: int) -> model.LaunchPlace:
        place = self.find_place(launch)
        if place is None:
            return model.LaunchPlace(launch, None, None)
        return model.LaunchPlace(launch, place[0], self.read_pass(place[0])[1][place[1]])

    def place_first(self, launches: Sequence[int]) -> model.LaunchPlace | None:
        return self.place_launch(launches[0]) if launches else None

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

    def find_value(self, value: Value) -> model.Placement:
        if not value.written:
            return model.Placement(None, None, value.memory.line, value.bytes)
        place, batch = self.find_place(value.written[0]), self.times.find_batch(value.written[0])
        if place is None:
            return model.Placement(None, None, batch and batch.line, value.bytes)
        passed, (ids, _) = self.pass_of(place[0]), self.read_pass(place[0])
        node = passed.kernels[place[1]].node
        origin = passed.origins.get(node)
        line = self.records[place[0]].line if origin is None else origin.line
        return model.Placement(place[0], ids.get(node), line, value.bytes)

    def describe(self, value: Value) -> model.LiveBuffer:
        times, memory, writer = self.times, value.memory, self.place_first(value.written)
        kind = "kernel"
        if writer is None:
            kind = "data" if memory.is_data or not value.used else "empty"
        elif writer.schedule is not None and writer.kernel is None:
            kind = "copy"
        shares = self.list_shares(value)
        since, until, _ = times.span_of(value)
        return model.LiveBuffer(
            kind=kind,
            value=self.find_value(value),
            device=memory.device,
            dtype=value.dtype,
            name=" ".join(self.holders.names_of(value)[:1]),
            first=self.place_first(value.used),
            last=self.place_first(value.used[-1:]),
            since=since if value.is_planned else times.times[since],
            until=until - 1 if value.is_planned else times.times[until],
            is_planned=value.is_planned,
            shares=tuple(map(self.find_value, shares[:_MOST_SHARES])),
            others=len(shares),
        )

    def list_shares(self, value: Value) -> list[Value]:
        """Returns the other values of its schedule that have memory of a planned value at another time."""
        if not value.is_planned or not value.written:
            return []
        batch = self.times.find_batch(value.written[0])
        others = (one for one in self.times.planned[value.memory] if one is not value and one.overlaps(value))
        return [one for one in others if one.written and self.times.find_batch(one.written[0]) is batch]

    def count_ops(self, value: Value) -> int:
        """Returns the ops of the kernel that computes a value; 0 if unknown."""
        place = self.place_first(value.written)
        if place is None or place.schedule is None or place.kernel is None:
            return 0
        kernels = self.built[place.schedule].kernels[place.kernel :]
        return kernels[0].executed_ops // max(kernels[0].launches, 1) if kernels else 0

    # *** the run

    def thin(self) -> tuple[tuple[int, int], ...]:
        times = self.times
        width = max(math.ceil(times.launches / _MOST_POINTS), 1)
        most: dict[int, int] = {}
        for (before, now), launch in zip(pairwise(times.levels), times.times, strict=False):
            # the level before the event holds until its launch
            most.setdefault(launch // width, before)
            for place in (launch // width, (launch + 1) // width):
                most[place] = max(most.get(place, 0), now)
        return tuple((place * width, size) for place, size in sorted(most.items()) if place * width <= times.launches)

    def peak_of(self, part: Batch | Step) -> int:
        return max(self.times.levels[part.first : part.last + 1])

    def list_parts(self) -> list[model.PartPeak]:
        """Returns the peaks of schedules and calls, the highest first; equal ones once."""
        parts = defaultdict[Any, list[model.PartPeak]](list)
        for batch in self.watched.batches:
            place = next(filter(None, batch.places), None)
            if batch.kind == "schedule" and place is not None:
                part = model.PartPeak("", batch.line, 1, self.peak_of(batch), schedule=place[0])
                parts[id(self.pass_of(place[0]))].append(part)
        for step in self.watched.steps:
            part = model.PartPeak(step.name, step.line, 1, self.peak_of(step), call=min(step.call, 2))
            parts[step.name, step.line, part.call].append(part)
        peaks = (replace(same[0], times=len(same), bytes=max(one.bytes for one in same)) for same in parts.values())
        return sorted(peaks, key=lambda part: -part.bytes)


class Holders:
    """What holds memory at the end of a run, by the id of the Buffer: Tensors in the snippet's globals, also in lists,
    dicts and objects (`x`, `model.layers.0.weight`). `names` has the Tensors with this memory, `lazy` the Tensors whose
    value still has to be computed from it."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self.names: dict[int, list[str]] = defaultdict(list)
        self.lazy: dict[int, list[str]] = defaultdict(list)
        with leaving_out("what holds the memory"):
            self._walk([(name, value) for name, value in variables.items() if name[:2] != "__"])

    def names_of(self, value: Value) -> list[str]:
        """Returns the Tensors of the program that hold a value."""
        return self.names.get(id(value.memory.buffer()), [])

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
