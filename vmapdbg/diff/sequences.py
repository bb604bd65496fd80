"""Aligns two sequences: equal stretches as `difflib.SequenceMatcher` finds them, only faster, and lines by likeness."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from difflib import Match, SequenceMatcher
from functools import lru_cache
from typing import TypeVar

Opcode = tuple[str, int, int, int, int]
Item = TypeVar("Item")

# With fewer pairs of items difflib is faster; with more of them the table needs too much memory.
_FEWEST_PAIRS = 10_000
_MOST_PAIRS = 50_000_000
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
    if _FEWEST_PAIRS <= len(before) * len(after) <= _MOST_PAIRS:
        return _LargeMatcher(before, after).get_opcodes()
    return SequenceMatcher(None, before, after, autojunk=False).get_opcodes()


class _LargeMatcher(SequenceMatcher[int]):
    """Finds the longest match in a table of all pairs of equal items. difflib searches the items again for each part
    that is left, which is slow for an expression of a thousand tokens that repeats itself."""

    def __init__(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        import numpy

        super().__init__(None, before, after, autojunk=False)
        left, right = numpy.array(before), numpy.array(after)
        # sorted by the position before, then by the position after
        self.rows, self.columns = numpy.nonzero(left[:, None] == right)
        # how many pairs follow each other on a diagonal up to each pair
        order = numpy.lexsort((self.rows, self.columns - self.rows))
        rows, columns = self.rows[order], self.columns[order]
        starts = numpy.ones(len(rows), bool)
        starts[1:] = (numpy.diff(rows) != 1) | (numpy.diff(columns) != 1)
        positions = numpy.arange(len(rows))
        first = numpy.maximum.accumulate(numpy.where(starts, positions, 0))
        self.runs = numpy.empty(len(rows), int)
        self.runs[order] = positions - first + 1

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """Returns the longest match in before[alo:ahi] and after[blo:bhi]: of several the first in before, then the
        first in after."""
        import numpy

        if ahi is None or bhi is None:
            raise TypeError("difflib passes the ends of every part")
        start, end = numpy.searchsorted(self.rows, (alo, ahi))
        rows, columns = self.rows[start:end], self.columns[start:end]
        # the part of each run inside of the bounds
        sizes = numpy.minimum(self.runs[start:end], numpy.minimum(rows - alo, columns - blo) + 1)
        sizes[columns >= bhi] = 0
        if not len(sizes) or sizes.max() <= 0:
            return Match(alo, blo, 0)
        best = int(sizes.argmax())
        size = int(sizes[best])
        return Match(int(rows[best]) - size + 1, int(columns[best]) - size + 1, size)


def align(
    before: Sequence[Item],
    after: Sequence[Item],
    key: Callable[[Item], Hashable],
    likeness: Callable[[Item, Item], float],
) -> Iterator[tuple[int, int]]:
    """Yields pairs of positions in order: items with equal keys, and between them items that are alike."""
    for tag, i, end, j, end_after in find_opcodes(list(map(key, before)), list(map(key, after))):
        if tag == "equal":
            yield from zip(range(i, end), range(j, end_after), strict=True)
        else:
            for row, column in _align_block(before[i:end], after[j:end_after], likeness):
                yield i + row, j + column


def _align_block(
    before: Sequence[Item], after: Sequence[Item], likeness: Callable[[Item, Item], float]
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
