"""Code in the place of a snippet's file: typed after `-c`, or read from stdin for `-`.

It is written to a file in `.vmapdbg/`, so that lines of it can be named and looked up as those of any snippet, and so
that commands without a snippet find it again.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

from vmapdbg.commands.last_job import make_folder
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import StoreError, write_atomically

_STDIN = "-"
_MOST_FILES = 50
"""So many are kept, those of the last runs."""

# the file's folder, where nothing can be written below the working directory: it goes with the tool
_elsewhere: list[tempfile.TemporaryDirectory[str]] = []


def find_typed(snippet: str | None, code: str | None) -> tuple[str | None, str]:
    """Returns the snippet, and `-c` or `-` where it was typed or came from stdin: a file has its code then.

    `snippet` is what is given as SNIPPET, `code` what follows -c. Raises Failure."""
    if code is not None:
        if snippet is not None:
            raise Failure(f"-c CODE is the snippet, and {snippet} is another one: give one of them")
        return keep_code(code.encode()), "-c"
    if snippet == _STDIN:
        return keep_code(read_stdin()), _STDIN
    return snippet, ""


def read_stdin() -> bytes:
    if sys.stdin is None:
        raise Failure("- is stdin, and stdin is closed")
    return sys.stdin.buffer.read()


def keep_code(code: bytes) -> str:
    """Writes code to a file and returns its name. The same code has the same file: another run with other code, at the
    same time, has another."""
    # most commands have a file: none of them waits for this import
    import hashlib

    name = f"code-{hashlib.sha256(code).hexdigest()[:8]}.py"
    try:
        file = make_folder() / name
        write_atomically(file, code)
        drop_old_files(file.parent)
    except (OSError, StoreError):
        _elsewhere.append(tempfile.TemporaryDirectory(prefix="vmapdbg-"))
        file = Path(_elsewhere[-1].name) / name
        write_atomically(file, code)
    return str(file)


def drop_old_files(folder: Path) -> None:
    files = sorted(folder.glob("code-*.py"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in files[_MOST_FILES:]:
        # another run may be at it, too
        with contextlib.suppress(OSError):
            file.unlink()
