"""Compares two saved runs. The same change in many tests is one entry.

A cost is a kernel's time on a made-up machine, only to rank changes: 1 op a ns on each of at most 1,000 threads, 100
bytes a ns, 1,000 ns a launch. A kernel takes the longer of computing and moving (a roofline), and its launches."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from vmapdbg.diff.captures import diff_captures
from vmapdbg.diff.result import CaptureDiff, KernelChange, KernelSide, ScheduleDiff
from vmapdbg.model.capture import SCHEMA, Capture, Kernel, Schedule, Versions
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import group_equal, index_of
from vmapdbg.model.vocabulary import KernelField, KernelStatus, Mode, SuiteChangeKind
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

    @property
    def name(self) -> str:
        """The folder, which the user gave."""
        return self.folder

    @property
    def snippet(self) -> str:
        """The program as one line."""
        return " ".join(self.program)

    @property
    def mode(self) -> Mode:
        """Whether tinygrad had the overlay: then every patch has a state."""
        return "overlay" if self.patches else "observe"


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
    of after to before, if any. `cost_before` and `cost_after` are sums."""

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
    damaged file; `damaged` has a line for each such file."""

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


def _describe_side(run: LoadedRun) -> SuiteSide:
    captures = [run.make_capture(test) for test in run.tests]
    kernels = [kernel for capture in captures for kernel in capture.kernels]
    return SuiteSide(
        folder=str(run.folder),
        versions=run.run.versions,
        target=run.run.target,
        patches=run.run.patches,
        program=run.run.program,
        status=run.run.status,
        tests=len(run.tests),
        schedules=sum(len(capture.schedules) for capture in captures),
        kernels=len(kernels),
        cost=sum_costs(kernels),
        failed=sum(not asked.schedule for asked in chain.from_iterable(run.tests.values())),
    )


# *** test by test


def compare_runs(before: LoadedRun, after: LoadedRun) -> SuiteDiff:
    """Compares two saved runs test by test. Raises Failure if their kernels are for different targets."""
    if before.run.target != after.run.target:
        raise Failure(
            f"{before.folder} has kernels for {before.run.target} and {after.folder} for {after.run.target}: "
            "save one of them again with the --target of the other"
        )
    both = [test for test in before.tests if test in after.tests]
    whole = [test for test in both if before.is_whole(test) and after.is_whole(test)]
    found: list[SuiteGroup] = []
    changed: list[SuiteTest] = []
    for test in sorted(whole):
        changes = list(_compare_test(before, after, test))
        if changes:
            one, other = (list(run.make_capture(test).kernels) for run in (before, after))
            changed.append(SuiteTest(test, len(one), len(other), sum_costs(one), sum_costs(other)))
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
    return tuple(sorted(test for test in run.tests if test not in other.tests and name_test(test) not in unread))


def _compare_test(before: LoadedRun, after: LoadedRun, test: str) -> Iterator[SuiteGroup]:
    """Yields the changes of one test. Equal schedules have the same file and are not compared."""
    asked_before, asked_after = before.count_asked(test), after.count_asked(test)
    if asked_before != asked_after:
        common = asked_before & asked_after
        captures = before.make_capture(test, common), after.make_capture(test, common)
        for diff in diff_captures(*captures).schedules:
            yield from find_changes(test, diff, *captures)


def diff_test(before: LoadedRun, after: LoadedRun, test: str) -> CaptureDiff:
    """Returns the whole diff of one test. Raises Failure if a side does not have the test, or not all of it."""
    for run in (before, after):
        if test not in run.tests:
            raise Failure(f"{run.folder} has no test {test}")
        if not run.is_whole(test):
            raise Failure(f"{test} cannot be compared: {run.damaged[-1]}")
    return diff_captures(before.make_capture(test), after.make_capture(test))


# *** changes


def find_changes(test: str, diff: ScheduleDiff, before: Capture, after: Capture) -> Iterator[SuiteGroup]:
    """Yields the changes of a pair of schedules, or of one side's schedule, as groups with one example."""
    left, right = _list_kernels(diff.kernels)
    if diff.before is None or diff.after is None:
        kind = "schedule-new" if diff.before is None else "schedule-gone"
        yield _make_change(test, kind, left, right, diff.line_after or diff.line_before)
        return
    changed = [item for item in diff.kernels if item.status != "unchanged"]
    for items in join_related(changed, diff.pair_nodes()):
        kind, ratios = name_change(items[0]) if len(items) == 1 else ("regrouped", ())
        some, others = _list_kernels(items)
        lines = [line for kernel in others or some for line in kernel.lines]
        causes = find_causes(some, others, before.schedules[diff.before], after.schedules[diff.after])
        yield _make_change(test, kind, some, others, next(iter(lines), diff.line_after), causes, ratios)
    numbers = [side.number for item in diff.kernels for side in item.before]
    if not changed and numbers != sorted(numbers):
        yield _make_change(test, "other-order", left, right, diff.line_after)
    copies, copies_after = before.schedules[diff.before].copies, after.schedules[diff.after].copies
    if copies != copies_after:
        kind = "more-copies" if copies < copies_after else "fewer-copies"
        yield _make_change(test, kind, (), (), diff.line_after, ratios=_find_ratios(copies, copies_after))


def _list_kernels(items: Iterable[KernelChange]) -> tuple[tuple[Kernel, ...], tuple[Kernel, ...]]:
    """Returns the kernels of both sides, each once: a kernel may be split and fused at the same time."""
    every = list(items)
    before = {side.number: side.kernel for item in every for side in item.before}
    after = {side.number: side.kernel for item in every for side in item.after}
    return tuple(before[number] for number in sorted(before)), tuple(after[number] for number in sorted(after))


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
        example=SuiteExample(test, line, *(tuple(kernel.name for kernel in side) for side in (before, after))),
    )


def describe_form(kernels: Sequence[Kernel]) -> str:
    """Returns the first parts of kernel names: `2 r, E` for two reduces and an elementwise kernel."""
    counts = Counter(kernel.name.split("_")[0] for kernel in kernels)
    return join_counted(counts.most_common()) or "none"


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


_SideKernel = tuple[Literal["before", "after"], int]  # a side and the number of a kernel


def join_related(changes: Sequence[KernelChange], same: Mapping[int, int]) -> list[list[KernelChange]]:
    """Joins changes with a common kernel, and a kernel of one side with the changed kernels of the other side that
    compute its outputs: values moved between kernels. `same` maps node ids of before to ids of after."""
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
        touched = touched.union(*(kernels for kernels, _ in related))
        groups.append((touched, [*chain.from_iterable(items for _, items in related), item]))
    return [items for _, items in groups]


def _computing_kernels(lone: Iterable[KernelSide], names: Mapping[int, int], others: Iterable[KernelSide]) -> set[int]:
    """Returns the numbers of the `others` that compute the outputs of `lone`; `names` maps node ids to their side."""
    written = {names[node] for side in lone for node in side.kernel.outputs if node in names}
    return {side.number for side in others if written.intersection(side.kernel.nodes)}


# fields, the most important first, with the kinds of a larger and a smaller value
_OF_FIELDS: dict[KernelField, tuple[SuiteChangeKind, SuiteChangeKind]] = {
    "launches": ("more-launches", "fewer-launches"),
    "executed_ops": ("more-ops", "fewer-ops"),
    "bytes": ("more-bytes", "fewer-bytes"),
    "threads": ("more-threads", "fewer-threads"),
    "local_bytes": ("more-local-memory", "less-local-memory"),
}
_OF_PARTS: dict[KernelStatus, SuiteChangeKind] = {
    "fused-from": "fused",
    "split-into": "split",
    "only-before": "kernel-gone",
    "only-after": "kernel-new",
}


def name_change(item: KernelChange) -> tuple[SuiteChangeKind, tuple[float, ...]]:
    """Returns the kind of a kernel's change, and the ratio of after to before, if any."""
    if item.status in _OF_PARTS:
        return _OF_PARTS[item.status], ()
    before, after = item.before[0].kernel, item.after[0].kernel
    for name, (more, fewer) in _OF_FIELDS.items():
        one, other = getattr(before, name), getattr(after, name)
        if one != other:
            return more if one < other else fewer, _find_ratios(one, other)
    is_same = (before.global_size, before.local_size) == (after.global_size, after.local_size)
    return "other-source" if is_same else "other-launch-dimensions", ()


def _find_ratios(before: int, after: int) -> tuple[float, ...]:
    return (after / before,) if before and after else ()


def find_causes(left: Sequence[Kernel], right: Sequence[Kernel], before: Schedule, after: Schedule) -> tuple[str, ...]:
    """Returns realize points that only one side's kernels write; none if both have as many kernels: buffers moved."""
    if len(left) == len(right):
        return ()
    written = [Counter(_describe_outputs(kernels, side)) for kernels, side in ((left, before), (right, after))]
    gone = [f"-{name}" for name in written[0] - written[1]]
    new = [f"+{name}" for name in written[1] - written[0]]
    return (*sorted(gone), *sorted(new))


def _describe_outputs(kernels: Sequence[Kernel], schedule: Schedule) -> Iterator[str]:
    index = index_of(schedule)
    for node in filter(None, map(index.node, chain.from_iterable(kernel.outputs for kernel in kernels))):
        yield node.op if node.realized is None else f"{node.op}: {node.realized.detail or node.realized.reason}"
