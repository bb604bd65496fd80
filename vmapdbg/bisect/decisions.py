"""Finds the scheduler's decision that changes the outcome: a node forced to be a buffer, or a realize point let go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from vmapdbg.bisect.search import Ask, Searcher
from vmapdbg.install.job import Choice
from vmapdbg.model.capture import Capture, Node, Schedule

Choices = frozenset[Choice]

MOST_NEIGHBOURS = 8
"""If one node makes the outcome right, this many nodes near it are tried: often each of several does."""

# ops that hold, move, cut or name values, but compute none
_NOT_COMPUTED = frozenset(
    {
        *("RESHAPE", "PERMUTE", "EXPAND", "PAD", "SHRINK", "FLIP", "VIEW", "INDEX", "STACK", "DETACH", "CONTIGUOUS"),
        *("BUFFER", "PARAM", "CONST", "VCONST", "BUFFER_VIEW", "SLICE", "DEFINE_VAR", "BIND", "MSELECT", "MSTACK"),
        *("MULTI", "SINK", "STORE", "ASSIGN", "AFTER", "END", "GROUP", "NOOP", "COPY", "ENCDEC", "ALLREDUCE"),
        *("CALL", "FUNCTION", "TUPLE", "GETTUPLE", "KERNEL", "CUSTOM", "CUSTOM_KERNEL", "CONTIGUOUS_BACKWARD"),
    }
)
_STORES = frozenset({"STORE", "ASSIGN"})
# rules that ask for a realize point whatever the ranges are; outputs are always realized
_LETS_GO = frozenset({"always", "source-of", "assigned-value", "outer-reduce"})
_NEVER_LET_GO = frozenset({"STORE", "ASSIGN", "COPY", "BUFFER_VIEW", "ENCDEC", "MSELECT", "MSTACK"})


# *** the possible decisions


def list_forceable(schedule: Schedule) -> list[Choice]:
    """Returns a choice to force each node that computes something and has no buffer yet."""
    if schedule.cached:
        # decisions about it are made where the schedule was made
        return []
    buffered = {made.node for made in schedule.bufferizes if made.outcome == "kept" and made.addrspace == "GLOBAL"}
    written_to = find_targets(schedule.nodes)
    return [
        Choice(schedule.index, node.id, node.op)
        for node in schedule.nodes
        if is_computed(node) and node.id not in buffered and node.id not in written_to
    ]


def is_reduce(choice: Choice) -> bool:
    return choice.op in ("REDUCE", "REDUCE_AXIS")


def is_computed(node: Node) -> bool:
    """Returns whether a node computes values that a buffer can hold. A weak number has no size in memory."""
    has_values = node.shape is not None and node.out_ranges is not None
    return has_values and node.op not in _NOT_COMPUTED and not node.dtype.startswith(("weak", "void", "index"))


def find_targets(nodes: Iterable[Node]) -> set[int]:
    """Returns the nodes that a STORE or an ASSIGN writes to, and their sources."""
    by_id = {node.id: node for node in nodes}
    targets: set[int] = set()
    todo = [node.src[0] for node in by_id.values() if node.op in _STORES and node.src]
    while todo:
        target = todo.pop()
        if target in by_id and target not in targets:
            targets.add(target)
            todo += by_id[target].src[:1]
    return targets


def list_releasable(schedule: Schedule) -> list[Choice]:
    """Returns a choice to let go each node that is a realize point because of a rule."""
    if schedule.cached:
        return []
    found: list[Choice] = []
    for node in schedule.nodes:
        if node.realized is None or node.op in _NEVER_LET_GO:
            continue
        rules = {reason.rule for reason in node.realized.reasons}
        if rules & _LETS_GO and "output" not in rules:
            found.append(Choice(schedule.index, node.id, node.op, realized=False))
    return found


def list_nearest(schedules: Sequence[Schedule], start: Choice, others: Collection[Choice]) -> list[Choice]:
    """Returns the choices about the same schedule, sorted by the distance of their nodes from the node of `start`."""
    found = {choice.node: choice for choice in others if choice.schedule == start.schedule and choice != start}
    neighbours: dict[int, set[int]] = {}
    for node in schedules[start.schedule].nodes:
        for source in node.src:
            neighbours.setdefault(node.id, set()).add(source)
            neighbours.setdefault(source, set()).add(node.id)
    order = [start.node]
    seen = {start.node}
    for at in order:
        new = sorted(neighbours.get(at, set()) - seen)
        seen.update(new)
        order += new
    return [found[node] for node in order if node in found]


# *** the search


@dataclass(frozen=True)
class DecisionSearch:
    """The result of a search. `found` are sets of choices: single choices that each suffice, or one minimal set.
    `outcomes` has every set that was tried. `complete` is false if --runs was too small to make the set smaller, or to
    try every single decision.
    """

    found: tuple[Choices, ...]
    complete: bool
    outcomes: dict[Choices, str]


class DecisionSearcher:
    """Searches for decisions in about `budget` runs."""

    def __init__(self, capture: Capture, forceable: Choices, ask: Ask[Choice], budget: int):
        self.schedules = capture.schedules
        self.releasable = [choice for schedule in self.schedules for choice in list_releasable(schedule)]
        self.forceable = forceable
        self.searcher = Searcher(forceable, ask, budget)

    @property
    def left(self) -> int:
        return max(self.searcher.budget - len(self.searcher.outcomes), 0)

    def find_mending(self, is_right: Callable[[str], bool]) -> DecisionSearch:
        """Forces all nodes, or all reduces if these are enough, then as few as still make the outcome right.

        If a single node does, the nodes near it are tried, too. If forcing does not help, realize points are let go.
        """
        searcher = self.searcher
        reduces = frozenset(filter(is_reduce, self.forceable))
        if reduces and is_right(searcher.look([reduces])[0]):
            searcher.given = reduces
        found = searcher.find_minimal(lambda part: part, is_right, 0, is_limited=True)
        if not found.sets:
            return self.find_single(is_right)
        smallest = found.sets[0]
        if len(smallest) > 1:
            return DecisionSearch(found.sets, not found.ended, searcher.outcomes)
        (choice,) = smallest
        near = list_nearest(self.schedules, choice, self.forceable)[:MOST_NEIGHBOURS]
        searcher.look([frozenset({other}) for other in near[: self.left]])
        return DecisionSearch(self._list_singles(is_right), True, searcher.outcomes)

    def find_single(self, does: Callable[[str], bool]) -> DecisionSearch:
        """Tries single decisions: lets realize points go, then forces nodes, reduces first."""
        forced = sorted(self.forceable, key=lambda choice: (not is_reduce(choice), choice))
        singles = [frozenset({choice}) for choice in [*self.releasable, *forced]]
        new = [one for one in singles if one not in self.searcher.outcomes]
        self.searcher.look(new[: self.left])
        complete = all(one in self.searcher.outcomes for one in singles)
        return DecisionSearch(self._list_singles(does), complete, self.searcher.outcomes)

    def _list_singles(self, does: Callable[[str], bool]) -> tuple[Choices, ...]:
        tried = self.searcher.outcomes.items()
        return tuple(one for one, outcome in tried if len(one) == 1 and does(outcome))
