"""What differs between two texts, and which differences are the same."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_LONG_LINE = 300
_MOST_KEYS = 6
_WORD = re.compile(r"\w+|[^\w\s]")
_PLACE = re.compile(r'(\b(?:overlay|tinygrad)/[\w/]+\.py(?::|",\s*"line":\s*))\d+|("line":\s*)\d+(?=,\s*"text")')


@dataclass(frozen=True)
class Difference:
    """The lines of a unified diff of one output; `key` is program/state/view."""

    key: str
    lines: tuple[str, ...]

    @property
    def words(self) -> tuple[frozenset[str], frozenset[str]]:
        """The words that the output loses, and the words that it gains. Empty where only their order or the space
        between them changes."""
        removed, added = (
            frozenset(word for line in self.lines if line[0] == sign for word in _WORD.findall(line[1:]))
            for sign in "-+"
        )
        return removed - added, added - removed


@dataclass(frozen=True)
class Group:
    """Differences that lose and gain the same words."""

    differences: tuple[Difference, ...]

    def describe(self, most: int) -> str:
        """Returns the keys, and at most so many lines of the shortest difference."""
        shortest = min(self.differences, key=lambda one: len(one.lines))
        others = [one.key for one in self.differences if one is not shortest]
        lines = [shortest.key, *(f"  {line}" for line in shortest.lines[:most])]
        if len(shortest.lines) > most:
            lines.append(f"  ... {len(shortest.lines) - most} more lines: --full shows them")
        if others:
            more = f" and {len(others) - _MOST_KEYS} more" if len(others) > _MOST_KEYS else ""
            lines.append(f"  the same in {len(others)} other outputs: {', '.join(others[:_MOST_KEYS])}{more}")
        return "\n".join(lines) + "\n"


def hide_places(text: str) -> str:
    """Returns a text without the line numbers of tinygrad's and the overlay's files."""
    return _PLACE.sub(r"\1\2N", text)


def compare_texts(key: str, before: str, after: str) -> Difference:
    """Returns the difference of two texts. A long line is compared piece by piece."""
    found = difflib.unified_diff(list(_split_lines(before)), list(_split_lines(after)), lineterm="", n=1)
    return Difference(key, tuple(found)[2:])


def _split_lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield from [line] if len(line) < _LONG_LINE else re.findall(r".+?(?:[,;>}]|$)", line)


def group_equal(differences: Sequence[Difference]) -> list[Group]:
    """Returns the differences in groups, the largest group first."""
    groups: dict[object, list[Difference]] = {}
    for one in differences:
        groups.setdefault(one.words, []).append(one)
    return sorted((Group(tuple(found)) for found in groups.values()), key=lambda group: -len(group.differences))
