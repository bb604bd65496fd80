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
    # from the right: a path may have a colon, too
    name, _, number = (finding.line or "").rpartition(":")
    if not name or not number.isdigit():
        return False
    if name not in files:
        files[name] = read_lines(name)
    lines = files[name]
    if not 0 < int(number) <= len(lines) or (comment := _COMMENT.search(lines[int(number) - 1])) is None:
        return False
    return comment[1] is None or finding.code in [code.strip() for code in comment[1].split(",")]


def read_lines(name: str) -> list[str]:
    try:
        return Path(name).read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return []
