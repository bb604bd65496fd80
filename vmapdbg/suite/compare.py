"""Compares two saved runs. The same change in many tests is one entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from vmapdbg.diff import CaptureDiff, diff_captures
from vmapdbg.model.capture import SCHEMA, Schedule
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import group_equal
from vmapdbg.suite.kinds import SuiteChange, find_changes, sum_costs
from vmapdbg.suite.result import SuiteDiff, SuiteExample, SuiteGroup, SuiteSide, SuiteTest
from vmapdbg.suite.saved import LoadedRun, name_test

# the id of a test and one change in it
_Found = tuple[str, SuiteChange]


def compare_runs(before: LoadedRun, after: LoadedRun) -> SuiteDiff:
    """Compares two saved runs test by test. Raises Failure if their kernels are for different targets."""
    if before.run.target != after.run.target:
        raise Failure(
            f"{before.folder} has kernels for {before.run.target} and {after.folder} for {after.run.target}: "
            "save one of them again with the --target of the other"
        )
    both = [test for test in before.parts if test in after.parts]
    whole = [test for test in both if before.is_whole(test) and after.is_whole(test)]
    found: list[_Found] = []
    changed: list[SuiteTest] = []
    for test in sorted(whole):
        changes = list(compare_test(before, after, test))
        if changes:
            _, kernels_before, cost_before = _count(before, [test])
            _, kernels_after, cost_after = _count(after, [test])
            changed.append(SuiteTest(test, kernels_before, kernels_after, cost_before, cost_after))
        found += [(test, change) for change in changes]
    groups = group_equal(found, lambda item: item[1].key)
    left_out = set(both) - set(whole)
    return SuiteDiff(
        schema=SCHEMA,
        kind="suite-diff",
        before=_describe_side(before),
        after=_describe_side(after),
        unchanged=len(whole) - len(changed),
        changed=tuple(sorted(changed, key=lambda item: item.cost_before - item.cost_after)),
        only_before=_list_lone(before, after),
        only_after=_list_lone(after, before),
        groups=tuple(sorted(map(_make_group, groups), key=_rank)),
        left_out=tuple(sorted(left_out)),
        damaged=(*before.damaged, *after.damaged),
    )


def _list_lone(run: LoadedRun, other: LoadedRun) -> tuple[str, ...]:
    """Returns the tests that only one run has. Tests that the other run may have in a damaged file are left out."""
    lone = (test for test in run.parts if test not in other.parts)
    return tuple(sorted(test for test in lone if name_test(test) not in other.unread | run.unread))


def compare_test(before: LoadedRun, after: LoadedRun, test: str) -> Iterator[SuiteChange]:
    """Yields the changes of one test. Equal schedules have the same file and are not compared."""
    left, right = list_schedules(before, test), list_schedules(after, test)
    common = Counter(name for name, _ in left) & Counter(name for name, _ in right)
    some_before, some_after = _take_out(left, common), _take_out(right, common)
    if some_before or some_after:
        diff = diff_captures(before.make_capture(some_before), after.make_capture(some_after))
        for item in diff.schedules:
            one = None if item.before is None else some_before[item.before]
            other = None if item.after is None else some_after[item.after]
            yield from find_changes(item, one, other)


def list_schedules(run: LoadedRun, test: str) -> list[tuple[str, Schedule]]:
    """Returns the schedules of a test in order, each with the name of its file and as often as it was asked for."""
    found: list[tuple[str, Schedule]] = []
    for asked in run.asked_by(test):
        schedule = run.schedule(asked.schedule)
        assert schedule is not None, "a test that is not whole is left out"
        for _ in range(asked.count):
            found.append((asked.schedule, replace(schedule, index=len(found), line=asked.line)))
    return found


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
    captures = [run.make_capture(tuple(item for _, item in list_schedules(run, test))) for run in (before, after)]
    one, other = (replace(capture, snippet=test) for capture in captures)
    return diff_captures(one, other)


# *** sums


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
        failed=sum(len(part.failed) for parts in run.parts.values() for part in parts),
    )


# *** groups


def _make_group(found: list[_Found]) -> SuiteGroup:
    changes = [change for _, change in found]
    first = changes[0]
    added: Counter[str] = Counter()
    for test, change in found:
        before, after = change.costs
        added[test] += after - before
    worst = sorted(added, key=lambda test: (-abs(added[test]), test))
    example_test, example = next(item for item in found if item[0] == worst[0])
    ratios = [change.ratio for change in changes if change.ratio is not None]
    return SuiteGroup(
        kind=first.kind,
        kernels_before=len(first.before),
        kernels_after=len(first.after),
        form=first.form,
        causes=first.causes,
        ratios=(round(min(ratios), 4), round(max(ratios), 4)) if ratios else (),
        count=len(changes),
        cost_before=sum(change.costs[0] for change in changes),
        cost_after=sum(change.costs[1] for change in changes),
        tests=tuple(worst),
        example=SuiteExample(
            test=example_test,
            line=example.line,
            before=tuple(kernel.name for kernel in example.before),
            after=tuple(kernel.name for kernel in example.after),
        ),
    )


def _rank(group: SuiteGroup) -> tuple[object, ...]:
    return -group.added, -len(group.tests), group.kind, group.form, group.causes, group.tests
