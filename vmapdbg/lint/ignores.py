"""Comments such as `# vmapdbg: ignore[VD104]` on a line of the user's code: they hide the findings about that line."""

import linecache
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from vmapdbg.model.capture import Finding
from vmapdbg.model.wording import split_place

_COMMENT = re.compile(r"#\s*vmapdbg:\s*ignore\b(?P<list>\s*\[(?P<codes>[^\]]*)(?P<end>\])?)?")


def split_ignored(
    findings: Iterable[Finding], sources: Mapping[str, str] | None = None
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Returns the findings that stay and the findings that a comment hides. A comment without codes hides all.
    `sources` are the user's files as in a Capture; None reads them now, and an unreadable file hides nothing."""
    kept: list[Finding] = []
    ignored: list[Finding] = []
    for finding in findings:
        comment = _COMMENT.search(read_line(finding.line, sources))
        is_hidden = comment is not None and (comment["list"] is None or finding.code in _list_codes(comment))
        (ignored if is_hidden else kept).append(finding)
    return tuple(kept), tuple(ignored)


def _list_codes(comment: re.Match[str]) -> list[str]:
    """Returns the codes in the list of a comment; a list without `]` hides nothing."""
    return [] if comment["end"] is None else [code.strip().upper() for code in comment["codes"].split(",")]


def list_mistakes(
    findings: Iterable[Finding], known: Collection[str], sources: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yields a sentence for each mistake in the ignore comments on findings' lines: an unknown code, or no `]`."""
    for place in dict.fromkeys(finding.line for finding in findings):
        comment = _COMMENT.search(read_line(place, sources))
        if comment is None or comment["list"] is None:
            continue
        if comment["end"] is None:
            yield f"{place}: {comment[0].strip()} has no ] at its end"
        for code in _list_codes(comment):
            if code not in known:
                yield f"{place}: unknown code {code!r} in ignore[{comment['codes']}]: choose from {', '.join(known)}"


def read_line(place: str | None, sources: Mapping[str, str] | None) -> str:
    """Returns the text of the line `file:12`, "" if it is unknown."""
    name, number = split_place(place or "")
    if number is None:
        return ""
    if sources is not None:
        return "".join(sources.get(name, "").splitlines()[number - 1 : number])
    # a FIFO or a device has no end
    if not Path(name).is_file():
        return ""
    linecache.checkcache(name)
    return linecache.getline(name, number)
