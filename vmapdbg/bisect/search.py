"""Searches which sets of patches, decisions, or commit change the outcome, a name. More patches may not be better."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Generic, TypeVar

from vmapdbg.install.job import Choice
from vmapdbg.install.patches import Patches
from vmapdbg.model.capture import Capture, Schedule
from vmapdbg.model.ops import ELEMENTWISE, REDUCES, STORES
from vmapdbg.model.schedule_index import index_of
from vmapdbg.reference.graph import reach

T = TypeVar("T", str, Choice)

Ask = Callable[[Sequence[frozenset[T]]], Sequence[str]]  # returns the name of the outcome of each set
Transform = Callable[[frozenset[T]], frozenset[T]]
Matters = Callable[[str], bool]  # tells whether an outcome is the outcome that is looked for
Choices = frozenset[Choice]

_COMPUTES = ELEMENTWISE | REDUCES
# rules that ask for a realize point whatever the ranges are; outputs are always realized
_LETS_GO = frozenset({"always", "source-of", "assigned-value", "outer-reduce"})
_NEVER_LET_GO = STORES | frozenset({"COPY", "BUFFER_VIEW", "ENCDEC", "MSELECT", "MSTACK"})


# *** sets of patches


@dataclass(frozen=True)
class FoundSets:
    """The smallest sets of patches of one kind. `exact`: every smaller set was tried; all of up to `size` patches were.
    Else the one set is minimal."""

    sets: tuple[tuple[str, ...], ...]
    exact: bool
    size: int


@dataclass(frozen=True)
class Reduced:
    """A smaller program that shows the fault: its text, or the `reason` why there is none. `before` and `after` count
    lines without comments, `tried` counts smaller programs that were run. `is_lost`: no program was written. `schedule`
    is always 0: the whole program is reduced."""

    text: str | None
    reason: str | None
    before: int = 0
    after: int = 0
    tried: int = 0
    schedule: int = 0
    is_lost: bool = False


class Searcher(Generic[T]):
    """Asks for the outcomes of subsets of `given`, each once, at most about `budget`; `outcomes` has them in order."""

    def __init__(self, given: frozenset[T], ask: Ask[T], budget: int):
        self.given, self.ask, self.budget = given, ask, budget
        self.outcomes: dict[frozenset[T], str] = {}

    def look(self, sets: Sequence[frozenset[T]]) -> list[str]:
        """Returns the outcome of each set; only new sets are asked for."""
        new = [one for one in dict.fromkeys(sets) if one not in self.outcomes]
        if new:
            self.outcomes.update(zip(new, self.ask(new), strict=True))
        return [self.outcomes[one] for one in sets]

    def _exceeds_budget(self, sets: Sequence[frozenset[T]]) -> bool:
        return len(self.outcomes) + sum(one not in self.outcomes for one in sets) > self.budget

    def _filter(self, parts: Sequence[frozenset[T]], make: Transform[T], matters: Matters) -> list[frozenset[T]]:
        """Returns the parts that matter: the outcome of what is made of them does."""
        outcomes = self.look(list(map(make, parts)))
        return [part for part, outcome in zip(parts, outcomes, strict=True) if matters(outcome)]

    def find_smallest(self: "Searcher[str]", make: Transform[str], matters: Matters) -> FoundSets:
        """Tries subsets by size, the smallest first. Halves if the subsets of a size exceed the budget."""
        for size in range(len(self.given) + 1):
            parts = list(map(frozenset, combinations(sorted(self.given), size)))
            if self._exceeds_budget(list(map(make, parts))):
                part, _ = self.find_minimal(make, matters)
                return FoundSets(() if part is None else (tuple(sorted(part)),), False, size - 1)
            found = self._filter(parts, make, matters)
            if found:
                return FoundSets(tuple(tuple(sorted(part)) for part in found), True, size)
        return FoundSets((), True, len(self.given))

    def find_minimal(
        self, make: Transform[T], matters: Matters, is_limited: bool = False
    ) -> tuple[frozenset[T] | None, bool]:
        """Removes members from the whole set as long as it still matters: delta debugging (Zeller and Hildebrandt,
        "Simplifying and isolating failure-inducing input", 2002). Returns the part, None if the whole set does not
        matter, and whether it is minimal: with `is_limited`, it may not be, because the budget ends the search."""
        part: frozenset[T] = self.given
        if not self._filter([part], make, matters):
            return None, True
        pieces = 2
        while len(part) > 1:
            cuts = [i * len(part) // pieces for i in range(pieces + 1)]
            chunks = [frozenset(sorted(part)[first:end]) for first, end in pairwise(cuts)]
            smaller: list[frozenset[T]] = [*chunks, *(map(part.difference, chunks))]
            smaller = [s for s in dict.fromkeys(smaller) if s and s != part]
            if is_limited and self._exceeds_budget(list(map(make, smaller))):
                return part, False
            better = self._filter(smaller, make, matters)
            if better:
                part, pieces = min(better, key=len), 2
            elif pieces >= len(part):
                break
            else:
                pieces = min(len(part), pieces * 2)
        return part, True


class PatchSearcher(Searcher[str]):
    """Finds the sets of patches that change the outcome, in about `budget` runs."""

    def __init__(self, given: Patches, ask: Ask[str], budget: int):
        super().__init__(given, ask, budget)
        whole, empty = self.look([given, frozenset()])
        self.removed = self.find_smallest(lambda part: given - part, lambda outcome: outcome != whole)
        self.added = self.find_smallest(lambda part: part, lambda outcome: outcome != empty)
        self.enough = self.find_smallest(lambda part: part, lambda outcome: outcome == whole)

    @property
    def is_uniform(self) -> bool:
        return len(set(self.outcomes.values())) == 1


# *** decisions of the scheduler


def list_forceable(schedule: Schedule) -> Iterator[Choice]:
    """Yields a choice to force each node that computes values that a buffer can hold, and has no buffer yet."""
    if schedule.cached:
        # decisions about it are made where the schedule was made
        return
    buffered = {made.node for made in schedule.bufferizes if made.holds_memory}
    # what a STORE or an ASSIGN writes to, and the sources of that
    nodes = index_of(schedule).nodes
    targets = [node.src[0] for node in schedule.nodes if node.op in STORES and node.src]
    written_to = reach(targets, lambda target: nodes[target].src[:1] if target in nodes else ())
    for node in schedule.nodes:
        # a weak number has no size in memory
        has_size = node.shape is not None and not node.dtype.startswith(("weak", "void", "index"))
        is_free = node.id not in buffered and node.id not in written_to
        if node.op in _COMPUTES and is_free and has_size and node.out_ranges is not None:
            yield Choice(schedule.index, node.id, node.op)


def list_releasable(schedule: Schedule) -> Iterator[Choice]:
    """Yields a choice to let go each node that is a realize point because of a rule."""
    if schedule.cached:
        return
    for node in schedule.nodes:
        if node.realized is None or node.op in _NEVER_LET_GO:
            continue
        rules = {reason.rule for reason in node.realized.reasons}
        if rules & _LETS_GO and "output" not in rules:
            yield Choice(schedule.index, node.id, node.op, realized=False)


class DecisionSearcher(Searcher[Choice]):
    """Searches for decisions in about `budget` runs."""

    def __init__(self, capture: Capture, forceable: Choices, ask: Ask[Choice], budget: int):
        super().__init__(forceable, ask, budget)
        self.schedules, self.forceable = capture.schedules, forceable

    def find_mending(self, is_right: Matters) -> tuple[list[Choices], bool]:
        """Forces all nodes, or all reduces if these suffice, then as few as make the outcome right; else lets realize
        points go. Returns one minimal set, or single choices that each suffice, and whether the budget was enough."""
        reduces = frozenset(choice for choice in self.forceable if choice.op in REDUCES)
        if reduces and is_right(self.look([reduces])[0]):
            self.given = reduces
        smallest, is_minimal = self.find_minimal(lambda part: part, is_right, is_limited=True)
        return self.find_single(is_right) if smallest is None else ([smallest], is_minimal)

    def find_single(self, does: Matters) -> tuple[list[Choices], bool]:
        """Tries single decisions within the budget: lets realize points go, then forces nodes, reduces first. Returns
        the decisions that give the outcome, and whether the budget was enough for all."""
        forced = sorted(self.forceable, key=lambda choice: (choice.op not in REDUCES, choice))
        released = [choice for schedule in self.schedules for choice in list_releasable(schedule)]
        singles = [frozenset({choice}) for choice in (*released, *forced)]
        new = [one for one in singles if one not in self.outcomes]
        left = max(self.budget - len(self.outcomes), 0)
        self.look(new[:left])
        found = [one for one, outcome in self.outcomes.items() if len(one) == 1 and does(outcome)]
        return found, len(new) <= left


# *** commits

Named = dict[str, str | None]  # the name of the outcome of each commit, None if it cannot be run


def search_commits(
    line: Sequence[str], ask: Callable[[Sequence[str]], Sequence[str | None]], width: int = 1
) -> tuple[Named, tuple[str, str] | None]:
    """Searches a line of commits, good end first, for a change of the outcome; asks for `width` commits at once.

    Returns the outcomes of the commits that were run, and the last of these with the first commit's outcome and the
    first with another one; None if both ends have the same outcome. Skips commits that cannot be run. Raises ValueError
    if an end cannot be run."""
    outcomes: Named = {}

    def look(chosen: Sequence[str]) -> None:
        new = [commit for commit in dict.fromkeys(chosen) if commit not in outcomes]
        if new:
            outcomes.update(zip(new, ask(new), strict=True))

    look([line[0], line[-1]])
    for end in (line[0], line[-1]):
        if outcomes[end] is None:
            raise ValueError(end)
    good = outcomes[line[0]]
    if outcomes[line[-1]] == good:
        return outcomes, None
    low, high = 0, len(line) - 1
    while untried := [i for i in range(low + 1, high) if line[i] not in outcomes]:
        # up to `width` of them, evenly spaced
        pieces = min(width, len(untried)) + 1
        look([line[untried[len(untried) * cut // pieces]] for cut in range(1, pieces)])
        known = [i for i in range(low, high + 1) if outcomes.get(line[i]) is not None]
        high = next(i for i in known if outcomes[line[i]] != good)
        low = max(i for i in known if i < high)
    return outcomes, (line[low], line[high])
