"""The user's files, as they are when the report is made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vmapdbg.model.wording import split_place

_MOST_BYTES = 400_000
"""Of a larger file nothing is shown: it is no source that somebody reads."""


@dataclass(frozen=True)
class SourceFile:
    """A file that lines of a capture name. `text` is None where it cannot be read, and `note` says why; it also says
    that the file is younger than the capture."""

    name: str
    text: str | None
    note: str = ""


def read_sources(lines: Iterable[str], snippet: str, saved_at: float | None = None) -> list[SourceFile]:
    """Reads the files that some lines name, the snippet first.

    `saved_at` is when a saved capture was written, in seconds since 1970; None where the snippet has just run. A saved
    capture may come from somebody else: of the files that it names only Python's own are put into a page.
    """
    names = sorted({split_place(line)[0] for line in lines}, key=lambda name: (name != snippet, name))
    return [_read(name, saved_at) for name in names]


def _read(name: str, saved_at: float | None) -> SourceFile:
    path = Path(name)
    try:
        # a line of `exec` is in `<string>`, and a device is no file to read
        if not path.is_file() or (saved_at is not None and path.suffix != ".py"):
            return SourceFile(name, None, "this file is not here: its lines stand without their text")
        status = path.stat()
        if status.st_size > _MOST_BYTES:
            return SourceFile(name, None, f"a file of {status.st_size:,} bytes: its lines stand without their text")
        text = path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return SourceFile(name, None, f"this file cannot be read ({reason}): its lines stand without their text")
    return SourceFile(name, text, _tell_age(status.st_mtime, saved_at))


def _tell_age(changed: float, saved_at: float | None) -> str:
    if saved_at is None:
        return ""
    if changed > saved_at:
        return "changed since the capture was saved: lines may stand at other places"
    return "read now; by its date it has not changed since the capture was saved"
