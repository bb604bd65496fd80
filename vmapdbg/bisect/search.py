"""Searches: which sets of patches, or of decisions, change the outcome, and which commit does.

An outcome is a name; equal names are equal outcomes. Nothing is assumed about how outcomes depend on a set, in
particular not that more patches are better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Generic, TypeVar

from vmapdbg.install.job import Choice
from vmapdbg.install.patches import Patches

T = TypeVar("T", str, Choice)

Ask = Callable[[Sequence[frozenset[T]]], Sequence[str]]
"""Returns the name of the outcome of each set."""
Transform = Callable[[frozenset[T]], frozenset[T]]


@dataclass(frozen=True)
class SmallestSets(Generic[T]):
    """The smallest sets of one kind.

    `exact`: every smaller set was tried. Otherwise there is one set, which is minimal: no part of it that was tried
    does the same, but another set may be smaller. All sets of up to `size` members were tried. `ended`: the search was
    stopped early, and the set may not even be minimal.
    """

    sets: tuple[frozenset[T], ...]
    exact: bool
    size: int
    ended: bool = False


@dataclass(frozen=True)
class Search:
    """The result of a search for patches among `given`.

    `removed`: without these patches, the outcome changes. `added`: alone, they change the outcome of no patch at all.
    `enough`: alone, they have the outcome of `given`. `outcomes` has every set that was tried, in order.
    """

    given: Patches
    removed: SmallestSets[str]
    added: SmallestSets[str]
    enough: SmallestSets[str]
    outcomes: dict[Patches, str]

    @property
    def is_uniform(self) -> bool:
        return len(set(self.outcomes.values())) == 1


@dataclass(frozen=True)
class Reduced:
    """A reduced snippet that shows a difference: its text, or the `reason` why there is none. `before` and `after`
    count nodes of the graph."""

    text: str | None
    reason: str | None
    before: int = 0
    after: int = 0
    tried: int = 0
    schedule: int = 0


def search_patches(given: Patches, ask: Ask[str], budget: int) -> Search:
    """Finds the sets of patches that change the outcome, in about `budget` runs."""
    searcher = Searcher(given, ask, budget)
    whole, empty = searcher.look([given, frozenset()])
    removed = searcher.find_smallest(lambda part: given - part, lambda outcome: outcome != whole)
    added = searcher.find_smallest(lambda part: part, lambda outcome: outcome != empty)
    enough = searcher.find_smallest(lambda part: part, lambda outcome: outcome == whole)
    return Search(given, removed, added, enough, searcher.outcomes)


class Searcher(Generic[T]):
    """Asks for the outcomes of subsets of `given`: each once, and at most about `budget` of them."""

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

    def find_smallest(self, make: Transform[T], matters: Callable[[str], bool]) -> SmallestSets[T]:
        """Tries all subsets by size, the smallest first. If the subsets of a size exceed the budget, looks for a
        minimal subset instead."""
        for size in range(len(self.given) + 1):
            parts = [frozenset(part) for part in combinations(sorted(self.given), size)]
            made = list(map(make, parts))
            if self._exceeds_budget(made):
                return self.find_minimal(make, matters, size - 1)
            outcomes = self.look(made)
            found = tuple(part for part, outcome in zip(parts, outcomes, strict=True) if matters(outcome))
            if found:
                return SmallestSets(found, True, size)
        return SmallestSets((), True, len(self.given))

    def find_minimal(
        self, make: Transform[T], matters: Callable[[str], bool], tried: int, is_limited: bool = False
    ) -> SmallestSets[T]:
        """Removes members from the whole set as long as it still matters: delta debugging (Zeller and Hildebrandt,
        "Simplifying and isolating failure-inducing input", 2002), a half first, then less. If `is_limited`, the search
        ends when its next step exceeds the budget."""
        part: frozenset[T] = self.given
        if not matters(self.look([make(part)])[0]):
            return SmallestSets((), False, tried)
        pieces = 2
        while len(part) > 1:
            chunks = _split(sorted(part), pieces)
            smaller: list[frozenset[T]] = [*chunks, *(part.difference(chunk) for chunk in chunks)]
            smaller = [s for s in dict.fromkeys(smaller) if s and s != part]
            made = list(map(make, smaller))
            if is_limited and self._exceeds_budget(made):
                return SmallestSets((part,), False, tried, ended=True)
            outcomes = self.look(made)
            better = [s for s, outcome in zip(smaller, outcomes, strict=True) if matters(outcome)]
            # the smaller set is halved again
            if better:
                part, pieces = min(better, key=len), 2
            elif pieces >= len(part):
                break
            else:
                pieces = min(len(part), pieces * 2)
        return SmallestSets((part,), False, tried)


def _split(members: list[T], pieces: int) -> list[frozenset[T]]:
    cuts = [i * len(members) // pieces for i in range(pieces + 1)]
    return [frozenset(members[first:end]) for first, end in pairwise(cuts)]


# *** commits

AskCommits = Callable[[Sequence[str]], Sequence[str | None]]
"""Returns the name of the outcome of each commit, None if it cannot be run."""


@dataclass(frozen=True)
class CommitSearch:
    """The result of a search over a line of commits.

    `commits` is the line, including the commit before the first; `outcomes` has the commits that were run. `suspects`
    are the commits that may have changed the outcome, in order: several if those between cannot be run, none if both
    ends have the same outcome.
    """

    commits: tuple[str, ...]
    outcomes: dict[str, str | None]
    suspects: tuple[str, ...]

    @property
    def first(self) -> str | None:
        """The first commit that was run and has another outcome."""
        return self.suspects[-1] if self.suspects else None

    @property
    def before(self) -> str | None:
        """The last commit that was run and has the old outcome."""
        return self.commits[self.commits.index(self.suspects[0]) - 1] if self.suspects else None


def search_commits(commits: Sequence[str], ask: AskCommits, width: int = 1) -> CommitSearch:
    """Searches a line of commits, the good commit first and the bad commit last, for a change of the outcome.

    `width` commits are asked for at the same time. If the outcome changes several times, one of the changes from the
    first commit's outcome is found. Commits that cannot be run are skipped, as `git bisect skip` does. Raises
    ValueError if an end of the line cannot be run.
    """
    outcomes: dict[str, str | None] = {}

    def look(chosen: Sequence[str]) -> None:
        new = [commit for commit in dict.fromkeys(chosen) if commit not in outcomes]
        if new:
            outcomes.update(zip(new, ask(new), strict=True))

    line = tuple(commits)
    look([line[0], line[-1]])
    for end in (line[0], line[-1]):
        if outcomes[end] is None:
            raise ValueError(end)
    good = outcomes[line[0]]
    if outcomes[line[-1]] == good:
        return CommitSearch(line, outcomes, ())
    low, high = 0, len(line) - 1
    while True:
        untried = [i for i in range(low + 1, high) if line[i] not in outcomes]
        if not untried:
            break
        look([line[i] for i in _choose_cuts(untried, width)])
        known = [i for i in range(low, high + 1) if outcomes.get(line[i]) is not None]
        high = next(i for i in known if outcomes[line[i]] != good)
        low = max(i for i in known if i < high)
    return CommitSearch(line, outcomes, line[low + 1 : high + 1])


def _choose_cuts(numbers: Sequence[int], width: int) -> list[int]:
    """Returns up to `width` of the numbers, evenly spaced."""
    pieces = min(width, len(numbers)) + 1
    return [numbers[len(numbers) * cut // pieces] for cut in range(1, pieces)]
