"""Which stretches two sequences have in common, in order: what `difflib.SequenceMatcher` says, only quicker."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from difflib import Match, SequenceMatcher
from functools import lru_cache

Opcode = tuple[str, int, int, int, int]

# With fewer pairs of items difflib is quicker, with more of them the pairs would need too much memory.
_FEWEST_PAIRS = 10_000
_MOST_PAIRS = 50_000_000


def find_opcodes(before: Sequence[Hashable], after: Sequence[Hashable]) -> Sequence[Opcode]:
    """Returns what `SequenceMatcher.get_opcodes` does: (tag, start and end before, start and end after).

    Only which items are equal decides it, so each item is given the number of its first appearance, and the answer is
    kept for these numbers: the layers of a network ask for the same one again and again.
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
    """Finds the longest match in a table of all pairs of equal items, where difflib goes over the items again for each
    part that is left. An expression of a thousand tokens that repeats itself has many pairs and many parts."""

    def __init__(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        import numpy

        super().__init__(None, before, after, autojunk=False)
        left, right = numpy.array(before), numpy.array(after)
        # in order of the items before, then of those after
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
        """Returns the longest match in before[alo:ahi] and after[blo:bhi], of several the first in before, then the
        first in after."""
        import numpy

        if ahi is None or bhi is None:
            raise TypeError("difflib gives the ends of every part")
        start, end = numpy.searchsorted(self.rows, (alo, ahi))
        rows, columns = self.rows[start:end], self.columns[start:end]
        # what of a run lies inside
        sizes = numpy.minimum(self.runs[start:end], numpy.minimum(rows - alo, columns - blo) + 1)
        sizes[columns >= bhi] = 0
        if not len(sizes) or sizes.max() <= 0:
            return Match(alo, blo, 0)
        best = int(sizes.argmax())
        size = int(sizes[best])
        return Match(int(rows[best]) - size + 1, int(columns[best]) - size + 1, size)
