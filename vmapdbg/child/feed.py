"""Hands on each schedule of a process with a life of its own as it is made, and lets go of it: for `run --lint` and
`run --save`, on patched and on observed tinygrad.

The process stays as it is: what it prints, when its tensors are freed, the names of its kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from vmapdbg.child.live import build_live_capture, observe_with
from vmapdbg.child.live_observed import build_live_observed
from vmapdbg.child.record.observe import ObservingRecorder, start
from vmapdbg.child.record.recorder import Recorder
from vmapdbg.model.capture import Capture


@dataclass(frozen=True)
class MadeSchedule:
    """A schedule that was just made: its key in tinygrad's cache, the user's line, the keys of its compute kernels'
    ASTs. `build` returns a Capture of it alone, rendered for a target, and raises what rendering raises. One that is
    not `is_whole` began and raised before it had kernels."""

    key: bytes
    line: str | None
    kernels: frozenset[bytes]
    is_whole: bool
    build: Callable[[str], Capture]


class Sink(Protocol):
    """What wants the schedules."""

    def asked_again(self, key: bytes, line: str | None) -> None:
        """A schedule came out of tinygrad's cache."""
        ...

    def made(self, schedule: MadeSchedule) -> None:
        """A schedule was made, or began to be."""
        ...


def feed(sink: Sink, observes: bool) -> Callable[[], None]:
    """Has the schedules of this process handed to `sink`. With `observes` any tinygrad is looked at as it is; else the
    overlay is installed already. Returns what is to be called when the process ends."""
    if observes:
        observing = ObservedFeed(sink)
        start(recorder=observing)
        return observing.end_last
    recorder = OverlayFeed(sink)
    observe_with(recorder)
    return recorder.end_last


class OverlayFeed(Recorder):
    """Has them from the overlay."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self.sink = sink

    def schedule_asked(self, key: bytes, cached: bool) -> None:
        self.end_last()
        super().schedule_asked(key, cached)
        if cached:
            self.sink.asked_again(key, self.schedules[-1].line)
            self.forget()

    def schedule_created(self, items: list[Any], buffers: Any) -> None:
        super().schedule_created(items, buffers)
        self.end_last(is_whole=True)

    def end_last(self, is_whole: bool = False) -> None:
        """Hands on the last schedule."""
        records = [record for record in self.schedules[-1:] if record.passed is not None]
        try:
            for record in records:
                assert record.passed is not None
                kernels = frozenset(k.ast.key for k in record.passed.kernels if k.ast.op.name == "SINK")
                build = partial(build_live_capture, records)
                self.sink.made(MadeSchedule(record.key, record.line, kernels, is_whole, build))
        finally:
            self.forget()


class ObservedFeed(ObservingRecorder):
    """Has them from tinygrad as it is."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self.sink = sink

    def schedule_asked(self, key: bytes, cached: bool) -> None:
        self.end_last()
        super().schedule_asked(key, cached)
        if cached:
            self.sink.asked_again(key, self.schedules[-1].line)
            self.forget()

    def schedule_created(self, graph: Any, created: Any) -> None:
        super().schedule_created(graph, created)
        self.end_last(is_whole=True)

    def end_last(self, is_whole: bool = False) -> None:
        """Hands on the last schedule."""
        schedules = [schedule for schedule in self.schedules[-1:] if schedule.passed is not None]
        try:
            for schedule in schedules:
                assert schedule.passed is not None
                kernels = frozenset(k.ast.key for k in schedule.passed.kernels if k.is_compute)
                build = partial(build_live_observed, schedules)
                self.sink.made(MadeSchedule(schedule.key, schedule.line, kernels, is_whole, build))
        finally:
            self.forget()
