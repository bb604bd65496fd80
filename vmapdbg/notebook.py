"""The report of a cell, shown below it: `%load_ext vmapdbg.notebook` in a notebook, then `%%vmapdbg` on top of a cell.

The cell runs in a process of its own, as any snippet does: it cannot use variables of other cells, and they cannot use
its variables. This module does not import IPython: IPython calls `load_ipython_extension` and shows `_repr_html_`.
"""

from __future__ import annotations

import html
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vmapdbg.model.store import write_output

_WROTE = "vmapdbg: wrote "
_HEIGHT = 720


def load_ipython_extension(shell: Any) -> None:
    """Gives a notebook the cell magic; IPython calls it for `%load_ext vmapdbg.notebook`, with its shell."""
    shell.register_magic_function(run_cell, "cell", "vmapdbg")


class ReportFrame:
    """A report in a frame of the notebook: page and notebook share no styles and no scripts."""

    def __init__(self, page: str) -> None:
        self.page = page

    def _repr_html_(self) -> str:
        frame = f"width: 100%; height: {_HEIGHT}px; border: 1px solid #8886"
        # scripts of the page run, but cannot access the notebook
        return f'<iframe sandbox="allow-scripts" style="{frame}" srcdoc="{html.escape(self.page)}"></iframe>'

    def __repr__(self) -> str:
        return f"<a report of {len(self.page):,} characters: save('report.html') writes it>"

    def save(self, path: str | Path) -> None:
        """Writes the page to a file."""
        write_output(Path(path), self.page)


def run_cell(line: str, cell: str) -> ReportFrame | None:
    """Runs a cell and returns its report. Returns None without a report: then a printed line says why.

    `line` has options of `vmapdbg report`, and arguments for the cell after `--`. What the cell prints is printed.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        print(f"vmapdbg: {error}", file=sys.stderr)
        return None
    end = words.index("--") if "--" in words else len(words)
    if any(option.startswith(("-o", "--output")) for option in words[:end]):
        shown = "the report is shown below the cell: _.save('report.html') writes it to a file"
        print(f"vmapdbg: {shown}", file=sys.stderr)
        return None
    with tempfile.TemporaryDirectory(prefix="vmapdbg-") as folder:
        written = Path(folder) / "report.html"
        _run(["report", *words[:end], "-c", cell, "-o", str(written), *words[end:]])
        if not written.exists():
            return None
        return ReportFrame(written.read_text(encoding="utf-8"))


def _run(arguments: Sequence[str]) -> None:
    """Runs the tool and prints what it and the cell print: the output of a process does not appear in a notebook."""
    process = subprocess.Popen(
        [sys.executable, "-m", "vmapdbg", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # the notebook interrupts its whole process group; the tool gets its interrupt below
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        for said in process.stdout:
            if not said.startswith(_WROTE):
                print(said, end="", flush=True)
        process.wait()
    except KeyboardInterrupt:
        # the tool then ends its child and all processes that the child started
        process.send_signal(signal.SIGINT)
        process.wait()
        raise
