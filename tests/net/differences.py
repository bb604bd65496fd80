"""What differs between two texts, and which differences are the same."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_LONG_LINE = 300
_MOST_LINES = 12
_MOST_KEYS = 6
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Difference:
    """The lines of a unified diff of one output; `key` is program/state/view."""

    key: str
    lines: tuple[str, ...]

    @property
    def words(self) -> tuple[frozenset[str], frozenset[str]]:
        """The words that the output loses, and the words that it gains. Empty if only their order or the space between
        them changes."""
        removed, added = (
            frozenset(word for line in self.lines if line[0] == sign for word in _WORD.findall(line[1:]))
            for sign in "-+"
        )
        return removed - added, added - removed


def compare_texts(key: str, before: str, after: str) -> Difference:
    """Returns the difference of two texts. A long line is compared piece by piece."""
    found = difflib.unified_diff(list(_split_lines(before)), list(_split_lines(after)), lineterm="", n=1)
    return Difference(key, tuple(found)[2:])


def _split_lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield from [line] if len(line) < _LONG_LINE else re.findall(r".+?(?:[,;>}]|$)", line)


def group_equal(differences: Sequence[Difference]) -> list[list[Difference]]:
    """Returns the differences in groups that lose and gain the same words, the largest group first."""
    groups: dict[object, list[Difference]] = {}
    for one in differences:
        groups.setdefault(one.words, []).append(one)
    return sorted(groups.values(), key=len, reverse=True)


def describe_group(group: Sequence[Difference]) -> str:
    """Returns the beginning of the shortest difference, and the keys."""
    shortest = min(group, key=lambda one: len(one.lines))
    others = [one.key for one in group if one is not shortest]
    lines = [shortest.key, *(f"  {line}" for line in shortest.lines[:_MOST_LINES])]
    if len(shortest.lines) > _MOST_LINES:
        lines.append(f"  ... {len(shortest.lines) - _MOST_LINES} more lines")
    if others:
        lines.append(f"  the same in {len(others)} other outputs: {', '.join(others[:_MOST_KEYS])}")
    return "\n".join(lines) + "\n"
