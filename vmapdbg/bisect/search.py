"""The search: which sets of patches, taken away or alone, make a difference.

Outcomes are names. Nothing is assumed about how they depend on the set, in particular not that more patches are better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from vmapdbg.job.patches import Patches

Ask = Callable[[Sequence[Patches]], Sequence[str]]
"""Returns the name of the outcome of each set; equal names are equal outcomes."""


@dataclass(frozen=True)
class Found:
    """The smallest sets of one kind.

    `exact` tells that every smaller set was tried. Else the one set is minimal: no part of it that was tried does the
    same, but another set may be smaller. All sets of up to `size` patches were tried.
    """

    sets: tuple[Patches, ...]
    exact: bool
    size: int


@dataclass(frozen=True)
class Search:
    """What a search found about the patches `given`.

    `removed`: taken away from `given`, they change the outcome. `added`: alone, they change the outcome of no patch at
    all. `enough`: alone, they have the outcome of `given`. `outcomes` has every set that was tried, in order.
    """

    given: Patches
    removed: Found
    added: Found
    enough: Found
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


class Searcher:
    """Asks for outcomes, each set once, and no more than `budget` of them."""

    def __init__(self, given: Patches, ask: Ask, budget: int):
        self.given, self.ask, self.budget = given, ask, budget
        self.outcomes: dict[Patches, str] = {}

    def search(self) -> Search:
        none: Patches = frozenset()
        whole, empty = self.look([self.given, none])
        removed = self.find_smallest(lambda part: self.given - part, lambda outcome: outcome != whole)
        added = self.find_smallest(lambda part: part, lambda outcome: outcome != empty)
        enough = self.find_smallest(lambda part: part, lambda outcome: outcome == whole)
        return Search(self.given, removed, added, enough, self.outcomes)

    def look(self, sets: Sequence[Patches]) -> list[str]:
        """Returns the outcome of each set; only those that are new are asked for."""
        new = [one for one in dict.fromkeys(sets) if one not in self.outcomes]
        if new:
            self.outcomes.update(zip(new, self.ask(new), strict=True))
        return [self.outcomes[one] for one in sets]

    def find_smallest(self, make: Callable[[Patches], Patches], matters: Callable[[str], bool]) -> Found:
        """Tries all parts of the given patches by size, the smallest first; where a size has more than the budget is
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

    def find_minimal(self, make: Callable[[Patches], Patches], matters: Callable[[str], bool], tried: int) -> Found:
        """Takes patches out of the whole as long as it still matters: delta debugging (Zeller and Hildebrandt,
        "Simplifying and isolating failure-inducing input", 2002), a half first, then less."""
        part = self.given
        if not matters(self.look([make(part)])[0]):
            return Found((), False, tried)
        pieces = 2
        while len(part) > 1:
            chunks = _split(sorted(part), pieces)
            smaller = [frozenset(chunk) for chunk in chunks] + [part - frozenset(chunk) for chunk in chunks]
            smaller = [s for s in dict.fromkeys(smaller) if s and s != part]
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


def _split(names: list[str], pieces: int) -> list[list[str]]:
    return [names[i * len(names) // pieces : (i + 1) * len(names) // pieces] for i in range(pieces)]
