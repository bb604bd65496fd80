"""Pairs the things of two sides, one with one: nodes, kernels, schedules, names."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Thing = TypeVar("Thing", int, str)


def match_by_levels(before: Sequence[Mapping[int, Key]], after: Sequence[Mapping[int, Key]]) -> dict[int, int]:
    """Pairs things whose keys are the same, first by the first level of keys, what is left by the next.

    Of several with the same key the first goes with the first.
    """
    matched: dict[int, int] = {}
    taken: set[int] = set()
    for keys_before, keys_after in zip(before, after, strict=True):
        free: dict[Key, list[int]] = {}
        # the last one first, because pop() takes them from the end
        for item in sorted(keys_after, reverse=True):
            if item not in taken:
                free.setdefault(keys_after[item], []).append(item)
        for item in sorted(keys_before):
            if item not in matched and free.get(keys_before[item]):
                matched[item] = free[keys_before[item]].pop()
                taken.add(matched[item])
    return matched


def match_in_order(pairs: Iterable[tuple[Thing, Thing]]) -> dict[Thing, Thing]:
    """Returns those pairs neither side of which an earlier pair has: the best must come first."""
    matched: dict[Thing, Thing] = {}
    taken: set[Thing] = set()
    for before, after in pairs:
        if before not in matched and after not in taken:
            matched[before] = after
            taken.add(after)
    return matched


def share(common: int, whole: int) -> float:
    """Returns how much of two things that have `whole` parts together is in both, from 0 to 1."""
    return 2 * common / whole if whole else 0.0
