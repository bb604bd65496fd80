"""The search: which sets of patches, or of decisions, taken away or alone, make a difference.

Outcomes are names. Nothing is assumed about how they depend on the set, in particular not that more patches are better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, Generic, Protocol, TypeVar

from vmapdbg.install.patches import Patches


class Sortable(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


T = TypeVar("T", bound=Sortable)

Ask = Callable[[Sequence[frozenset[T]]], Sequence[str]]
"""Returns the name of the outcome of each set; equal names are equal outcomes."""


@dataclass(frozen=True)
class Found(Generic[T]):
    """The smallest sets of one kind.

    `exact` tells that every smaller set was tried. Else the one set is minimal: no part of it that was tried does the
    same, but another set may be smaller. All sets of up to `size` members were tried. `ended` tells that the search
    was stopped early: the set may not even be minimal.
    """

    sets: tuple[frozenset[T], ...]
    exact: bool
    size: int
    ended: bool = False


@dataclass(frozen=True)
class Search:
    """What a search found about the patches `given`.

    `removed`: taken away from `given`, they change the outcome. `added`: alone, they change the outcome of no patch at
    all. `enough`: alone, they have the outcome of `given`. `outcomes` has every set that was tried, in order.
    """

    given: Patches
    removed: Found[str]
    added: Found[str]
    enough: Found[str]
    outcomes: dict[Patches, str]

    @property
    def is_uniform(self) -> bool:
        return len(set(self.outcomes.values())) == 1


@dataclass(frozen=True)
class Reduced:
    """A snippet that shows a difference: its text, or `reason` why there is none. Counts are of nodes of the graph."""

    text: str | None
    reason: str | None
    before: int = 0
    after: int = 0
    tried: int = 0
    schedule: int = 0


def search_patches(given: Patches, ask: Ask[str], budget: int) -> Search:
    """Finds the sets of some patches that change the outcome, in about `budget` runs."""
    searcher = Searcher(given, ask, budget)
    whole, empty = searcher.look([given, frozenset()])
    removed = searcher.find_smallest(lambda part: given - part, lambda outcome: outcome != whole)
    added = searcher.find_smallest(lambda part: part, lambda outcome: outcome != empty)
    enough = searcher.find_smallest(lambda part: part, lambda outcome: outcome == whole)
    return Search(given, removed, added, enough, searcher.outcomes)


class Searcher(Generic[T]):
    """Asks for outcomes of sets of what is `given`, each set once, and no more than about `budget` of them."""

    def __init__(self, given: frozenset[T], ask: Ask[T], budget: int):
        self.given, self.ask, self.budget = given, ask, budget
        self.outcomes: dict[frozenset[T], str] = {}

    def look(self, sets: Sequence[frozenset[T]]) -> list[str]:
        """Returns the outcome of each set; only those that are new are asked for."""
        new = [one for one in dict.fromkeys(sets) if one not in self.outcomes]
        if new:
            self.outcomes.update(zip(new, self.ask(new), strict=True))
        return [self.outcomes[one] for one in sets]

    def find_smallest(self, make: Callable[[frozenset[T]], frozenset[T]], matters: Callable[[str], bool]) -> Found[T]:
        """Tries all parts of what is given by size, the smallest first; where a size has more than the budget is
        for, looks for a minimal part instead."""
        for size in range(len(self.given) + 1):
            parts = [frozenset(part) for part in combinations(sorted(self.given), size)]
            fresh = sum(make(part) not in self.outcomes for part in parts)
            if len(self.outcomes) + fresh > self.budget:
                return self.find_minimal(make, matters, size - 1)
            outcomes = self.look([make(part) for part in parts])
            found = tuple(part for part, outcome in zip(parts, outcomes, strict=True) if matters(outcome))
            if found:
                return Found(found, True, size)
        return Found((), True, len(self.given))

    def find_minimal(
        self,
        make: Callable[[frozenset[T]], frozenset[T]],
        matters: Callable[[str], bool],
        tried: int,
        is_limited: bool = False,
    ) -> Found[T]:
        """Takes members out of the whole as long as it still matters: delta debugging (Zeller and Hildebrandt,
        "Simplifying and isolating failure-inducing input", 2002), a half first, then less. With `is_limited` it ends
        where its next step has more than the budget is for."""
        part: frozenset[T] = self.given
        if not matters(self.look([make(part)])[0]):
            return Found((), False, tried)
        pieces = 2
        while len(part) > 1:
            chunks = _split(sorted(part), pieces)
            smaller: list[frozenset[T]] = [*chunks, *(part.difference(chunk) for chunk in chunks)]
            smaller = [s for s in dict.fromkeys(smaller) if s and s != part]
            fresh = sum(make(s) not in self.outcomes for s in smaller)
            if is_limited and len(self.outcomes) + fresh > self.budget:
                return Found((part,), False, tried, ended=True)
            outcomes = self.look([make(s) for s in smaller])
            better = [s for s, outcome in zip(smaller, outcomes, strict=True) if matters(outcome)]
            # what is left of the set is tried by halves again
            if better:
                part, pieces = min(better, key=len), 2
            elif pieces >= len(part):
                break
            else:
                pieces = min(len(part), pieces * 2)
        return Found((part,), False, tried)


def _split(members: list[T], pieces: int) -> list[frozenset[T]]:
    cuts = [i * len(members) // pieces for i in range(pieces + 1)]
    return [frozenset(members[first:end]) for first, end in pairwise(cuts)]
