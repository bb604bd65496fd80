"""Names that mean nothing by themselves: which range of one side is which of the other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace

from vmapdbg.diff.pairing import match_in_order
from vmapdbg.model.capture import Range, Reason

# A range that the pass numbered. `rm1` is the user's own: -1 in the program, on both sides.
_NUMBERED = re.compile(r"\br\d\w*")


def find_ranges(expression: str) -> list[str]:
    """Returns the numbered ranges of an expression such as `(r4*2+r5)`, in order."""
    return _NUMBERED.findall(expression)


def blank_ranges(expression: str, name_of: Callable[[str], str] | None = None) -> str:
    """Returns an expression with each numbered range replaced: by `r`, or by what `name_of` gives for it."""
    if name_of is None:
        return _NUMBERED.sub("r", expression)
    return _NUMBERED.sub(lambda match: name_of(match[0]), expression)


def choose_names(votes: Mapping[tuple[str, str], int]) -> dict[str, str]:
    """Returns the one-to-one mapping that most votes are for."""
    return match_in_order(sorted(votes, key=lambda pair: (-votes[pair], *sorted(map(_by_number, pair)))))


def _by_number(name: str) -> tuple[int, str]:
    return len(name), name


class Renaming:
    """The ranges and nodes of before, as after calls them."""

    def __init__(self, ranges: Mapping[str, str], nodes: Mapping[int, int], lone: Iterable[str] = ()) -> None:
        """`lone` are the ranges of before without a partner."""
        self.ranges = dict(ranges)
        self.nodes = nodes
        self._names = {name: name + "'" for name in lone} | self.ranges

    def translate(self, expression: str) -> str:
        """Returns an expression of before in the names of after; a range without a partner becomes `r4'`."""
        return blank_ranges(expression, lambda name: self._names.get(name, name))

    def translate_all(self, expressions: Iterable[str] | None) -> tuple[str, ...] | None:
        """Returns a tuple of expressions translated; None stays."""
        return None if expressions is None else tuple(map(self.translate, expressions))

    def translate_reason(self, reason: Reason) -> Reason | None:
        """Returns a reason of before with the ranges and nodes of after, None where a node of it has no partner."""
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
    """Returns which range of before is which of after.

    `pairs` are the expressions of matched things and their weight; those of equal form vote for the ranges they
    name. Ranges that no expression names are paired by size and axis type, in order. A vmap range keeps its name.
    """
    kinds_before, kinds_after = collect_kinds(before), collect_kinds(after)

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
    own = {name for name in kinds_before if not _NUMBERED.fullmatch(name) and may_pair(name, name)}
    return {name: chosen.get(name, name) for name in kinds_before if name in chosen or name in own} | chosen


def collect_kinds(ranges: Iterable[Range]) -> dict[str, Hashable]:
    """Returns what tells each range apart, its name left out."""
    return {item.name: (item.size, item.axis_type, item.vmap) for item in ranges}


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
