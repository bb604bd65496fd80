"""Pairs the things of two sides: by keys, by likeness, in order; the range names of one side with the other side's."""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import lru_cache, partial
from itertools import count
from typing import TypeVar

from vmapdbg.model.capture import Range, Reason

Key = TypeVar("Key", bound=Hashable)
Thing = TypeVar("Thing", int, str)
Numbers = defaultdict[Hashable, int]
Opcode = tuple[str, int, int, int, int]
_Item = TypeVar("_Item")
Likeness = Callable[[_Item, _Item], float]

_LEAST_ALIKE = 0.6  # two user lines with a lower ratio are not the same line, edited
_MOST_BLOCK = 4000  # blocks with more pairs of lines are not aligned line by line

_SAME_AXIS_TYPE = {"WEAK": "LOOP"}  # since 0.14 the loops of a schedule are called WEAK
_NUMBERED = re.compile(r"\br\d\w*")  # numbered by the pass; the user's own `rm1` is -1 on both sides


def make_numbers() -> Numbers:
    """Returns a table that numbers its keys as they come (hash-consing). Keys hold numbers: nothing recurses."""
    return defaultdict(count().__next__)


def match_levels(before: Sequence[Mapping[int, Key]], after: Sequence[Mapping[int, Key]]) -> dict[int, int]:
    """Pairs things with equal keys of the first level, then the rest by the next level; of one key, in their order."""
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


def match_alike(
    before: Sequence[_Item], after: Sequence[_Item], likeness: Likeness[_Item], window: int = sys.maxsize
) -> dict[int, int]:
    """Pairs positions less than `window` apart: the most alike first, then the nearest. Likeness 0 is no pair."""
    scored: list[tuple[float, int, int, int, int]] = []
    for i, one in enumerate(before):
        first = max(i - window, 0)
        for j, other in enumerate(after[first : i + window], first):
            if alike := likeness(one, other):
                scored.append((-alike, abs(i - j), i + j, i, j))
    return match_in_order((i, j) for *_, i, j in sorted(scored))


def share(common: int, whole: int) -> float:
    """Returns the share that two things have in common, from 0 to 1; `whole` is the sum of their sizes."""
    return 2 * common / whole if whole else 0.0


# *** sequences


def find_opcodes(before: Sequence[Hashable], after: Sequence[Hashable]) -> Sequence[Opcode]:
    """Returns `SequenceMatcher.get_opcodes`, cached for numbers of the items: a network's layers ask repeatedly."""
    numbers = make_numbers()
    return _compare_numbers(tuple([numbers[item] for item in before]), tuple([numbers[item] for item in after]))


@lru_cache(maxsize=4096)
def _compare_numbers(before: tuple[int, ...], after: tuple[int, ...]) -> Sequence[Opcode]:
    return SequenceMatcher(None, before, after, autojunk=False).get_opcodes()


def align(
    before: Sequence[_Item], after: Sequence[_Item], key: Callable[[_Item], Hashable], likeness: Likeness[_Item]
) -> Iterator[tuple[int, int]]:
    """Yields pairs of positions in order: items with equal keys, and between them items that are alike."""
    for tag, i, end, j, end_after in find_opcodes(list(map(key, before)), list(map(key, after))):
        if tag == "equal":
            yield from zip(range(i, end), range(j, end_after), strict=True)
        else:
            for row, column in _align_block(before[i:end], after[j:end_after], likeness):
                yield i + row, j + column


def _align_block(before: Sequence[_Item], after: Sequence[_Item], likeness: Likeness[_Item]) -> list[tuple[int, int]]:
    """Returns pairs in order, the most alike chosen first. Large blocks are not aligned."""
    chosen: list[tuple[int, int]] = []
    if len(before) * len(after) > _MOST_BLOCK:
        return chosen
    scored = [(-likeness(one, other), i, j) for i, one in enumerate(before) for j, other in enumerate(after)]
    for score, i, j in sorted(scored):
        if score and all((i < left and j < right) or (i > left and j > right) for left, right in chosen):
            chosen.append((i, j))
    return sorted(chosen)


def match_lines(before: str, after: str, names: tuple[str, str]) -> dict[str, str]:
    """Maps lines to equal or similar lines, as `old.py:9` -> `new.py:10`; `names` are the names of the files."""
    # not splitlines: Python's own line numbers do not count form feeds
    left, right = before.split("\n"), after.split("\n")
    pairs = align(left, right, str, _line_likeness)
    return {f"{names[0]}:{i + 1}": f"{names[1]}:{j + 1}" for i, j in pairs if left[i].strip()}


def _line_likeness(one: str, other: str) -> float:
    alike = SequenceMatcher(None, one.strip(), other.strip(), autojunk=False).ratio()
    return alike if alike >= _LEAST_ALIKE else 0.0


# *** names of ranges

find_ranges: Callable[[str], list[str]] = _NUMBERED.findall
"""Returns the numbered ranges of an expression such as `(r4*2+r5)`, in order."""
blank_ranges = partial(_NUMBERED.sub, "r")  # replaces each numbered range of an expression by `r`


def choose_names(votes: Mapping[tuple[str, str], int]) -> dict[str, str]:
    """Returns a one-to-one mapping of names; pairs with more votes win."""

    def rank(pair: tuple[str, str]) -> tuple[object, ...]:
        # symmetric in the sides, numbers in their order
        return -votes[pair], *sorted((len(name), name) for name in pair)

    return match_in_order(sorted(votes, key=rank))


class Renaming:
    """Translates the ranges and nodes of before to their names after; `lone` are ranges of before without a partner."""

    def __init__(self, ranges: Mapping[str, str], nodes: Mapping[int, int], lone: Iterable[str] = ()) -> None:
        self.ranges = dict(ranges)
        self.nodes = nodes
        self._names = {name: name + "'" for name in lone} | self.ranges

    def translate(self, expression: str) -> str:
        """Returns an expression of before in the names of after; a range without a partner becomes `r4'`."""
        return _NUMBERED.sub(lambda match: self._names.get(match[0], match[0]), expression)

    def translate_all(self, expressions: Iterable[str] | None) -> tuple[str, ...] | None:
        """Returns expressions translated; None stays None."""
        return None if expressions is None else tuple(map(self.translate, expressions))

    def is_same_reason(self, before: Reason, after: Reason) -> bool:
        """Returns whether two reasons are the same, at whatever line of tinygrad's source."""
        axis = self.translate(before.axis) if isinstance(before.axis, str) else before.axis
        nodes = tuple(self.nodes.get(node, -1) for node in before.nodes)
        ranges = self.translate_all(before.ranges) or ()
        return _forget_place(replace(before, nodes=nodes, ranges=ranges, axis=axis)) == _forget_place(after)


def _forget_place(reason: Reason) -> Reason:
    """Returns a reason without the place in tinygrad's source. A rule without a name keeps the statement."""
    if reason.at is None:
        return reason
    text = {"text": reason.at.text} if reason.rule == "decided-at" else {}
    return replace(reason, numbers={**reason.numbers, **text}, at=None)


def choose_ranges(
    pairs: Iterable[tuple[tuple[str, ...], tuple[str, ...], int]], before: Iterable[Range], after: Iterable[Range]
) -> dict[str, str]:
    """Maps each range of before to a range of after. `pairs` has expressions before and after, and their weight: two of
    the same form vote for their ranges. The others: by size and axis type, in order. A vmap range keeps its name."""
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
    taken = set(chosen.values())
    left = [name for name in kinds_before if name not in chosen and _NUMBERED.fullmatch(name)]
    right = [name for name in kinds_after if name not in taken and _NUMBERED.fullmatch(name)]
    rest = match_levels(
        [{i: kinds_before[name] for i, name in enumerate(left)}],
        [{i: kinds_after[name] for i, name in enumerate(right)}],
    )
    chosen |= {left[i]: right[j] for i, j in rest.items()}
    for name in kinds_before:
        if not _NUMBERED.fullmatch(name) and may_pair(name, name):
            chosen.setdefault(name, name)
    return {name: chosen[name] for name in kinds_before if name in chosen} | chosen


def range_kinds(ranges: Iterable[Range]) -> dict[str, Hashable]:
    """Returns for each range its size, axis type and whether a vmap made it."""
    return {item.name: (item.size, _SAME_AXIS_TYPE.get(item.axis_type, item.axis_type), item.vmap) for item in ranges}
