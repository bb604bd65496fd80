"""What kernels come to together, and equal ones as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vmapdbg.model.capture import Capture, Kernel
from vmapdbg.model.schedule_index import find_distinct, kernel_identity, sum_times


@dataclass(kw_only=True)
class Work:
    """What some kernels come to together: how many they are, their launches, ops and bytes."""

    kernels: int = 0
    launches: int = 0
    ops: int = 0
    bytes: int = 0

    def add(self, kernel: Kernel) -> None:
        """Counts one kernel more."""
        self.kernels += 1
        self.launches += kernel.launches
        self.ops += kernel.executed_ops
        self.bytes += kernel.bytes


@dataclass(frozen=True)
class Place:
    """Where a kernel stands: its number in the schedule with an index."""

    schedule: int
    number: int


@dataclass(frozen=True)
class KernelGroup:
    """The kernels of a run that are one program, with launches, executed ops and bytes moved of all of them, as the
    schedules have them. `seconds` is what all that were timed took together, each the median of them, with what TinyJit
    launched again; 0 where none was timed. `lines` are the user's."""

    kernel: Kernel
    places: tuple[Place, ...]
    launches: int
    ops: int
    bytes: int
    seconds: float
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Totals:
    """What the kernels of a run come to together: how many they are, ops executed, bytes moved, and what those that
    were timed took."""

    kernels: int
    ops: int
    bytes: int
    seconds: float


def sum_groups(groups: Sequence[KernelGroup]) -> Totals:
    """Returns the totals of the groups of a run."""
    return Totals(
        kernels=sum(len(group.places) for group in groups),
        ops=sum(group.ops for group in groups),
        bytes=sum(group.bytes for group in groups),
        seconds=sum(group.seconds for group in groups),
    )


MOST_KERNELS = 12
MOST_NODES = 250
"""A run with more programs, or more nodes, is more than one looks through: it is shown by its overview."""


def is_long(capture: Capture) -> bool:
    """Tells whether a run is too long to be shown whole. What is the same in a later schedule does not count."""
    distinct = [capture.schedules[index] for index in find_distinct(capture)]
    programs = {kernel_identity(kernel) for schedule in distinct for kernel in schedule.kernels}
    return len(programs) > MOST_KERNELS or sum(len(schedule.nodes) for schedule in distinct) > MOST_NODES


def group_kernels(capture: Capture) -> list[KernelGroup]:
    """Returns all kernels of a run, those that take longest first where they were timed, else those with the
    most work."""
    groups: dict[tuple[str, str], list[tuple[Place, Kernel]]] = {}
    for schedule in capture.schedules:
        for number, kernel in enumerate(schedule.kernels):
            place = Place(schedule.index, number)
            groups.setdefault((kernel_identity(kernel), kernel.name), []).append((place, kernel))
    return sorted(map(_make_group, groups.values()), key=lambda group: (-group.seconds, -group.ops, -group.bytes))


def _make_group(members: Iterable[tuple[Place, Kernel]]) -> KernelGroup:
    places, kernels = zip(*members, strict=True)
    return KernelGroup(
        kernel=kernels[0],
        places=places,
        launches=sum(kernel.launches for kernel in kernels),
        ops=sum(kernel.executed_ops for kernel in kernels),
        bytes=sum(kernel.bytes for kernel in kernels),
        seconds=sum_times(kernels[0].measured),
        lines=tuple(dict.fromkeys(line for kernel in kernels for line in kernel.lines)),
    )
