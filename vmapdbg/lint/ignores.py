"""`# vmapdbg: ignore[VD104]` on a line of the user's code: findings about that line that are not wanted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from vmapdbg.model.capture import Finding

_COMMENT = re.compile(r"#\s*vmapdbg:\s*ignore(?:\[([^\]]*)\])?")


def split_ignored(findings: Iterable[Finding]) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Returns the findings that stay and those that a comment on their line names (all codes where it names none).

    Lines are looked up in the files as they are now; a file that cannot be read ignores nothing.
    """
    files: dict[str, list[str]] = {}
    every = tuple(findings)
    ignored = tuple(finding for finding in every if is_ignored(finding, files))
    return tuple(finding for finding in every if not is_ignored(finding, files)), ignored


def is_ignored(finding: Finding, files: dict[str, list[str]]) -> bool:
    comment = _COMMENT.search(find_line(finding.line, files))
    if comment is None:
        return False
    return comment[1] is None or finding.code in [code.strip() for code in comment[1].split(",")]


def find_line(place: str | None, files: dict[str, list[str]]) -> str:
    """Returns the text of `file:12`, nothing where it cannot be read; `files` has the lines of those read so far."""
    found = split_place(place)
    if found is None:
        return ""
    name, number = found
    if name not in files:
        files[name] = read_lines(name)
    return next(iter(files[name][number - 1 : number]), "")


def split_place(place: str | None) -> tuple[str, int] | None:
    """Returns (file, line) of `file:12`, None where there is none."""
    # from the right: a path may have a colon, too
    name, _, number = (place or "").rpartition(":")
    if not name or not number.isdigit():
        return None
    return name, int(number)


def read_lines(name: str) -> list[str]:
    try:
        return Path(name).read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return []
