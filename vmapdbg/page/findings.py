"""Which findings belong to a kernel or to a node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vmapdbg.model.capture import Finding, Kernel, Node


class Findings:
    """The findings of a capture. Each is printed at its kernel or node; the rest are printed at the end."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._all = tuple(findings)
        self._placed: set[int] = set()

    def take_for_kernel(self, kernel: Kernel, schedule: int, numbers: Sequence[int]) -> list[Finding]:
        """Returns the findings about equal kernels of a schedule, given by their numbers."""
        return self._take(
            i for i, found in enumerate(self._all) if any(_is_about_kernel(found, kernel, schedule, n) for n in numbers)
        )

    def take_for_node(self, node: Node, schedule: int) -> list[Finding]:
        """Returns the findings about a node of a schedule and no kernel."""
        return self._take(i for i, found in enumerate(self._all) if _is_about_node(found, node, schedule))

    def has_for_node(self, node: Node, schedule: int) -> bool:
        """Tells whether `take_for_node` would return any."""
        return any(_is_about_node(found, node, schedule) for found in self._all)

    def find_for_kernel(self, kernel: Kernel, schedule: int, number: int) -> list[Finding]:
        """Returns the findings about one kernel; they still count as not printed."""
        return [found for found in self._all if _is_about_kernel(found, kernel, schedule, number)]

    def take_rest(self) -> list[Finding]:
        """Returns the findings that no section has printed."""
        return self._take(i for i in range(len(self._all)) if i not in self._placed)

    def _take(self, numbers: Iterable[int]) -> list[Finding]:
        taken = list(numbers)
        self._placed |= set(taken)
        return [self._all[i] for i in taken]


def _is_about_node(found: Finding, node: Node, schedule: int) -> bool:
    """Ids repeat in each schedule. If a finding names no schedule, the line must agree."""
    if found.kernel is not None or found.node != node.id:
        return False
    if found.schedule is not None:
        return found.schedule == schedule
    return found.line is None or node.line is None or found.line == node.line


def _is_about_kernel(found: Finding, kernel: Kernel, schedule: int, number: int) -> bool:
    """Names repeat in each schedule, but a finding of an older capture has only the name."""
    if found.schedule is None or found.number is None:
        return found.kernel == kernel.name
    return (found.schedule, found.number) == (schedule, number)
