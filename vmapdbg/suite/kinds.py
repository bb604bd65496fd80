"""Describes each change of kernels by its kind and its cost, so that the same change in many tests is one change.

A cost is the time that a kernel would take on a made-up machine; it only ranks changes. The machine executes 1 op a
nanosecond on each thread, on at most 1,000 threads at a time, moves 100 bytes a nanosecond, and takes 1,000 nanoseconds
for a launch. A kernel takes the longer of computing and moving (a roofline), and its launches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vmapdbg.diff import KernelChange, KernelSide, ScheduleDiff
from vmapdbg.model.capture import Kernel, Schedule
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.vocabulary import SuiteChangeKind
from vmapdbg.model.wording import join_counted

MOST_THREADS = 1_000
BYTES_A_NANOSECOND = 100
LAUNCH_NANOSECONDS = 1_000
# Changes are equal if their ratios are between the same steps: 1.05 and 60 times the work are two changes.
_STEPS = (1.1, 2.0, 10.0)


def estimate_cost(kernel: Kernel) -> int:
    """Returns the cost of all launches of a kernel, in nanoseconds of the made-up machine."""
    threads = min(max(kernel.threads, 1), MOST_THREADS)
    computing = kernel.executed_ops / threads
    moving = kernel.bytes / BYTES_A_NANOSECOND
    return round(max(computing, moving)) + LAUNCH_NANOSECONDS * kernel.launches


def sum_costs(kernels: Iterable[Kernel]) -> int:
    """Returns the cost of some kernels together."""
    return sum(map(estimate_cost, kernels))


@dataclass(frozen=True)
class SuiteChange:
    """One change in one test. Equal changes have the same `key`."""

    kind: SuiteChangeKind
    before: tuple[Kernel, ...]
    after: tuple[Kernel, ...]
    causes: tuple[str, ...]
    ratio: float | None
    line: str | None

    @property
    def form(self) -> str:
        """The names of the kernels in short, `2 r, E -> r`."""
        return f"{describe_form(self.before)} -> {describe_form(self.after)}"

    @property
    def costs(self) -> tuple[int, int]:
        """The costs before and after."""
        return sum_costs(self.before), sum_costs(self.after)

    @property
    def key(self) -> tuple[object, ...]:
        """What equal changes have in common."""
        before, after = self.costs
        direction = (after > before) - (after < before)
        return self.kind, len(self.before), len(self.after), self.form, self.causes, _step_of(self.ratio), direction


def _step_of(ratio: float | None) -> int | None:
    """Returns how many of the steps a ratio exceeds, up or down."""
    if ratio is None:
        return None
    return sum(max(ratio, 1 / ratio) > step for step in _STEPS)


def describe_form(kernels: Sequence[Kernel]) -> str:
    """Returns the first parts of kernel names: `2 r, E` for two reduces and an elementwise kernel."""
    counts = Counter(kernel.name.split("_")[0] for kernel in kernels)
    return join_counted(counts.most_common()) or "none"


def find_changes(diff: ScheduleDiff, before: Schedule | None, after: Schedule | None) -> Iterator[SuiteChange]:
    """Yields the changes of a pair of schedules, or one change if only one side has the schedule."""
    if before is None and after is not None:
        yield SuiteChange("schedule-new", (), after.kernels, (), None, after.line)
    elif after is None and before is not None:
        yield SuiteChange("schedule-gone", before.kernels, (), (), None, before.line)
    elif before is not None and after is not None:
        yield from _find_kernel_changes(diff, before, after)
        if before.copies != after.copies:
            kind = "more-copies" if after.copies > before.copies else "fewer-copies"
            yield SuiteChange(kind, (), (), (), _divide(after.copies, before.copies), after.line)


def _divide(after: int, before: int) -> float | None:
    """Returns the ratio; None if one side is 0."""
    if not before or not after:
        return None
    return after / before


def _find_kernel_changes(diff: ScheduleDiff, before: Schedule, after: Schedule) -> Iterator[SuiteChange]:
    changed = [item for item in diff.kernels if item.status != "unchanged"]
    for items in join_related(changed, diff.pair_nodes()):
        left = _list_kernels(side for item in items for side in item.before)
        right = _list_kernels(side for item in items for side in item.after)
        kind, ratio = name_change(items[0]) if len(items) == 1 else ("regrouped", None)
        causes = find_causes(left, right, before, after)
        yield SuiteChange(kind, left, right, causes, ratio, _first_line(right or left) or after.line)
    numbers = [side.number for item in diff.kernels for side in item.before]
    if not changed and numbers != sorted(numbers):
        yield SuiteChange("other-order", before.kernels, after.kernels, (), None, after.line)


def _list_kernels(sides: Iterable[KernelSide]) -> tuple[Kernel, ...]:
    """Returns each kernel once: a kernel may be split and fused at the same time."""
    found = {side.number: side.kernel for side in sides}
    return tuple(found[number] for number in sorted(found))


# a side and the number of a kernel
_SideKernel = tuple[Literal["before", "after"], int]


def join_related(changes: Sequence[KernelChange], same: Mapping[int, int]) -> list[list[KernelChange]]:
    """Joins changes in which values moved from kernel to kernel.

    Two changes are joined if they have a kernel in common. A kernel of one side is joined with the changed kernels of
    the other side that compute its outputs. `same` maps node ids of before to ids of after.
    """
    back = {after: before for before, after in same.items()}
    groups: list[tuple[set[_SideKernel], list[KernelChange]]] = []
    for item in changes:
        touched: set[_SideKernel] = {("before", side.number) for side in item.before}
        touched |= {("after", side.number) for side in item.after}
        if item.status == "only-before":
            numbers = _computing_kernels(item.before, same, [side for other in changes for side in other.after])
            touched |= {("after", number) for number in numbers}
        elif item.status == "only-after":
            numbers = _computing_kernels(item.after, back, [side for other in changes for side in other.before])
            touched |= {("before", number) for number in numbers}
        related = [group for group in groups if group[0] & touched]
        groups = [group for group in groups if group not in related]
        items = [one for group in related for one in group[1]] + [item]
        touched = touched.union(*(group[0] for group in related))
        groups.append((touched, items))
    return [items for _, items in groups]


def _computing_kernels(lone: Iterable[KernelSide], names: Mapping[int, int], others: Iterable[KernelSide]) -> set[int]:
    """Returns the numbers of the `others` that compute the outputs of `lone`; `names` maps node ids to their side."""
    written = {names[node] for side in lone for node in side.kernel.outputs if node in names}
    return {side.number for side in others if written.intersection(side.kernel.nodes)}


def _first_line(kernels: Iterable[Kernel]) -> str | None:
    return next((line for kernel in kernels for line in kernel.lines), None)


# fields of a kernel, the most important first, with the kinds of a larger and a smaller value
_MEASURES: tuple[tuple[str, SuiteChangeKind, SuiteChangeKind], ...] = (
    ("launches", "more-launches", "fewer-launches"),
    ("executed_ops", "more-ops", "fewer-ops"),
    ("bytes", "more-bytes", "fewer-bytes"),
    ("threads", "more-threads", "fewer-threads"),
    ("local_bytes", "more-local-memory", "less-local-memory"),
)


def name_change(item: KernelChange) -> tuple[SuiteChangeKind, float | None]:
    """Returns the kind of a kernel's change, and the ratio of after to before."""
    lone: dict[str, SuiteChangeKind] = {
        "fused-from": "fused",
        "split-into": "split",
        "only-before": "kernel-gone",
        "only-after": "kernel-new",
    }
    if item.status in lone:
        return lone[item.status], None
    before, after = item.before[0].kernel, item.after[0].kernel
    for name, more, fewer in _MEASURES:
        one, other = getattr(before, name), getattr(after, name)
        if one != other:
            return (more if other > one else fewer), _divide(other, one)
    if (before.global_size, before.local_size) != (after.global_size, after.local_size):
        return "other-launch-dimensions", None
    return "other-source", None


def find_causes(left: Sequence[Kernel], right: Sequence[Kernel], before: Schedule, after: Schedule) -> tuple[str, ...]:
    """Returns the realize points that kernels write on one side alone, each kind once: `-REDUCE_AXIS: ending-ranges`.

    With as many kernels on both sides the result is empty: the buffers only moved to other nodes.
    """
    if len(left) == len(right):
        return ()
    written = [Counter(_describe_outputs(kernels, side)) for kernels, side in ((left, before), (right, after))]
    gone = [f"-{name}" for name in written[0] - written[1]]
    new = [f"+{name}" for name in written[1] - written[0]]
    return (*sorted(gone), *sorted(new))


def _describe_outputs(kernels: Sequence[Kernel], schedule: Schedule) -> Iterator[str]:
    index = index_of(schedule)
    for output in [output for kernel in kernels for output in kernel.outputs]:
        node = index.node(output)
        if node is not None and node.realized is not None:
            yield f"{node.op}: {node.realized.detail or node.realized.reason}"
        elif node is not None:
            yield node.op
