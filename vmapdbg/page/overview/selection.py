"""The part of a run that somebody asks for: a kernel, or what a line of the user's code made."""

from __future__ import annotations

from dataclasses import dataclass

from vmapdbg.model.capture import Capture, Kernel, Schedule
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import is_line, kernel_identity
from vmapdbg.model.wording import join_first

_MOST_NAMED = 5


@dataclass(frozen=True)
class Selected:
    """What of a schedule was asked for: the numbers of kernels, and the ids of nodes."""

    kernels: frozenset[int]
    nodes: frozenset[int]


def select_kernels(capture: Capture, asked: str, schedule: int | None) -> dict[int, Selected]:
    """Returns for each schedule that has them the kernels with a name, or that with a number, and the nodes that they
    compute.

    Raises Failure where there is none, and for a number where several schedules have it.
    """
    chosen = [s for s in capture.schedules if schedule is None or s.index == schedule]
    found: dict[int, Selected] = {}
    for item in chosen:
        numbers = [n for n, kernel in enumerate(item.kernels) if asked in (kernel.name, str(n))]
        if numbers:
            found[item.index] = _select(item, numbers)
    if not found:
        names = list(dict.fromkeys(kernel.name for item in chosen for kernel in item.kernels))
        raise Failure(f"there is no kernel {asked}: {join_first(names, _MOST_NAMED) or 'the run made none'}")
    if asked.isdecimal() and len(found) > 1:
        raise Failure(f"{len(found)} schedules have a kernel {asked}: choose one with --schedule")
    return found


def _select(schedule: Schedule, numbers: list[int]) -> Selected:
    """Of kernels that are one program, the layers of a network, the nodes of the first are enough."""
    programs: dict[str, Kernel] = {}
    for number in numbers:
        kernel = schedule.kernels[number]
        programs.setdefault(kernel_identity(kernel), kernel)
    nodes = {node for kernel in programs.values() for node in (*kernel.nodes, *kernel.outputs)}
    return Selected(frozenset(numbers), frozenset(nodes))


def select_line(capture: Capture, asked: str, schedule: int | None) -> dict[int, Selected]:
    """Returns for each schedule that has them the nodes that a line made, and the kernels that compute them.

    Raises Failure where there are none.
    """
    found: dict[int, Selected] = {}
    for item in capture.schedules:
        if schedule is not None and item.index != schedule:
            continue
        nodes = frozenset(node.id for node in item.nodes if node.line is not None and is_line(node.line, asked))
        kernels = frozenset(n for n, kernel in enumerate(item.kernels) if not nodes.isdisjoint(kernel.nodes))
        if nodes:
            found[item.index] = Selected(kernels, nodes)
    if not found:
        raise Failure(f"no node is made at {asked}: a line is asked for as FILE:N, as the report names it")
    return found
