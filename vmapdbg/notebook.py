"""The report of a cell, shown below it: `%load_ext vmapdbg.notebook` in a notebook, then `%%vmapdbg` on top of a cell.

The cell runs as a program of its own, in a process of its own, as any snippet does: it has nothing of what other cells
made, and leaves nothing to them. Nothing of IPython is imported: it calls `load_ipython_extension`, and shows what has
a `_repr_html_`.
"""

from __future__ import annotations

import html
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

_FOLDER = Path(".vmapdbg")
"""Where commands without a snippet look for the last one; the cell stands there, too."""
_WROTE = "vmapdbg: wrote "
_HEIGHT = 720


class Shell(Protocol):
    """What is needed of IPython's shell."""

    def register_magic_function(self, func: Any, magic_kind: str, magic_name: str) -> object: ...


def load_ipython_extension(shell: Shell) -> None:
    """Gives a notebook the cell magic; IPython calls it for `%load_ext vmapdbg.notebook`."""
    shell.register_magic_function(run_cell, "cell", "vmapdbg")


class Report:
    """A report, as a page of its own inside the notebook: neither has the other's styles or scripts."""

    def __init__(self, page: str) -> None:
        self.page = page

    def _repr_html_(self) -> str:
        frame = f"width: 100%; height: {_HEIGHT}px; border: 1px solid #8886"
        # scripts of the page run, and reach nothing of the notebook
        return f'<iframe sandbox="allow-scripts" style="{frame}" srcdoc="{html.escape(self.page)}"></iframe>'

    def __repr__(self) -> str:
        return f"<a report of {len(self.page):,} characters: save('report.html') writes it>"

    def save(self, path: str | Path) -> None:
        """Writes the page to a file."""
        Path(path).write_text(self.page, encoding="utf-8")


def run_cell(line: str, cell: str) -> Report | None:
    """Runs a cell and returns its report, None where there is none: it was told why.

    `line` are options of `vmapdbg report`, and arguments of the cell after `--`. What the cell prints is printed.
    """
    try:
        options, arguments = _split_line(line)
    except ValueError as error:
        print(f"vmapdbg: {error}", file=sys.stderr)
        return None
    with tempfile.TemporaryDirectory(prefix="vmapdbg-") as folder:
        written = Path(folder) / "report.html"
        source = _write_cell(cell, Path(folder))
        _run(["report", str(source), *options, "-o", str(written), "--", *arguments])
        if not written.exists():
            return None
        return Report(written.read_text(encoding="utf-8"))


def _split_line(line: str) -> tuple[Sequence[str], Sequence[str]]:
    words = shlex.split(line)
    end = words.index("--") if "--" in words else len(words)
    options, arguments = words[:end], words[end + 1 :]
    for option in options:
        if option.startswith(("-o", "--output")):
            raise ValueError("the report is shown below the cell: _.save('report.html') writes it to a file")
    return options, arguments


def _write_cell(cell: str, otherwise: Path) -> Path:
    """Writes the cell to a file, so that its lines have a name, and returns that."""
    try:
        _FOLDER.mkdir(exist_ok=True)
        source = _FOLDER / "cell.py"
        source.write_text(cell, encoding="utf-8")
    except OSError:
        source = otherwise / "cell.py"
        source.write_text(cell, encoding="utf-8")
    return source


def _run(arguments: Sequence[str]) -> None:
    """Runs the tool and prints what it and the cell print: a process has no other way to a notebook's cell."""
    # what the notebook can import, the cell can, too
    path = os.pathsep.join(filter(None, (os.getcwd(), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [sys.executable, "-m", "vmapdbg", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # an interrupt of the notebook goes to all of its group: the tool is to get one, ours
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        for said in process.stdout:
            if not said.startswith(_WROTE):
                print(said, end="", flush=True)
        process.wait()
    except KeyboardInterrupt:
        # the tool ends its child, and what that started
        process.send_signal(signal.SIGINT)
        process.wait()
        raise
