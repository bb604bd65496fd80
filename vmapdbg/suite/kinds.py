"""Says of each kernel that changed what the change is, so that the same change in many tests is one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vmapdbg.diff import KernelChange, KernelSide, ScheduleDiff
from vmapdbg.model.capture import Kernel, Node, Schedule
from vmapdbg.model.vocabulary import SuiteChangeKind
from vmapdbg.model.wording import join_counted
from vmapdbg.suite.cost import sum_costs

# Ratios up to the first belong together, then those up to the next: 1.05 and 60 times the work are two changes.
_STEPS = (1.1, 2.0, 10.0)


@dataclass(frozen=True)
class Change:
    """One change in one test. `key` is what it has in common with the same change elsewhere."""

    kind: SuiteChangeKind
    before: tuple[Kernel, ...]
    after: tuple[Kernel, ...]
    causes: tuple[str, ...]
    ratio: float | None
    line: str | None

    @property
    def form(self) -> str:
        return f"{describe_form(self.before)} -> {describe_form(self.after)}"

    @property
    def costs(self) -> tuple[int, int]:
        return sum_costs(self.before), sum_costs(self.after)

    @property
    def key(self) -> tuple[object, ...]:
        before, after = self.costs
        direction = (after > before) - (after < before)
        return self.kind, len(self.before), len(self.after), self.form, self.causes, _find_step(self.ratio), direction


def _find_step(ratio: float | None) -> int | None:
    """Returns how many of the steps a ratio goes beyond, up or down."""
    if ratio is None:
        return None
    return sum(max(ratio, 1 / ratio) > step for step in _STEPS)


def describe_form(kernels: Sequence[Kernel]) -> str:
    """Returns what the names of kernels begin with: `2 r, E` are two reduces and an elementwise one."""
    counts = Counter(kernel.name.split("_")[0] for kernel in kernels)
    return join_counted(counts.most_common()) or "none"


def find_changes(diff: ScheduleDiff, before: Schedule | None, after: Schedule | None) -> Iterator[Change]:
    """Yields the changes of a pair of schedules, or the one change where only one side has a schedule."""
    if before is None and after is not None:
        yield Change("schedule-new", (), after.kernels, (), None, after.line)
    elif after is None and before is not None:
        yield Change("schedule-gone", before.kernels, (), (), None, before.line)
    elif before is not None and after is not None:
        yield from _find_kernel_changes(diff, before, after)
        if before.copies != after.copies:
            kind = "more-copies" if after.copies > before.copies else "fewer-copies"
            yield Change(kind, (), (), (), _divide(after.copies, before.copies), after.line)


def _divide(after: int, before: int) -> float | None:
    """Returns how much grew or shrank; None where there was nothing, or is nothing left."""
    if not before or not after:
        return None
    return after / before


def _find_kernel_changes(diff: ScheduleDiff, before: Schedule, after: Schedule) -> Iterator[Change]:
    changed = [item for item in diff.kernels if item.status != "unchanged"]
    for items in join_related(changed, diff.pair_nodes()):
        left = _list_kernels(side for item in items for side in item.before)
        right = _list_kernels(side for item in items for side in item.after)
        kind, ratio = name_change(items[0]) if len(items) == 1 else ("regrouped", None)
        causes = find_causes(left, right, before, after)
        yield Change(kind, left, right, causes, ratio, find_line(right or left) or after.line)
    numbers = [side.number for item in diff.kernels for side in item.before]
    if not changed and numbers != sorted(numbers):
        yield Change("other-order", before.kernels, after.kernels, (), None, after.line)


def _list_kernels(sides: Iterable[KernelSide]) -> tuple[Kernel, ...]:
    """A kernel may have been split and fused at once: it is one kernel."""
    found = {side.number: side.kernel for side in sides}
    return tuple(found[number] for number in sorted(found))


# a kernel of one side, by its number
_Kernel = tuple[Literal["before", "after"], int]


def join_related(changes: Sequence[KernelChange], same: Mapping[int, int]) -> list[list[KernelChange]]:
    """Joins changes that have a kernel in common, and a kernel of one side with the changed kernels of the other side
    that compute what it writes: they are one change, in which values moved from kernel to kernel.

    `same` has the id after of each node of before.
    """
    back = {after: before for before, after in same.items()}
    groups: list[tuple[set[_Kernel], list[KernelChange]]] = []
    for item in changes:
        touched: set[_Kernel] = {("before", side.number) for side in item.before}
        touched |= {("after", side.number) for side in item.after}
        if item.status == "only-before":
            computing = _find_computing(item.before, same, [side for other in changes for side in other.after])
            touched |= {("after", number) for number in computing}
        elif item.status == "only-after":
            computing = _find_computing(item.after, back, [side for other in changes for side in other.before])
            touched |= {("before", number) for number in computing}
        related = [group for group in groups if group[0] & touched]
        groups = [group for group in groups if group not in related]
        items = [one for group in related for one in group[1]] + [item]
        touched = touched.union(*(group[0] for group in related))
        groups.append((touched, items))
    return [items for _, items in groups]


def _find_computing(lone: Iterable[KernelSide], names: Mapping[int, int], others: Iterable[KernelSide]) -> set[int]:
    """Returns the numbers of the kernels that compute what a kernel of the other side alone writes; `names` has the ids
    that its nodes have there."""
    written = {names[node] for side in lone for node in side.kernel.outputs if node in names}
    return {side.number for side in others if written.intersection(side.kernel.nodes)}


def find_line(kernels: Iterable[Kernel]) -> str | None:
    """Returns the first of the user's lines that kernels have."""
    return next((line for kernel in kernels for line in kernel.lines), None)


# what is asked of a pair of kernels, the weightiest first: its name where it grew, and where it shrank
_MEASURES: tuple[tuple[str, SuiteChangeKind, SuiteChangeKind], ...] = (
    ("launches", "more-launches", "fewer-launches"),
    ("executed_ops", "more-ops", "fewer-ops"),
    ("bytes", "more-bytes", "fewer-bytes"),
    ("threads", "more-threads", "fewer-threads"),
    ("local_bytes", "more-local-memory", "less-local-memory"),
)


def name_change(item: KernelChange) -> tuple[SuiteChangeKind, float | None]:
    """Returns the kind of a kernel's change, and how much grew or shrank, after over before."""
    lone: dict[str, SuiteChangeKind] = {
        "fused-from": "fused",
        "split-into": "split",
        "only-before": "kernel-gone",
        "only-after": "kernel-new",
    }
    if item.status in lone:
        return lone[item.status], None
    before, after = item.before[0].kernel, item.after[0].kernel
    # work that is lost or won weighs more than how it is spread
    for name, more, fewer in _MEASURES:
        one, other = getattr(before, name), getattr(after, name)
        if one != other:
            return (more if other > one else fewer), _divide(other, one)
    if (before.global_size, before.local_size) != (after.global_size, after.local_size):
        return "other-launch-dimensions", None
    return "other-source", None


def find_causes(left: Sequence[Kernel], right: Sequence[Kernel], before: Schedule, after: Schedule) -> tuple[str, ...]:
    """Returns the realize points that kernels write on one side alone, each kind once: `-REDUCE_AXIS: ending-ranges`.

    Only where there are more kernels on one side: else what is written may have another place in the graph, no more.
    """
    if len(left) == len(right):
        return ()
    written = [Counter(_describe_outputs(kernels, side)) for kernels, side in ((left, before), (right, after))]
    gone = [f"-{name}" for name in written[0] - written[1]]
    new = [f"+{name}" for name in written[1] - written[0]]
    return (*sorted(gone), *sorted(new))


def _describe_outputs(kernels: Sequence[Kernel], schedule: Schedule) -> Iterator[str]:
    nodes = {node.id: node for node in schedule.nodes}
    for kernel in kernels:
        for output in kernel.outputs:
            if output in nodes:
                yield _describe_realized(nodes[output])


def _describe_realized(node: Node) -> str:
    if node.realized is None:
        return node.op
    return f"{node.op}: {node.realized.detail or node.realized.reason}"
