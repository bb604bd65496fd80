"""What of a run is asked about: a node by its number, a kernel by its name, a line of the user's code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmapdbg.model.capture import Capture, Schedule
from vmapdbg.model.schedule_index import index_of

_TELLING = {"VMAPIN", "VMAPOUT", "REDUCE_AXIS", "REDUCE"}


@dataclass(frozen=True)
class Named:
    """What of one schedule has a name: the numbers of kernels, the ids of nodes."""

    kernels: tuple[int, ...]
    nodes: tuple[int, ...]


def is_line(line: str, asked: str) -> bool:
    """Tells whether a line is the one that is asked for: `x.py:12` is also asked for as `samples/x.py:12` or by a
    longer path."""
    return line == asked or line.endswith("/" + asked) or asked.endswith("/" + line)


def choose_numbered(schedules: Sequence[Schedule]) -> Schedule:
    """Returns the one of some schedules in which a node's number is looked up: the last with kernels."""
    return next((s for s in reversed(schedules) if s.kernels), schedules[-1])


def find_named(schedule: Schedule, name: str) -> Named:
    """Returns the kernels with a name, and of the nodes of a line those that tell the most: the ones with buffers,
    reduces and scopes; else the last."""
    kernels = tuple(number for number, kernel in enumerate(schedule.kernels) if kernel.name == name)
    at_line = [n for n in schedule.nodes if n.line is not None and is_line(n.line, name)]
    buffered = index_of(schedule).bufferizes
    telling = [n for n in at_line if n.id in buffered or n.op in _TELLING]
    return Named(kernels, tuple(node.id for node in telling or at_line[-1:]))


def find_nodes_of(capture: Capture, subject: str, schedule: int | None) -> dict[int, tuple[int, ...]]:
    """Returns for each schedule that has them the ids of the nodes that a subject is about: the node itself, those that
    a kernel writes, those of a line. `schedule` is the number of the only one that is looked at."""
    schedules = [s for s in capture.schedules if schedule is None or s.index == schedule]
    if not schedules:
        return {}
    if subject.isdecimal():
        chosen = choose_numbered(schedules)
        known = index_of(chosen).node(int(subject))
        return {} if known is None else {chosen.index: (known.id,)}
    found: dict[int, tuple[int, ...]] = {}
    for one in schedules:
        named = find_named(one, subject)
        written = [node for number in named.kernels for node in one.kernels[number].outputs]
        if nodes := tuple(dict.fromkeys((*written, *named.nodes))):
            found[one.index] = nodes
    return found
