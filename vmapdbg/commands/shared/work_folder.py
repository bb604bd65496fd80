"""What the tool remembers for a working directory: the last job, and code from -c or stdin. In the user's state folder,
because in the working directory somebody else could name a program that the next command would run."""

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from vmapdbg.install.job import Job, dump_record, load_job
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import StoreError, check_output, write_atomically

_STDIN = "-"


def make_folder() -> Path:
    """Creates and returns the state folder of the working directory. Raises OSError, RuntimeError without a home."""
    import hashlib  # it takes time to import

    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state", "vmapdbg")
    folder = state / hashlib.sha256(os.fsencode(Path.cwd())).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def remember_job(job: Job) -> None:
    """Saves the job, unless the folder cannot be written."""
    with contextlib.suppress(OSError, RuntimeError, StoreError):
        write_atomically(make_folder() / "last.json", dump_record(job, indent=1) + "\n")


def recall_job() -> Job:
    """Returns the job that was saved last. Raises Failure."""
    try:
        return load_job((make_folder() / "last.json").read_text(encoding="utf-8"))
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):
        raise Failure("no SNIPPET given, and none is remembered here: run vmapdbg show SNIPPET first") from None


def check_target(output: Path | None, snippet: str | None, endings: Sequence[str] = ()) -> None:
    """Raises Failure, before anything runs, for a wrong ending, an unwritable file, or the (last) snippet itself."""
    if output is None:
        return
    if snippet is None:
        with contextlib.suppress(Failure):
            snippet = recall_job().snippet
    check_output(output, snippet, endings)


def file_of_code(snippet: str | None, code: str | None) -> tuple[str | None, str]:
    """Returns the file of a SNIPPET or of `code`, and `-c` or `-` if the code was typed or read from stdin, else "".
    Such code is written to a file: its lines have names, and a later command can use it. Raises Failure."""
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
    """Writes code to a file, named after the code, so that parallel runs do not collide; returns it. Raises Failure."""
    import hashlib

    try:
        file = make_folder() / f"code-{hashlib.sha256(code).hexdigest()[:8]}.py"
    except (OSError, RuntimeError) as error:
        raise Failure(f"cannot keep the code: {error}") from None
    write_atomically(file, code)
    return str(file)
