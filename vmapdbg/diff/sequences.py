"""Aligns two sequences: equal stretches as `difflib.SequenceMatcher` finds them, and lines by likeness."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import TypeVar

Opcode = tuple[str, int, int, int, int]
_Item = TypeVar("_Item")

# Two user lines with a lower ratio are not the same line, edited.
_LEAST_ALIKE = 0.6
# Blocks with more pairs of lines than this are not aligned line by line.
_MOST_BLOCK = 4000


def find_opcodes(before: Sequence[Hashable], after: Sequence[Hashable]) -> Sequence[Opcode]:
    """Returns what `SequenceMatcher.get_opcodes` returns: (tag, start and end before, start and end after).

    Only the equality of items matters, so each item becomes the number of its first appearance, and the result is
    cached for these numbers: the layers of a network ask for the same result again and again.
    """
    numbers: dict[Hashable, int] = {}
    left = tuple([numbers.setdefault(item, len(numbers)) for item in before])
    right = tuple([numbers.setdefault(item, len(numbers)) for item in after])
    return _compare_numbers(left, right)


@lru_cache(maxsize=4096)
def _compare_numbers(before: tuple[int, ...], after: tuple[int, ...]) -> Sequence[Opcode]:
    return SequenceMatcher(None, before, after, autojunk=False).get_opcodes()


def align(
    before: Sequence[_Item],
    after: Sequence[_Item],
    key: Callable[[_Item], Hashable],
    likeness: Callable[[_Item, _Item], float],
) -> Iterator[tuple[int, int]]:
    """Yields pairs of positions in order: items with equal keys, and between them items that are alike."""
    for tag, i, end, j, end_after in find_opcodes(list(map(key, before)), list(map(key, after))):
        if tag == "equal":
            yield from zip(range(i, end), range(j, end_after), strict=True)
        else:
            for row, column in _align_block(before[i:end], after[j:end_after], likeness):
                yield i + row, j + column


def _align_block(
    before: Sequence[_Item], after: Sequence[_Item], likeness: Callable[[_Item, _Item], float]
) -> Iterator[tuple[int, int]]:
    """Yields pairs in order, so that the sum of their likeness is the largest. Large blocks are not aligned."""
    if len(before) * len(after) > _MOST_BLOCK:
        return
    # best[i][j] is the largest sum for before[i:] and after[j:]
    best = [[0.0] * (len(after) + 1) for _ in range(len(before) + 1)]
    alike = [[likeness(one, other) for other in after] for one in before]
    for i in reversed(range(len(before))):
        for j in reversed(range(len(after))):
            best[i][j] = max(best[i + 1][j + 1] + alike[i][j], best[i + 1][j], best[i][j + 1])
    i = j = 0
    while i < len(before) and j < len(after):
        if alike[i][j] and best[i][j] == best[i + 1][j + 1] + alike[i][j]:
            yield i, j
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1


def match_lines(before: str, after: str, names: tuple[str, str]) -> dict[str, str]:
    """Maps lines of the text `before` to equal or similar lines of `after`, as `old.py:9` -> `new.py:10`; `names` are
    the names of the two files."""
    # not splitlines: Python's own line numbers do not count form feeds
    left, right = before.split("\n"), after.split("\n")
    pairs = align(left, right, str, _line_likeness)
    return {f"{names[0]}:{i + 1}": f"{names[1]}:{j + 1}" for i, j in pairs if left[i].strip()}


def _line_likeness(one: str, other: str) -> float:
    alike = SequenceMatcher(None, one.strip(), other.strip(), autojunk=False).ratio()
    return alike if alike >= _LEAST_ALIKE else 0.0
