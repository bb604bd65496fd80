"""`# vmapdbg: ignore[VD104]` on a line of the user's code: findings about that line that are not wanted."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from vmapdbg.model.capture import Finding
from vmapdbg.model.place import split_place

_COMMENT = re.compile(r"#\s*vmapdbg:\s*ignore\b(?P<list>\s*\[(?P<codes>[^\]]*)(?P<end>\])?)?")


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
    if comment["list"] is None:
        return True
    # a list without its end names nothing: `list_mistakes` tells of it
    return comment["end"] is not None and finding.code in split_codes(comment["codes"])


def split_codes(codes: str) -> list[str]:
    return [code.strip().upper() for code in codes.split(",")]


def list_mistakes(name: str, known: Collection[str]) -> Iterator[str]:
    """Yields a sentence for each comment of a file that ignores nothing because of how it is written: with a code that
    is none of those known, or without the end of its list. A file that cannot be read as Python has none."""
    text = "\n".join(read_lines(name))
    # most files have no such comment, and to tokenize them takes longer than to see that
    if _COMMENT.search(text) is None:
        return
    try:
        # not the lines as such: a text in quotes is no comment
        comments = [
            found for found in tokenize.generate_tokens(io.StringIO(text).readline) if found.type == tokenize.COMMENT
        ]
    except (tokenize.TokenError, SyntaxError):
        return
    for found in comments:
        comment = _COMMENT.search(found.string)
        if comment is None or comment["list"] is None:
            continue
        place = f"{name}:{found.start[0]}"
        if comment["end"] is None:
            yield f"{place}: {comment[0].strip()} has no ] at its end"
            continue
        for code in split_codes(comment["codes"]):
            if code not in known:
                yield f"{place}: unknown code {code!r} in ignore[{comment['codes']}]: choose from {', '.join(known)}"


def list_other_mistakes(findings: Iterable[Finding], known: Collection[str]) -> Iterator[str]:
    """Yields the same for each file that a finding names."""
    files = {split_place(finding.line)[0] for finding in findings if finding.line is not None}
    for file in sorted(files):
        yield from list_mistakes(file, known)


def find_line(place: str | None, files: dict[str, list[str]]) -> str:
    """Returns the text of `file:12`, nothing where it cannot be read; `files` has the lines of those read so far."""
    name, number = split_place(place or "")
    if number is None:
        return ""
    if name not in files:
        files[name] = read_lines(name)
    return next(iter(files[name][number - 1 : number]), "")


def read_lines(name: str) -> list[str]:
    try:
        return Path(name).read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return []
