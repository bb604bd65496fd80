"""Reads the blocks of a document that show what a command prints, and compares them with what it does print."""

from __future__ import annotations

import re
from typing import NamedTuple

BLOCK = re.compile(r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
_LEFT_OUT = "..."


class Printed(NamedTuple):
    """A block that a command prints."""

    page: str
    command: str
    text: str


def list_printed(page: str, text: str) -> list[Printed]:
    """Returns the blocks below `<!-- prints: COMMAND -->` in the text of a page."""
    marked = [block for block in BLOCK.finditer(text) if (block["mark"] or "").startswith("prints: ")]
    return [Printed(page, block["mark"].removeprefix("prints: "), block["text"]) for block in marked]


def find_missing(shown: str, printed: str) -> str | None:
    """Returns the first part of a block that is not in what was printed, None if all parts are there, in order. Lines
    `...` separate parts. Indentation does not count."""
    rest = printed.splitlines()
    for part in _read_parts(shown):
        place = _find_part(rest, part)
        if place is None:
            return "\n".join(part)
        rest = rest[place + len(part) :]
    return None


def find_added(shown: str, printed: str) -> str | None:
    """Returns the first or the last line that was printed if the block neither shows it nor leaves it out."""
    parts, lines = _read_parts(shown), [line.strip() for line in printed.splitlines()]
    if parts[0] and lines[: len(parts[0])] != [line.strip() for line in parts[0]]:
        return lines[0]
    if parts[-1] and lines[-len(parts[-1]) :] != [line.strip() for line in parts[-1]]:
        return lines[-1]
    return None


def _read_parts(text: str) -> list[list[str]]:
    """The lines of a block, without the command on top, where some are left out in several parts."""
    parts: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.strip() == _LEFT_OUT:
            parts.append([])
        elif not line.startswith("$ "):
            parts[-1].append(line)
    return parts


def _find_part(lines: list[str], part: list[str]) -> int | None:
    """Returns the position of a part in the text, its lines in order."""
    wanted = [line.strip() for line in part]
    shown = [line.strip() for line in lines]
    return next((i for i in range(len(shown) + 1) if shown[i : i + len(wanted)] == wanted), None)
