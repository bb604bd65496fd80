"""Pairs the things of two sides one to one, and the range names of one side with those of the other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from vmapdbg.model.capture import Range, Reason

Key = TypeVar("Key", bound=Hashable)
Thing = TypeVar("Thing", int, str)

# Since 0.14 the loops of a schedule are called WEAK.
_SAME_AXIS_TYPE = {"WEAK": "LOOP"}
# A range that the pass numbered. `rm1` is the user's own: -1 in the program, on both sides.
_NUMBERED = re.compile(r"\br\d\w*")


class HashConsing:
    """Hash-consing: gives equal keys the same number on both sides.

    The key of a compound thing holds the numbers of its parts, so two graphs are compared without recursion.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def __call__(self, *key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def match_by_levels(before: Sequence[Mapping[int, Key]], after: Sequence[Mapping[int, Key]]) -> dict[int, int]:
    """Pairs things with equal keys: first by the keys of the first level, then the rest by the next level.

    If several things have the same key, the first is paired with the first.
    """
    matched: dict[int, int] = {}
    taken: set[int] = set()
    for keys_before, keys_after in zip(before, after, strict=True):
        free: dict[Key, list[int]] = {}
        # in descending order, because pop() takes from the end
        for item in sorted(keys_after, reverse=True):
            if item not in taken:
                free.setdefault(keys_after[item], []).append(item)
        for item in sorted(keys_before):
            if item not in matched and free.get(keys_before[item]):
                matched[item] = free[keys_before[item]].pop()
                taken.add(matched[item])
    return matched


def match_in_order(pairs: Iterable[tuple[Thing, Thing]]) -> dict[Thing, Thing]:
    """Returns the pairs whose members are in no earlier pair. The best pairs must come first."""
    matched: dict[Thing, Thing] = {}
    taken: set[Thing] = set()
    for before, after in pairs:
        if before not in matched and after not in taken:
            matched[before] = after
            taken.add(after)
    return matched


def share(common: int, whole: int) -> float:
    """Returns the share that two things have in common, from 0 to 1; `whole` is the sum of their sizes."""
    return 2 * common / whole if whole else 0.0


# *** names of ranges


def find_ranges(expression: str) -> list[str]:
    """Returns the numbered ranges of an expression such as `(r4*2+r5)`, in order."""
    return _NUMBERED.findall(expression)


def blank_ranges(expression: str, name_of: Callable[[str], str] | None = None) -> str:
    """Replaces each numbered range of an expression by `r`, or by what `name_of` returns for it."""
    if name_of is None:
        return _NUMBERED.sub("r", expression)
    return _NUMBERED.sub(lambda match: name_of(match[0]), expression)


def choose_names(votes: Mapping[tuple[str, str], int]) -> dict[str, str]:
    """Returns a one-to-one mapping of names; pairs with more votes win."""
    return match_in_order(sorted(votes, key=lambda pair: (-votes[pair], *sorted(map(_number_order, pair)))))


def _number_order(name: str) -> tuple[int, str]:
    return len(name), name


class Renaming:
    """Translates the ranges and nodes of before to their names after."""

    def __init__(self, ranges: Mapping[str, str], nodes: Mapping[int, int], lone: Iterable[str] = ()) -> None:
        """`lone` are the ranges of before without a partner."""
        self.ranges = dict(ranges)
        self.nodes = nodes
        self._names = {name: name + "'" for name in lone} | self.ranges

    def translate(self, expression: str) -> str:
        """Returns an expression of before in the names of after; a range without a partner becomes `r4'`."""
        return blank_ranges(expression, lambda name: self._names.get(name, name))

    def translate_all(self, expressions: Iterable[str] | None) -> tuple[str, ...] | None:
        """Returns expressions translated; None stays None."""
        return None if expressions is None else tuple(map(self.translate, expressions))

    def translate_reason(self, reason: Reason) -> Reason | None:
        """Returns a reason with the ranges and nodes of after, None if one of its nodes has no partner."""
        if not all(node in self.nodes for node in reason.nodes):
            return None
        axis = reason.axis
        if isinstance(axis, str):
            axis = self.translate(axis)
        ranges = self.translate_all(reason.ranges) or ()
        return replace(reason, nodes=tuple(self.nodes[node] for node in reason.nodes), ranges=ranges, axis=axis)


def choose_ranges(
    pairs: Iterable[tuple[tuple[str, ...], tuple[str, ...], int]], before: Iterable[Range], after: Iterable[Range]
) -> dict[str, str]:
    """Maps the ranges of before to those of after.

    `pairs` are the expressions of matched things and a weight: expressions of the same form vote for the ranges that
    they name. Ranges without votes are paired by size and axis type, in order. A vmap range keeps its name.
    """
    kinds_before, kinds_after = range_kinds(before), range_kinds(after)

    def may_pair(one: str, other: str) -> bool:
        return kinds_before.get(one) == kinds_after.get(other)

    votes: Counter[tuple[str, str]] = Counter()
    for one, other, weight in pairs:
        for left, right in zip(one, other, strict=False):
            if blank_ranges(left) == blank_ranges(right):
                for pair in zip(find_ranges(left), find_ranges(right), strict=True):
                    if may_pair(*pair):
                        votes[pair] += weight
    chosen = choose_names(votes)
    chosen |= _pair_rest(kinds_before, kinds_after, chosen)
    vmap = {name for name in kinds_before if not _NUMBERED.fullmatch(name) and may_pair(name, name)}
    return {name: chosen.get(name, name) for name in kinds_before if name in chosen or name in vmap} | chosen


def range_kinds(ranges: Iterable[Range]) -> dict[str, Hashable]:
    """Returns for each range its size, axis type and whether a vmap made it."""
    return {item.name: (item.size, _SAME_AXIS_TYPE.get(item.axis_type, item.axis_type), item.vmap) for item in ranges}


def _pair_rest(
    before: Mapping[str, Hashable], after: Mapping[str, Hashable], chosen: Mapping[str, str]
) -> dict[str, str]:
    taken = set(chosen.values())
    free: dict[Hashable, list[str]] = {}
    for name, kind in after.items():
        if name not in taken and _NUMBERED.fullmatch(name):
            free.setdefault(kind, []).append(name)
    rest: dict[str, str] = {}
    for name, kind in before.items():
        if name not in chosen and _NUMBERED.fullmatch(name) and free.get(kind):
            rest[name] = free[kind].pop(0)
    return rest
