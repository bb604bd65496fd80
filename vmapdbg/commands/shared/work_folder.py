"""The folder `.vmapdbg/` under the working directory: the last job, and code from -c or stdin."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from vmapdbg.install.job import Job, dump_record, load_job
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import StoreError, check_output, write_atomically

FOLDER = Path(".vmapdbg")
_STDIN = "-"


def make_folder() -> Path:
    """Creates the folder `.vmapdbg` if necessary, and returns it. Raises OSError."""
    FOLDER.mkdir(exist_ok=True)
    # the folder ignores itself, so that git never offers it for a commit
    ignore = FOLDER / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    return FOLDER


# *** the last job


def remember_job(job: Job) -> None:
    """Saves the job, unless the directory cannot be written."""
    with contextlib.suppress(OSError, StoreError):
        write_atomically(make_folder() / "last.json", dump_record(job, indent=1) + "\n")


def recall_job() -> Job:
    """Returns the job that was saved last. Raises Failure."""
    try:
        return load_job((FOLDER / "last.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError):
        raise Failure("no SNIPPET given, and none is remembered here: run vmapdbg show SNIPPET first") from None


def check_target(output: Path, snippet: str | None, endings: Sequence[str] = ()) -> None:
    """Raises Failure, before anything runs, if a file cannot be written, has none of the `endings`, or is the snippet;
    without a snippet, the snippet of the last show."""
    if snippet is None:
        with contextlib.suppress(Failure):
            snippet = recall_job().snippet
    check_output(output, snippet, endings)


# *** code from -c or stdin


def file_of_code(snippet: str | None, code: str | None) -> tuple[str | None, str]:
    """Returns the file of a SNIPPET or of the `code` after -c, and `-c` or `-` if the code was typed or read from
    stdin, else "". Such code is written to a file, so that its lines have names and a later command can use it. Raises
    Failure."""
    if code is not None:
        if snippet is not None:
            raise Failure(f"-c CODE is the snippet, and {snippet} is another one: give one of them")
        return keep_code(code.encode()), "-c"
    if snippet == _STDIN:
        if sys.stdin is None:
            raise Failure("- is stdin, and stdin is closed")
        return keep_code(sys.stdin.buffer.read()), _STDIN
    return snippet, ""


def keep_code(code: bytes) -> str:
    """Writes code to a file and returns its name. The name depends on the code, so that two runs at the same time do
    not overwrite each other's code. Raises Failure."""
    # imported here because most commands get a file
    import hashlib

    file = FOLDER / f"code-{hashlib.sha256(code).hexdigest()[:8]}.py"
    try:
        make_folder()
    except OSError as error:
        raise Failure(f"cannot keep the code in {FOLDER}: {error.strerror}") from None
    write_atomically(file, code)
    return str(file)
