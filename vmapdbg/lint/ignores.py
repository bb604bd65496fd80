"""Comments such as `# vmapdbg: ignore[VD104]` on a line of the user's code: they hide the findings about that line."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from vmapdbg.model.capture import Finding
from vmapdbg.model.wording import split_place

_COMMENT = re.compile(r"#\s*vmapdbg:\s*ignore\b(?P<list>\s*\[(?P<codes>[^\]]*)(?P<end>\])?)?")


def split_ignored(findings: Iterable[Finding]) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Returns the findings that stay and the findings that a comment hides. A comment without codes hides all.

    Lines are read from the files as they are now; an unreadable file hides nothing.
    """
    files: dict[str, list[str]] = {}
    kept: list[Finding] = []
    ignored: list[Finding] = []
    for finding in findings:
        comment = _COMMENT.search(find_line(finding.line, files))
        if comment is None:
            kept.append(finding)
        elif comment["list"] is None or (comment["end"] is not None and finding.code in _split_codes(comment["codes"])):
            ignored.append(finding)
        else:
            # a list without `]` hides nothing: `list_mistakes` reports it
            kept.append(finding)
    return tuple(kept), tuple(ignored)


def _split_codes(codes: str) -> list[str]:
    return [code.strip().upper() for code in codes.split(",")]


def list_mistakes(name: str, known: Collection[str]) -> Iterator[str]:
    """Yields a sentence for each ignore comment of a file that has an unknown code or no `]`. A file that is not
    Python has none."""
    text = "\n".join(read_lines(name))
    # most files have no such comment, and searching is faster than tokenizing
    if _COMMENT.search(text) is None:
        return
    try:
        # the same text inside a string is not a comment
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return
    for token in tokens:
        comment = _COMMENT.search(token.string)
        if token.type != tokenize.COMMENT or comment is None or comment["list"] is None:
            continue
        place = f"{name}:{token.start[0]}"
        if comment["end"] is None:
            yield f"{place}: {comment[0].strip()} has no ] at its end"
            continue
        for code in _split_codes(comment["codes"]):
            if code not in known:
                yield f"{place}: unknown code {code!r} in ignore[{comment['codes']}]: choose from {', '.join(known)}"


def list_other_mistakes(findings: Iterable[Finding], known: Collection[str]) -> Iterator[str]:
    """Yields the mistakes of each file that a finding names."""
    files = {split_place(finding.line)[0] for finding in findings if finding.line is not None}
    for file in sorted(files):
        yield from list_mistakes(file, known)


def find_line(place: str | None, files: dict[str, list[str]]) -> str:
    """Returns the text of the line `file:12`, "" if it cannot be read. `files` caches the lines read so far."""
    name, number = split_place(place or "")
    if number is None:
        return ""
    if name not in files:
        files[name] = read_lines(name)
    return next(iter(files[name][number - 1 : number]), "")


def read_lines(name: str) -> list[str]:
    """Returns the lines of a file, none if it cannot be read."""
    try:
        return Path(name).read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return []
