"""Hands on each schedule of a process with a life of its own as it is made, and lets go of it: for `run --lint` and
`run --save`, on patched and on observed tinygrad.

The process stays as it is: what it prints, when its tensors are freed, the names of its kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.live import build_live_capture, is_ordered, listen
from vmapdbg.model.capture import Capture


@dataclass(frozen=True)
class MadeSchedule:
    """A schedule that was just made: its key in tinygrad's cache, the user's line, the keys of its compute kernels'
    ASTs. `build` returns a Capture of it alone, rendered for a target, and raises what rendering raises. `is_ordered`
    tells whether its kernels use memory in the order that the graph asks for, as far as is known. One that is not
    `is_whole` began and raised before it had kernels."""

    key: bytes
    line: str | None
    kernels: frozenset[bytes]
    is_whole: bool
    build: Callable[[str], Capture]
    is_ordered: Callable[[], bool]


class Sink(Protocol):
    """What wants the schedules."""

    def asked_again(self, key: bytes, line: str | None) -> None:
        """A schedule came out of tinygrad's cache."""
        ...

    def made(self, schedule: MadeSchedule) -> None:
        """A schedule was made, or began to be."""
        ...


def feed(sink: Sink) -> Callable[[], None]:
    """Has the schedules of this process handed to `sink`. The overlay is installed already, or tinygrad is looked at as
    it is. Returns what is to be called when the process ends."""
    made = Feed(sink)
    listen(made)
    return made.end_last


class Feed(Recorder):
    """Hands on each of its schedules, and forgets it."""

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
        schedules = self.schedules[-1:]
        try:
            for schedule in schedules:
                passed = schedule.passed
                if passed is None:
                    continue
                kernels = frozenset(kernel.ast.key for kernel in passed.kernels if kernel.is_compute)
                build = partial(build_live_capture, schedules)
                ordered = partial(is_ordered, passed)
                self.sink.made(MadeSchedule(schedule.key, schedule.line, kernels, is_whole, build, ordered))
        finally:
            self.forget()
