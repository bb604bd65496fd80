"""Which decision of the scheduler changes what comes of a snippet: a node forced to be a buffer, or one let go.

Nothing here knows tinygrad or runs anything; see `search`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from vmapdbg.bisect.search import Ask, Searcher
from vmapdbg.install.job import Choice
from vmapdbg.model.capture import Capture, Node, Schedule

Choices = frozenset[Choice]

MOST_NEIGHBOURS = 8
"""So many other nodes are tried beside one that makes it right: often each of several does."""

# what holds, moves, cuts or names values, and computes none
_NOT_COMPUTED = frozenset(
    {
        *("RESHAPE", "PERMUTE", "EXPAND", "PAD", "SHRINK", "FLIP", "VIEW", "INDEX", "STACK", "DETACH", "CONTIGUOUS"),
        *("BUFFER", "PARAM", "CONST", "VCONST", "BUFFER_VIEW", "SLICE", "DEFINE_VAR", "BIND", "MSELECT", "MSTACK"),
        *("MULTI", "SINK", "STORE", "ASSIGN", "AFTER", "END", "GROUP", "NOOP", "COPY", "ENCDEC", "ALLREDUCE"),
        *("CALL", "FUNCTION", "TUPLE", "GETTUPLE", "KERNEL", "CUSTOM", "CUSTOM_KERNEL", "CONTIGUOUS_BACKWARD"),
    }
)
_STORES = frozenset({"STORE", "ASSIGN"})
# rules that ask for a realize point whatever the ranges are; an output must be one
_LETS_GO = frozenset({"always", "source-of", "assigned-value", "outer-reduce"})
_NEVER_LET_GO = frozenset({"STORE", "ASSIGN", "COPY", "BUFFER_VIEW", "ENCDEC", "MSELECT", "MSTACK"})


# *** which decisions there are


def list_forceable(schedule: Schedule) -> list[Choice]:
    """Returns the nodes that compute something and have no buffer of their own yet, as choices to give them one."""
    if schedule.cached:
        # what is decided about it is decided where it was made
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
    """Tells whether a node has values of its own, which a buffer could hold. A weak number has no size in memory."""
    has_values = node.shape is not None and node.out_ranges is not None
    return has_values and node.op not in _NOT_COMPUTED and not node.dtype.startswith(("weak", "void", "index"))


def find_targets(nodes: Iterable[Node]) -> set[int]:
    """Returns the nodes that say where a STORE or an ASSIGN writes to."""
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
    """Returns the nodes that are realize points because a rule asks for that, as choices to let them go."""
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
    """Returns the choices about the same schedule, those about the nodes nearest to that of `start` first."""
    found = {choice.node: choice for choice in others if choice.schedule == start.schedule and choice != start}
    beside: dict[int, set[int]] = {}
    for node in schedules[start.schedule].nodes:
        for source in node.src:
            beside.setdefault(node.id, set()).add(source)
            beside.setdefault(source, set()).add(node.id)
    order = [start.node]
    seen = {start.node}
    for at in order:
        new = sorted(beside.get(at, set()) - seen)
        seen.update(new)
        order += new
    return [found[node] for node in order if node in found]


# *** the search


@dataclass(frozen=True)
class DecisionSearch:
    """What a search found: the `found` sets of choices that do what is wanted, one node each or one set that has no
    smaller part that does; `outcomes` has every set that was tried.

    `complete` is false where --runs did not suffice: to make the set smaller, or to try every single decision.
    """

    found: tuple[Choices, ...]
    complete: bool
    outcomes: dict[Choices, str]


class DecisionSearcher:
    """Looks for decisions in at most about `budget` runs."""

    def __init__(self, capture: Capture, forceable: Choices, ask: Ask[Choice], budget: int):
        self.schedules = capture.schedules
        self.releasable = [choice for schedule in self.schedules for choice in list_releasable(schedule)]
        self.forceable = forceable
        self.searcher = Searcher(forceable, ask, budget)

    @property
    def left(self) -> int:
        return max(self.searcher.budget - len(self.searcher.outcomes), 0)

    def find_mending(self, is_right: Callable[[str], bool]) -> DecisionSearch:
        """Forces all of the nodes, or all reduces where these are enough, and then as few as still make it right. Where
        one does, those near it are tried, too. Where forcing does not help, realize points are let go."""
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
        """Tries single decisions: realize points let go, then nodes forced, reduces first."""
        forced = sorted(self.forceable, key=lambda choice: (not is_reduce(choice), choice))
        singles = [frozenset({choice}) for choice in [*self.releasable, *forced]]
        new = [one for one in singles if one not in self.searcher.outcomes]
        self.searcher.look(new[: self.left])
        complete = all(one in self.searcher.outcomes for one in singles)
        return DecisionSearch(self._list_singles(does), complete, self.searcher.outcomes)

    def _list_singles(self, does: Callable[[str], bool]) -> tuple[Choices, ...]:
        tried = self.searcher.outcomes.items()
        return tuple(one for one, outcome in tried if len(one) == 1 and does(outcome))
