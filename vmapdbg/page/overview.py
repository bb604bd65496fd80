"""What a whole run comes to, or what changed between two: kernels, lines, methods and rules, each as a pair."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal, NamedTuple, TypeVar

from vmapdbg.diff.result import KernelChange, ScheduleDiff
from vmapdbg.model import schedule_index
from vmapdbg.model.capture import Bufferize, Capture, Kernel, Node, Schedule
from vmapdbg.model.ops import COMPUTES_NOTHING, ELEMENTWISE, REDUCES
from vmapdbg.model.schedule_index import ScheduleIndex, group_equal, index_of, kernel_identity, work_identity
from vmapdbg.model.vocabulary import Sort
from vmapdbg.page.sentences import Names, find_reason, say_briefly
from vmapdbg.page.view import View

_Key = TypeVar("_Key", bound=Hashable)

_MOST_KERNELS = 12
_MOST_NODES = 250
"""A run with more programs or more nodes than this is shown by its overview; so is a diff with more changes."""
_MOST_SOURCE, _MOST_CHANGED = 600, 1000
"""A run with more lines of source than this is shown by its overview, and a diff with more in changed kernels."""

_MOST_LINES, _PART_HEAD = 60, 8

NO_PHASE = "unknown"


@dataclass
class Cost:
    """Sums over kernels; `seconds` is 0 if not timed. `works` counts kernels that do the same, `programs` has their
    programs. `peak` is the most bytes that values have during one kernel, `median` the longest launch. Lines, methods
    and phases also count the buffers they keep, methods the user's lines; a function has the bytes of its buffers."""

    kernels: int = 0
    launches: int = 0
    ops: int = 0
    bytes: int = 0
    seconds: float = 0
    kept: int = 0
    held: int = 0
    peak: int = 0
    median: float = 0
    backward_ops: int = 0
    backward_seconds: float = 0
    lines: dict[str, None] = field(default_factory=dict[str, None])
    works: Counter[Hashable] = field(default_factory=Counter[Hashable])
    programs: dict[str, None] = field(default_factory=dict[str, None])

    def add(self, kernel: Kernel, places: int = 0) -> None:
        """Adds a kernel and its share of its program's time: total time / number of places; no time for 0 places."""
        seconds = schedule_index.sum_times(kernel.measured) / places if places else 0
        self.kernels += 1
        self.launches += kernel.launches
        self.ops += kernel.executed_ops
        self.bytes += kernel.bytes
        self.seconds += seconds
        self.peak = max(self.peak, kernel.peak or 0)
        self.median = max(self.median, 0 if kernel.measured is None else kernel.measured.median)
        self.programs[kernel_identity(kernel)] = None
        self.works[work_identity(kernel)] += 1
        if kernel.phase == "backward":
            self.backward_ops += kernel.executed_ops
            self.backward_seconds += seconds

    @property
    def backward(self) -> float:
        """The share of gradients: in the time, or in the ops if nothing was timed."""
        return self.backward_seconds / self.seconds if self.seconds else self.backward_ops / max(self.ops, 1)

    @property
    def repeats(self) -> int:
        """How many equal groups the kernels form: the layers of a network, for example."""
        return math.gcd(*self.works.values())

    @property
    def rank(self) -> tuple[float, ...]:
        """Orders costs by the most time first, then by work."""
        return -self.seconds, -self.ops, -self.bytes

    @property
    def amounts(self) -> dict[Sort, float]:
        """What costs can be sorted by, except their names."""
        names: tuple[Sort, ...] = ("time", "median", "times", "ops", "bytes")
        return dict(zip(names, (self.seconds, self.median, self.launches, self.ops, self.bytes), strict=True))

    def rank_by(self, sort: Sort | None, name: str) -> tuple[float | str, ...]:
        """Orders costs with their names: the largest first; by name from the first letter on."""
        if sort is None:
            return self.rank
        return (name,) if sort == "name" else (-self.amounts[sort], name)


def count_programs(capture: Capture) -> Counter[str]:
    """Returns source -> the number of kernels of a run that have it."""
    return Counter(kernel.source for kernel in capture.kernels)


def sum_costs(capture: Capture, list_keys: Callable[[ScheduleIndex, Kernel], Iterable[_Key]]) -> dict[_Key, Cost]:
    """Returns key -> the sums over the kernels of a run with that key. Kernels of one program share its time."""
    programs = count_programs(capture)
    found: dict[_Key, Cost] = {}
    for schedule in capture.schedules:
        for kernel in schedule.kernels:
            for key in list_keys(index_of(schedule), kernel):
                found.setdefault(key, Cost()).add(kernel, programs[kernel.source])
    return found


def sum_kernels(capture: Capture, *, without_line: bool = False) -> Cost:
    """Returns the sums over all kernels of a run, or only over the kernels that have no line of the user."""
    counted = sum_costs(capture, lambda _, kernel: [] if without_line and kernel.lines else ["all"])
    return counted.get("all", Cost())


class Place(NamedTuple):
    """A pair of kernels, and the pair of schedules that has it."""

    pair: ScheduleDiff
    change: KernelChange


@dataclass
class KernelRow:
    """Equal kernels, or equal changes, as one row, with sums over all places. `lines` have their names after."""

    places: list[Place]
    before: Cost
    after: Cost
    lines: dict[str, None]

    @property
    def change(self) -> KernelChange:
        """The first of the equal changes."""
        return self.places[0].change

    @property
    def kernel(self) -> Kernel:
        """The first kernel, after if it is on that side."""
        return (self.change.after or self.change.before)[0].kernel

    @property
    def is_changed(self) -> bool:
        """Whether the sides differ."""
        return self.change.status != "unchanged"

    @property
    def is_timed(self) -> bool:
        """Whether kernels were timed on both sides."""
        return bool(self.before.seconds and self.after.seconds)


def _rank_change(row: "KernelRow | CostRow") -> tuple[int, int]:
    return -abs(row.after.ops - row.before.ops), -abs(row.after.bytes - row.before.bytes)


def _rank_kernels(row: KernelRow) -> tuple[float, ...]:
    """Orders rows by the largest change first: of time if both sides were timed, of ops, of bytes."""
    seconds = abs(row.after.seconds - row.before.seconds) * row.is_timed
    return -seconds, *_rank_change(row), -max(row.after.ops, row.before.ops)


def group_kernels(view: View, *, unchanged: bool = False) -> list[KernelRow]:
    """Returns the kernels of a view; equal kernels share a row. Of one run: all kernels, sorted as asked, or else by
    time or work. Of two runs: the changed kernels, the largest change first; with `unchanged` also the others."""
    every = [Place(pair, change) for pair in view.schedules for change in pair.kernels]
    if view.is_pair and not unchanged:
        every = [place for place in every if place.change.status != "unchanged"]
    programs = {side: count_programs(getattr(view, side)) for side in ("before", "after")}
    rows: list[KernelRow] = []
    for places in group_equal(every, lambda place: identify_change(place.change)):
        row = KernelRow(places, Cost(), Cost(), {})
        for place in places:
            for side, cost in (("before", row.before), ("after", row.after)):
                for item in getattr(place.change, side):
                    cost.add(item.kernel, programs[side][item.kernel.source])
            lines = [line for item in place.change.after for line in item.kernel.lines]
            if not place.change.after:
                lines = [view.name_line(line) for item in place.change.before for line in item.kernel.lines]
            row.lines |= dict.fromkeys(lines)
        rows.append(row)
    if view.is_pair:
        return sorted(rows, key=_rank_kernels)
    return sorted(rows, key=lambda row: row.after.rank_by(view.sort, row.kernel.name))


def identify_change(change: KernelChange) -> Hashable:
    """Returns what equal changes of kernels share: the programs of both sides, with their names."""
    programs = ((kernel_identity(side.kernel), side.kernel.name) for side in change.sides)
    return change.status, len(change.before), *programs


def is_long(view: View) -> bool:
    """Whether a view is too long to be shown whole, without repeated and trivial parts; of two runs, its changes."""
    if not view.is_pair:
        distinct = map(view.after.schedules.__getitem__, schedule_index.find_distinct(view.after))
        shown = [schedule for schedule in distinct if not say_trivial(schedule)]
        kernels = [kernel for schedule in shown for kernel in schedule.kernels]
        nodes = sum(len(schedule.nodes) for schedule in shown)
        is_many = len(set(map(kernel_identity, kernels))) > _MOST_KERNELS or nodes > _MOST_NODES
        return is_many or _count_source(kernels) > _MOST_SOURCE
    rows = group_kernels(view)
    changed = [pair for pair in view.schedules if pair.is_pair and not pair.is_empty]
    distinct = group_equal(changed, lambda pair: tuple(map(identify_change, pair.kernels)))
    nodes = sum(len(s.nodes) + len(s.nodes_only_before) + len(s.nodes_only_after) for s, *_ in distinct)
    if len(rows) > _MOST_KERNELS or nodes > _MOST_NODES:
        return True
    return sum(side.kernel.source.count("\n") for row in rows for side in row.change.sides) > _MOST_CHANGED


def _count_source(kernels: Iterable[Kernel]) -> int:
    return sum(source.count("\n") for source in {kernel.source for kernel in kernels})


def say_trivial(schedule: Schedule) -> str:
    """Returns what a schedule does if it only copies, or makes values out of nothing; else nothing."""
    if not schedule.kernels:
        return "only copies" * bool(schedule.copies)
    phases = {node.phase for node in schedule.nodes if node.op in ELEMENTWISE or node.op in REDUCES}
    return "only makes random numbers or constants" * (phases == {"data"})


def is_long_part(view: View) -> bool:
    """Tells whether a part of one run, printed whole, is longer than a page."""
    sizes = [_PART_HEAD + len(pair.nodes) + len(pair.bufferizes) + 3 * len(pair.kernels) for pair in view.schedules]
    kernels = [item.kernel for pair in view.schedules for change in pair.kernels for item in change.after]
    return sum(sizes) + _count_source(kernels) > _MOST_LINES


def group_buffers(view: View) -> list[list[tuple[int, Node, Bufferize]]]:
    """Returns the buffers that one run keeps, with their schedules and nodes: equal ones together, most bytes first."""
    kept: list[tuple[int, Node, Bufferize]] = []
    for pair in view.schedules:
        nodes = {change.after.id: change.after for change in pair.nodes}
        made = (change.after for change in pair.bufferizes)
        kept += [(pair.index, nodes[one.node], one) for one in made if one and one.outcome == "kept"]
    groups = group_equal(kept, lambda one: (one[1].op, one[1].line, one[2].bytes, one[2].reason))
    return sorted(groups, key=lambda group: -sum(made.bytes for _, _, made in group))


class CostRow(NamedTuple):
    """What a line of the user, or a method of Tensor, comes to. `name` is the line's name after, or the method's."""

    name: str
    before: Cost
    after: Cost

    @property
    def is_changed(self) -> bool:
        """Whether it has other kernels, more or less work, or keeps more or fewer buffers."""
        amounts = attrgetter("kernels", "launches", "ops", "bytes", "kept")
        return amounts(self.before) != amounts(self.after)


By = Literal["line", "method", "phase"]
"""A kernel counts for each line and method that it computes a value of (a reshape computes none), so their sum is more
than the run. It has the phase (forward, backward, ...) of its main node."""


def count_costs(view: View, by: By) -> list[CostRow]:
    """Returns a row for each line, method or phase, most work first. Of two runs: only rows that changed, the largest
    change first."""
    rows = pair_costs(view, by)
    if view.is_pair:
        return sorted((row for row in rows if row.is_changed), key=lambda row: (*_rank_change(row), row.name))
    return sorted(rows, key=lambda row: (*row.after.rank, row.name))


def pair_costs(view: View, by: By) -> list[CostRow]:
    """Returns all rows in the order of the captures."""
    before = after = _count_costs(view.after, by)
    if view.is_pair:
        before = {view.name_line(name): cost for name, cost in _count_costs(view.before, by).items()}
    return [CostRow(name, before.get(name, Cost()), after.get(name, Cost())) for name in {**before, **after}]


def _count_costs(capture: Capture, by: By) -> dict[str, Cost]:
    """Returns line, method or phase -> cost. A method has the lines that call it."""
    called_at: dict[str, dict[str, None]] = {}

    def list_names(index: ScheduleIndex, kernel: Kernel) -> Iterable[str]:
        if by == "line":
            return dict.fromkeys(kernel.lines)
        if by == "phase":
            return [kernel.phase or NO_PHASE]
        computed = [node for node in map(index.node, kernel.nodes) if node and node.op not in COMPUTES_NOTHING]
        for node in computed:
            if node.method is not None and node.line is not None:
                called_at.setdefault(node.method, {})[node.line] = None
        return dict.fromkeys(node.method for node in computed if node.method is not None)

    found = sum_costs(capture, list_names)
    for name, lines in called_at.items():
        found[name].lines = lines
    for schedule in capture.schedules:
        for node in schedule.nodes:
            name = getattr(node, by)
            if name is not None and index_of(schedule).find_kept(node.id) is not None:
                found.setdefault(name, Cost()).kept += 1
    return found


@dataclass
class RuleCount:
    """The nodes at which a rule asks for a buffer. `bytes` sums the `kept` ones; `example` names the first node."""

    why: str
    example: str
    nodes: int = 0
    kept: int = 0
    bytes: int = 0


class RuleRow(NamedTuple):
    """What a rule that asks for buffers did on both sides, in the whole run or for one `line`, by its name after."""

    line: str
    before: RuleCount
    after: RuleCount

    @property
    def why(self) -> str:
        """What the rule means, with the numbers of one node."""
        return self.after.why or self.before.why


def count_rules(view: View, *, by_line: bool = False) -> list[RuleRow]:
    """Returns the rules that ask for buffers, of the run or by line: most nodes first, of two runs largest change."""
    # a statement of tinygrad is on another line in each release: compare two runs by the statement itself
    before = after = _count_rules(view.after, str if by_line else None, by_statement=view.is_pair)
    if view.is_pair:
        before = _count_rules(view.before, view.name_line if by_line else None, by_statement=True)
    none = RuleCount("", "")
    rows = [RuleRow(key[0], before.get(key, none), after.get(key, none)) for key in {**after, **before}]
    rows.sort(key=lambda row: -max(row.before.nodes, row.after.nodes))
    return sorted(rows, key=lambda row: -abs(row.after.nodes - row.before.nodes))


def _count_rules(
    capture: Capture, name_line: Callable[[str], str] | None, *, by_statement: bool
) -> dict[tuple[str, str, Hashable], RuleCount]:
    """Returns counts by line (if named) and rule; without a rule, by the statement or line in tinygrad that decided."""
    found: dict[tuple[str, str, Hashable], RuleCount] = {}
    for schedule in capture.schedules:
        index = index_of(schedule)
        for node in schedule.nodes:
            if node.realized is None:
                continue
            reason, place = find_reason(node.realized), None
            if reason.at is not None and reason.rule == "decided-at":
                place = reason.at.text if by_statement else (reason.at.text, reason.at.file, reason.at.line)
            key = name_line(node.line or "") if name_line else "", reason.rule, place
            if key not in found:
                why = say_briefly(node.realized, Names(index.op))
                found[key] = RuleCount(why, schedule_index.name_node(schedule.index, node.id))
            count = found[key]
            count.nodes += 1
            if made := index.find_kept(node.id):
                count.kept += 1
                count.bytes += made.bytes
    return dict(sorted(found.items(), key=lambda item: -item[1].nodes))
