"""Which line of one file is which of another: two edits of a program, whose lines have other numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

# Two lines that have less in common are not one line, edited.
_LEAST_ALIKE = 0.6
# Blocks of more line pairs than this are not paired line by line.
_MOST_PAIRS = 4000


def match_lines(before: str, after: str, names: tuple[str, str]) -> dict[str, str]:
    """Returns for lines of the text `before` what they are in `after`, as `old.py:9` -> `new.py:10`, from the names of
    the two files: lines that are the same, and edited ones that are alike."""
    # not splitlines: Python's own line numbers do not count form feeds
    left, right = before.split("\n"), after.split("\n")
    found: dict[str, str] = {}
    for i, j in _pair_lines(left, right):
        if left[i].strip():
            found[f"{names[0]}:{i + 1}"] = f"{names[1]}:{j + 1}"
    return found


def _pair_lines(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[int, int]]:
    for tag, i, end, j, end_after in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from zip(range(i, end), range(j, end_after), strict=True)
        elif tag == "replace" and (end - i) * (end_after - j) <= _MOST_PAIRS:
            yield from _pair_edited(left, right, range(i, end), range(j, end_after))


def _pair_edited(left: Sequence[str], right: Sequence[str], rows: range, columns: range) -> list[tuple[int, int]]:
    """Pairs the lines of two blocks, the most alike first, and none across another pair."""
    scored: list[tuple[float, int, int, int]] = []
    for i in rows:
        for j in columns:
            moved = abs((i - rows[0]) - (j - columns[0]))
            scored.append((-_find_likeness(left[i], right[j]), moved, i, j))
    pairs: list[tuple[int, int]] = []
    for score, _, i, j in sorted(scored):
        if -score >= _LEAST_ALIKE and all(_is_apart(i, j, *pair) for pair in pairs):
            pairs.append((i, j))
    return pairs


def _is_apart(i: int, j: int, row: int, column: int) -> bool:
    """Tells whether two pairs have no line in common, and do not cross."""
    return i != row and j != column and (i < row) == (j < column)


def _find_likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one.strip(), other.strip(), autojunk=False).ratio()
