"""What changed between two runs, and what that comes to: kernels, lines of the user, rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vmapdbg.diff import CaptureDiff, KernelChange, KernelSide, ScheduleDiff
from vmapdbg.model.capture import Capture, Kernel
from vmapdbg.model.schedule_index import kernel_identity, sum_times
from vmapdbg.page.overview.decisions import RealizedCount, count_realized
from vmapdbg.page.overview.kernels import MOST_KERNELS, MOST_NODES, Work
from vmapdbg.page.overview.lines import LineCost, count_lines

_MOST_SOURCE = 1000
"""So many lines of source in changed kernels are still printed."""


@dataclass(frozen=True)
class Comparison:
    """Two captures and what is between them."""

    before: Capture
    after: Capture
    diff: CaptureDiff


@dataclass
class Cost(Work):
    """What some kernels come to. `seconds` is what those that were timed took, 0 where none was."""

    seconds: float = 0

    def add_one_of(self, kernel: Kernel, places: int) -> None:
        """Adds a kernel, and of the time of its program, which is that of all its `places`, the share of one."""
        self.add(kernel)
        self.seconds += sum_times(kernel.measured) / places


@dataclass(frozen=True)
class Place:
    """A change of kernels: its schedule, and its position in the `kernels` of that."""

    schedule: ScheduleDiff
    position: int


@dataclass
class ChangeGroup:
    """Changes of kernels that are equal, the layers of a network, as one: `change` is the first of them, `places` are
    where they all stand, `before` and `after` what they come to together, `lines` the user's, as they are after."""

    change: KernelChange
    places: list[Place] = field(default_factory=list[Place])
    before: Cost = field(default_factory=Cost)
    after: Cost = field(default_factory=Cost)
    lines: dict[str, None] = field(default_factory=dict[str, None])

    @property
    def rank(self) -> tuple[float, int, int, int]:
        """The largest change is the smallest: of time where both sides were timed, of ops, of bytes."""
        seconds = 0.0
        if self.before.seconds and self.after.seconds:
            seconds = abs(self.after.seconds - self.before.seconds)
        ops, moved = self.after.ops - self.before.ops, self.after.bytes - self.before.bytes
        return -seconds, -abs(ops), -abs(moved), -max(self.after.ops, self.before.ops)


def group_changes(diff: CaptureDiff, *, unchanged: bool = False) -> list[ChangeGroup]:
    """Returns the kernels that are not the same on both sides, the largest change first. `unchanged` returns those that
    are the same, too."""
    groups: dict[object, ChangeGroup] = {}
    before, after = _count_programs(diff)
    for schedule in diff.schedules:
        for position, change in enumerate(schedule.kernels):
            if change.status == "unchanged" and not unchanged:
                continue
            group = groups.setdefault(_identify(change), ChangeGroup(change))
            group.places.append(Place(schedule, position))
            _add(group.before, change.before, before)
            _add(group.after, change.after, after)
            group.lines |= dict.fromkeys(find_lines(diff, change))
    return sorted(groups.values(), key=lambda group: group.rank)


def find_lines(diff: CaptureDiff, change: KernelChange) -> Iterator[str]:
    """Yields the user's lines of some kernels, as they are after."""
    if change.after:
        for side in change.after:
            yield from side.kernel.lines
        return
    for side in change.before:
        yield from (diff.same_lines.get(line, line) for line in side.kernel.lines)


def _identify(change: KernelChange) -> object:
    sides = (change.before, change.after)
    programs = [[(kernel_identity(side.kernel), side.kernel.name) for side in some] for some in sides]
    return change.status, repr(programs)


def _count_programs(diff: CaptureDiff) -> tuple[Counter[str], Counter[str]]:
    """How many kernels of each side are one program, by their source."""
    before, after = Counter[str](), Counter[str]()
    for schedule in diff.schedules:
        # one that was split stands in one change, and so does one that others were fused into
        sides = [(change.before, change.after) for change in schedule.kernels]
        before.update({side.number: side.kernel.source for one, _ in sides for side in one}.values())
        after.update({side.number: side.kernel.source for _, other in sides for side in other}.values())
    return before, after


def _add(cost: Cost, sides: Iterable[KernelSide], programs: Mapping[str, int]) -> None:
    for side in sides:
        cost.add_one_of(side.kernel, programs[side.kernel.source])


def sum_kernels(capture: Capture) -> Cost:
    """Returns what all kernels of a run come to."""
    cost = Cost()
    programs = Counter(kernel.source for kernel in capture.kernels)
    for kernel in capture.kernels:
        cost.add_one_of(kernel, programs[kernel.source])
    return cost


# *** how much there is


def find_distinct_changes(diff: CaptureDiff) -> list[ScheduleDiff]:
    """Returns the pairs of schedules that changed, of those whose kernels changed in the same way the first."""
    first: dict[object, ScheduleDiff] = {}
    for schedule in diff.schedules:
        if schedule.is_pair and not schedule.is_empty:
            first.setdefault(repr([_identify(change) for change in schedule.kernels]), schedule)
    return list(first.values())


def count_changed_nodes(schedules: Sequence[ScheduleDiff]) -> int:
    """Returns how many nodes were treated differently, or are on one side alone."""
    return sum(len(s.nodes) + len(s.nodes_only_before) + len(s.nodes_only_after) for s in schedules)


def is_long_diff(diff: CaptureDiff) -> bool:
    """Tells whether more changed than one looks through: by the limits that make a run long, of what changed, or by the
    source of the kernels that did."""
    groups = group_changes(diff)
    if len(groups) > MOST_KERNELS or count_changed_nodes(find_distinct_changes(diff)) > MOST_NODES:
        return True
    return sum(map(_count_source, groups)) > _MOST_SOURCE


def _count_source(group: ChangeGroup) -> int:
    return sum(side.kernel.source.count("\n") for side in (*group.change.before, *group.change.after))


# *** lines and rules


@dataclass(frozen=True)
class LineChange:
    """What a line of the user comes to on both sides; `line` is where it stands after, before for one that is only
    there."""

    line: str
    before: LineCost
    after: LineCost

    @property
    def is_changed(self) -> bool:
        """Whether it has other kernels, more or less work, or other realized nodes."""
        return _amounts(self.before) != _amounts(self.after)

    @property
    def rank(self) -> tuple[int, int, str]:
        """The largest change is the smallest."""
        ops, moved = self.after.ops - self.before.ops, self.after.bytes - self.before.bytes
        return -abs(ops), -abs(moved), self.line


def _amounts(cost: LineCost) -> tuple[int, ...]:
    return cost.kernels, cost.launches, cost.ops, cost.bytes, cost.realized


def compare_lines(comparison: Comparison) -> list[LineChange]:
    """Returns the lines whose kernels or realized nodes changed, the largest change of work first."""
    before = count_lines_of(comparison.before, comparison.diff.same_lines)
    after = count_lines_of(comparison.after, {})
    pairs = (LineChange(n, before.get(n, LineCost(n)), after.get(n, LineCost(n))) for n in {**before, **after})
    return sorted((pair for pair in pairs if pair.is_changed), key=lambda pair: pair.rank)


def count_lines_of(capture: Capture, same_lines: Mapping[str, str]) -> dict[str, LineCost]:
    """Returns what each line of a run comes to, by its name in `same_lines`, else by its own."""
    return {same_lines.get(cost.line, cost.line): cost for cost in count_lines(capture)}


@dataclass(frozen=True)
class RuleChange:
    """How many nodes a rule realized on both sides; None: none there."""

    before: RealizedCount | None
    after: RealizedCount | None

    @property
    def nodes(self) -> tuple[int, int]:
        """The nodes before and after."""
        before, after = (0 if side is None else side.nodes for side in (self.before, self.after))
        return before, after


def compare_realized(comparison: Comparison) -> list[RuleChange]:
    """Returns the rules that realized nodes, the largest change first, then those with most nodes."""
    before, after = _count_rules(comparison.before), _count_rules(comparison.after)
    changes = [RuleChange(before.get(rule), after.get(rule)) for rule in {**after, **before}]
    return sorted(changes, key=lambda change: (-abs(change.nodes[1] - change.nodes[0]), -max(change.nodes)))


def _count_rules(capture: Capture) -> dict[tuple[str, str], RealizedCount]:
    found: dict[tuple[str, str], RealizedCount] = {}
    for count in count_realized(capture):
        known = found.setdefault(_name_rule(count), count)
        if known is not count:
            known.nodes += count.nodes
            known.kept += count.kept
            known.bytes += count.bytes
    return found


def _name_rule(count: RealizedCount) -> tuple[str, str]:
    """What has no rule is told apart by the statement that decided: it stands on another line in each release."""
    if count.rule != "decided-at" or count.reason is None or count.reason.at is None:
        return count.rule, ""
    return count.rule, count.reason.at.text
