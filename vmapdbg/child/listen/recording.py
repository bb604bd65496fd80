"""What both recorders have in common: that of the overlay, and that of a tinygrad that is observed as it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

from vmapdbg.model.capture import Output

Pass = TypeVar("Pass", covariant=True)
Schedule = TypeVar("Schedule", bound="Asked[Any]")


class Asked(Protocol[Pass]):
    """One schedule that was asked for: the user's line, the run of the pass that it comes from (None: there was none),
    and what was realized of it, where values are asked for."""

    @property
    def line(self) -> str | None: ...
    @property
    def passed(self) -> Pass | None: ...
    @property
    def outputs(self) -> list[Output]: ...


def find_passes(schedules: Iterable[Asked[Pass]]) -> list[Pass]:
    """Returns each run of the pass once, in their order: a schedule out of tinygrad's cache has that of the first
    time."""
    passes = {id(schedule.passed): schedule.passed for schedule in schedules}
    return [passed for passed in passes.values() if passed is not None]


class Recording(Generic[Schedule]):
    """A recorder: it is told of each schedule, and keeps them in the order they were asked for."""

    schedules: list[Schedule]

    def schedule_asked(self, key: bytes, cached: bool) -> None:
        """A schedule is asked for; `key` is that of tinygrad's cache, which has it where it is `cached`."""

    def schedule_created(self, created: Any, buffers: Any, /) -> None:
        """The kernels of the last schedule are there."""

    def forget(self) -> None:
        """Lets go of every UOp."""
