"""What each method of Tensor that the user calls comes to."""

from __future__ import annotations

from dataclasses import dataclass, field

from vmapdbg.model.capture import Capture, Kernel, Schedule
from vmapdbg.model.ops import MOVEMENT
from vmapdbg.model.schedule_index import index_of
from vmapdbg.page.overview.kernels import Work

_COMPUTES_NOTHING = MOVEMENT | {"CONST", "VCONST", "BUFFER", "PARAM", "VMAPIN", "VMAPOUT"}


@dataclass
class MethodCost(Work):
    """The kernels that compute a value of a method: how many, their launches, ops and bytes, how many nodes of
    the method are realized, and the user's lines that call it. A kernel counts for each method that it computes a value
    of, so that the methods of a run sum up to more than the run. What only moves a value (a reshape) computes none."""

    method: str
    realized: int = 0
    lines: dict[str, None] = field(default_factory=dict[str, None])


def count_methods(capture: Capture) -> list[MethodCost]:
    """Returns every method that a kernel computes a value of or a node is realized of, those with the most work
    first. There are none where the capture does not name them."""
    found: dict[str, MethodCost] = {}

    def of(method: str) -> MethodCost:
        return found.setdefault(method, MethodCost(method))

    for schedule in capture.schedules:
        for kernel in schedule.kernels:
            for method, lines in _list_computed(kernel, schedule).items():
                cost = of(method)
                cost.add(kernel)
                cost.lines |= lines
        for node in schedule.nodes:
            if node.realized is not None and node.method is not None:
                of(node.method).realized += 1
    return sorted(found.values(), key=lambda cost: (-cost.ops, -cost.bytes, cost.method))


def _list_computed(kernel: Kernel, schedule: Schedule) -> dict[str, dict[str, None]]:
    """The methods that a kernel computes a value of, with the lines that call them."""
    found: dict[str, dict[str, None]] = {}
    index = index_of(schedule)
    for number in kernel.nodes:
        node = index.node(number)
        if node is None or node.method is None or node.op in _COMPUTES_NOTHING:
            continue
        lines = found.setdefault(node.method, {})
        if node.line is not None:
            lines[node.line] = None
    return found
