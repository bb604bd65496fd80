"""What each line of the user's code comes to."""

from __future__ import annotations

from dataclasses import dataclass

from vmapdbg.model.capture import Capture
from vmapdbg.page.overview.kernels import Work


@dataclass
class LineCost(Work):
    """The kernels that compute a value of a line: how many, their launches, ops and bytes, and how many nodes of
    the line are realized. A kernel counts for each line that it computes a value of, so that the lines of a run sum up
    to more than the run."""

    line: str
    realized: int = 0


def count_lines(capture: Capture) -> list[LineCost]:
    """Returns every line that a kernel has or a node is realized at, those with the most work first."""
    found: dict[str, LineCost] = {}

    def at(line: str) -> LineCost:
        return found.setdefault(line, LineCost(line))

    for schedule in capture.schedules:
        for kernel in schedule.kernels:
            for line in kernel.lines:
                at(line).add(kernel)
        for node in schedule.nodes:
            if node.realized is not None and node.line is not None:
                at(node.line).realized += 1
    return sorted(found.values(), key=lambda line: (-line.ops, -line.bytes, line.line))
