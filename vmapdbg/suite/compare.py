"""Compares two saved runs. The same change in many tests is one entry.

A cost is the time that a kernel would take on a made-up machine; it only ranks changes. The machine executes 1 op a
nanosecond on each thread, on at most 1,000 threads at a time, moves 100 bytes a nanosecond, and takes 1,000 nanoseconds
for a launch. A kernel takes the longer of computing and moving (a roofline), and its launches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from vmapdbg.diff.captures import diff_captures
from vmapdbg.diff.result import CaptureDiff, KernelChange, KernelSide, ScheduleDiff
from vmapdbg.model.capture import SCHEMA, Kernel, Schedule, Versions
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import group_equal, index_of
from vmapdbg.model.vocabulary import SuiteChangeKind
from vmapdbg.model.wording import join_counted
from vmapdbg.suite.saved import LoadedRun, name_test

MOST_THREADS = 1_000
BYTES_A_NANOSECOND = 100
LAUNCH_NANOSECONDS = 1_000
# Changes are equal if their ratios are between the same steps: 1.05 and 60 times the work are two changes.
_STEPS = (1.1, 2.0, 10.0)


# *** the result: the JSON document of `vmapdbg diff DIR DIR --json`


@dataclass(frozen=True)
class SuiteSide:
    """One saved run, with sums over all of its tests. `status` is the exit code of its program, None if the run did not
    end. `failed` counts schedules that could not be rendered."""

    folder: str
    versions: Versions
    target: str
    patches: dict[str, bool]
    program: tuple[str, ...]
    status: int | None
    tests: int
    schedules: int
    kernels: int
    cost: int
    failed: int


@dataclass(frozen=True)
class SuiteExample:
    """One place of a change: the test, the user's line, the names of the kernels on both sides."""

    test: str
    line: str | None
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class SuiteGroup:
    """One change in all tests that have it; the test with the largest added cost is the first.

    `count` is how often it was found. Each time `kernels_before` kernels became `kernels_after`; `form` has the first
    parts of their names (`r, E -> r`: a reduce and an elementwise kernel became one reduce). `causes` are realize
    points that are gone (`-REDUCE_AXIS: ending-ranges`) or new (`+`). `ratios` are the smallest and the largest ratio
    of after to before, if any. `cost_before` and `cost_after` are sums.
    """

    kind: SuiteChangeKind
    kernels_before: int
    kernels_after: int
    form: str
    causes: tuple[str, ...]
    ratios: tuple[float, ...]
    count: int
    cost_before: int
    cost_after: int
    tests: tuple[str, ...]
    example: SuiteExample

    @property
    def added(self) -> int:
        """The added cost; negative if the change saves time."""
        return self.cost_after - self.cost_before


@dataclass(frozen=True)
class SuiteTest:
    """A test whose kernels changed."""

    test: str
    kernels_before: int
    kernels_after: int
    cost_before: int
    cost_after: int


@dataclass(frozen=True)
class SuiteDiff:
    """Two saved runs compared.

    `groups` are the changes, the largest added cost first. `left_out` are tests that cannot be compared because of a
    damaged file; `damaged` has a line for each such file.
    """

    schema: Literal[1]
    kind: Literal["suite-diff"]
    before: SuiteSide
    after: SuiteSide
    unchanged: int
    changed: tuple[SuiteTest, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    groups: tuple[SuiteGroup, ...]
    left_out: tuple[str, ...]
    damaged: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether no kernel changed in the tests that both runs have."""
        return not self.changed


# *** sums


def estimate_cost(kernel: Kernel) -> int:
    """Returns the cost of all launches of a kernel, in nanoseconds of the made-up machine."""
    threads = min(max(kernel.threads, 1), MOST_THREADS)
    computing = kernel.executed_ops / threads
    moving = kernel.bytes / BYTES_A_NANOSECOND
    return round(max(computing, moving)) + LAUNCH_NANOSECONDS * kernel.launches


def sum_costs(kernels: Iterable[Kernel]) -> int:
    """Returns the cost of some kernels together."""
    return sum(map(estimate_cost, kernels))


def _count(run: LoadedRun, tests: Iterable[str]) -> tuple[int, int, int]:
    """Returns the number of schedules and kernels of some tests, and their cost."""
    schedules = kernels = cost = 0
    for asked in chain.from_iterable(map(run.asked_by, tests)):
        schedule = run.schedule(asked.schedule)
        if schedule is not None:
            schedules += asked.count
            kernels += asked.count * len(schedule.kernels)
            cost += asked.count * sum_costs(schedule.kernels)
    return schedules, kernels, cost


def _describe_side(run: LoadedRun) -> SuiteSide:
    schedules, kernels, cost = _count(run, run.parts)
    failed = 0
    for parts in run.parts.values():
        failed += sum(len(part.failed) for part in parts)
    return SuiteSide(
        folder=str(run.folder),
        versions=run.run.versions,
        target=run.run.target,
        patches=run.run.patches,
        program=run.run.program,
        status=run.run.status,
        tests=len(run.parts),
        schedules=schedules,
        kernels=kernels,
        cost=cost,
        failed=failed,
    )


# *** test by test


def compare_runs(before: LoadedRun, after: LoadedRun) -> SuiteDiff:
    """Compares two saved runs test by test. Raises Failure if their kernels are for different targets."""
    if before.run.target != after.run.target:
        raise Failure(
            f"{before.folder} has kernels for {before.run.target} and {after.folder} for {after.run.target}: "
            "save one of them again with the --target of the other"
        )
    both = [test for test in before.parts if test in after.parts]
    whole = [test for test in both if before.is_whole(test) and after.is_whole(test)]
    found: list[SuiteGroup] = []
    changed: list[SuiteTest] = []
    for test in sorted(whole):
        changes = compare_test(before, after, test)
        if changes:
            _, kernels_before, cost_before = _count(before, [test])
            _, kernels_after, cost_after = _count(after, [test])
            changed.append(SuiteTest(test, kernels_before, kernels_after, cost_before, cost_after))
        found += changes
    groups = map(_join_group, group_equal(found, _describe_group))
    return SuiteDiff(
        schema=SCHEMA,
        kind="suite-diff",
        before=_describe_side(before),
        after=_describe_side(after),
        unchanged=len(whole) - len(changed),
        changed=tuple(sorted(changed, key=lambda item: item.cost_before - item.cost_after)),
        only_before=_list_lone(before, after),
        only_after=_list_lone(after, before),
        groups=tuple(sorted(groups, key=lambda g: (-g.added, -len(g.tests), g.kind, g.form, g.causes, g.tests))),
        left_out=tuple(sorted(set(both) - set(whole))),
        damaged=(*before.damaged, *after.damaged),
    )


def _list_lone(run: LoadedRun, other: LoadedRun) -> tuple[str, ...]:
    """Returns the tests that only one run has. Tests that the other run may have in a damaged file are left out."""
    unread = other.unread | run.unread
    return tuple(sorted(test for test in run.parts if test not in other.parts and name_test(test) not in unread))


def compare_test(before: LoadedRun, after: LoadedRun, test: str) -> list[SuiteGroup]:
    """Returns the changes of one test. Equal schedules have the same file and are not compared."""
    left, right = before.list_schedules(test), after.list_schedules(test)
    common = Counter(name for name, _ in left) & Counter(name for name, _ in right)
    some_before, some_after = _take_out(left, common), _take_out(right, common)
    changes: list[SuiteGroup] = []
    if some_before or some_after:
        diff = diff_captures(before.make_capture(some_before), after.make_capture(some_after))
        for item in diff.schedules:
            one = other = None
            if item.before is not None:
                one = some_before[item.before]
            if item.after is not None:
                other = some_after[item.after]
            changes += find_changes(test, item, one, other)
    return changes


def _take_out(schedules: list[tuple[str, Schedule]], common: Counter[str]) -> tuple[Schedule, ...]:
    """Returns the schedules that are not common, with new numbers."""
    rest: list[Schedule] = []
    left = Counter(common)
    for name, schedule in schedules:
        if left[name]:
            left[name] -= 1
        else:
            rest.append(replace(schedule, index=len(rest)))
    return tuple(rest)


def diff_test(before: LoadedRun, after: LoadedRun, test: str) -> CaptureDiff:
    """Returns the whole diff of one test. Raises Failure if a side does not have the test, or not all of it."""
    for run in (before, after):
        if test not in run.parts:
            raise Failure(f"{run.folder} has no test {test}")
        if not run.is_whole(test):
            raise Failure(f"{test} cannot be compared: {run.damaged[-1]}")
    captures = [run.make_capture(tuple(item for _, item in run.list_schedules(test))) for run in (before, after)]
    one, other = (replace(capture, snippet=test) for capture in captures)
    return diff_captures(one, other)


# *** changes


def find_changes(
    test: str, diff: ScheduleDiff, before: Schedule | None, after: Schedule | None
) -> Iterator[SuiteGroup]:
    """Yields the changes of a pair of schedules, or of a schedule that one side has: groups with one example."""
    if before is None and after is not None:
        yield _make_change(test, "schedule-new", (), after.kernels, after.line)
    elif after is None and before is not None:
        yield _make_change(test, "schedule-gone", before.kernels, (), before.line)
    elif before is not None and after is not None:
        yield from _find_kernel_changes(test, diff, before, after)
        if before.copies != after.copies:
            kind = "fewer-copies" if after.copies < before.copies else "more-copies"
            yield _make_change(test, kind, (), (), after.line, ratios=_divide(after.copies, before.copies))


def _make_change(
    test: str,
    kind: SuiteChangeKind,
    before: Sequence[Kernel],
    after: Sequence[Kernel],
    line: str | None,
    causes: tuple[str, ...] = (),
    ratios: tuple[float, ...] = (),
) -> SuiteGroup:
    return SuiteGroup(
        kind=kind,
        kernels_before=len(before),
        kernels_after=len(after),
        form=f"{describe_form(before)} -> {describe_form(after)}",
        causes=causes,
        ratios=ratios,
        count=1,
        cost_before=sum_costs(before),
        cost_after=sum_costs(after),
        tests=(test,),
        example=SuiteExample(
            test, line, tuple(kernel.name for kernel in before), tuple(kernel.name for kernel in after)
        ),
    )


def describe_form(kernels: Sequence[Kernel]) -> str:
    """Returns the first parts of kernel names: `2 r, E` for two reduces and an elementwise kernel."""
    counts = Counter(kernel.name.split("_")[0] for kernel in kernels)
    return join_counted(counts.most_common()) or "none"


def _divide(after: int, before: int) -> tuple[float, ...]:
    """Returns the ratio; nothing if one side is 0."""
    if not before or not after:
        return ()
    return (after / before,)


def _describe_group(change: SuiteGroup) -> tuple[object, ...]:
    """Returns what equal changes have in common: also how many of the steps the ratio exceeds, up or down."""
    steps = tuple(sum(max(ratio, 1 / ratio) > step for step in _STEPS) for ratio in change.ratios)
    direction = (change.added > 0) - (change.added < 0)
    return change.kind, change.kernels_before, change.kernels_after, change.form, change.causes, steps, direction


def _join_group(changes: list[SuiteGroup]) -> SuiteGroup:
    added: Counter[str] = Counter()
    for change in changes:
        added[change.example.test] += change.added
    worst = sorted(added, key=lambda test: (-abs(added[test]), test))
    ratios = sorted(chain.from_iterable(change.ratios for change in changes))
    return replace(
        changes[0],
        ratios=tuple(round(ratio, 4) for ratio in (*ratios[:1], *ratios[-1:])),
        count=len(changes),
        cost_before=sum(change.cost_before for change in changes),
        cost_after=sum(change.cost_after for change in changes),
        tests=tuple(worst),
        example=next(change.example for change in changes if change.example.test == worst[0]),
    )


def _find_kernel_changes(test: str, diff: ScheduleDiff, before: Schedule, after: Schedule) -> Iterator[SuiteGroup]:
    changed = [item for item in diff.kernels if item.status != "unchanged"]
    for items in join_related(changed, diff.pair_nodes()):
        left = _list_kernels(side for item in items for side in item.before)
        right = _list_kernels(side for item in items for side in item.after)
        kind, ratios = "regrouped", ()
        if len(items) == 1:
            kind, ratios = name_change(items[0])
        lines = [line for kernel in right or left for line in kernel.lines]
        causes = find_causes(left, right, before, after)
        yield _make_change(test, kind, left, right, next(iter(lines), after.line), causes, ratios)
    numbers = [side.number for item in diff.kernels for side in item.before]
    if not changed and numbers != sorted(numbers):
        yield _make_change(test, "other-order", before.kernels, after.kernels, after.line)


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
        for other in changes:
            if not item.after:
                touched |= {("after", number) for number in _computing_kernels(item.before, same, other.after)}
            elif not item.before:
                touched |= {("before", number) for number in _computing_kernels(item.after, back, other.before)}
        related = [group for group in groups if group[0] & touched]
        groups = [group for group in groups if group not in related]
        items: list[KernelChange] = []
        for kernels, joined in related:
            touched |= kernels
            items += joined
        groups.append((touched, [*items, item]))
    return [items for _, items in groups]


def _computing_kernels(lone: Iterable[KernelSide], names: Mapping[int, int], others: Iterable[KernelSide]) -> set[int]:
    """Returns the numbers of the `others` that compute the outputs of `lone`; `names` maps node ids to their side."""
    written = {names[node] for side in lone for node in side.kernel.outputs if node in names}
    return {side.number for side in others if written.intersection(side.kernel.nodes)}


# fields of a kernel, the most important first, with the kinds of a larger and a smaller value
_MEASURES: tuple[tuple[str, SuiteChangeKind, SuiteChangeKind], ...] = (
    ("launches", "more-launches", "fewer-launches"),
    ("executed_ops", "more-ops", "fewer-ops"),
    ("bytes", "more-bytes", "fewer-bytes"),
    ("threads", "more-threads", "fewer-threads"),
    ("local_bytes", "more-local-memory", "less-local-memory"),
)


def name_change(item: KernelChange) -> tuple[SuiteChangeKind, tuple[float, ...]]:
    """Returns the kind of a kernel's change, and the ratio of after to before, if any."""
    lone: dict[str, SuiteChangeKind] = {
        "fused-from": "fused",
        "split-into": "split",
        "only-before": "kernel-gone",
        "only-after": "kernel-new",
    }
    if item.status in lone:
        return lone[item.status], ()
    before, after = item.before[0].kernel, item.after[0].kernel
    for name, more, fewer in _MEASURES:
        one, other = getattr(before, name), getattr(after, name)
        if one < other:
            return more, _divide(other, one)
        if one > other:
            return fewer, _divide(other, one)
    if (before.global_size, before.local_size) != (after.global_size, after.local_size):
        return "other-launch-dimensions", ()
    return "other-source", ()


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
    for kernel in kernels:
        for node in map(index.node, kernel.outputs):
            if node is not None and node.realized is not None:
                yield f"{node.op}: {node.realized.detail or node.realized.reason}"
            elif node is not None:
                yield node.op
