"""The cell magic of a notebook: called as IPython calls it, with a shell of our own in the place of IPython's."""

from __future__ import annotations

import html
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from vmapdbg.notebook import ReportFrame, load_ipython_extension

CELL = """\
from tinygrad import Tensor
import helper, sys
print("printed", helper.NAME, *sys.argv[1:])
x = Tensor.empty(4, 4).softmax()
"""


class Shell:
    """What IPython's shell does with a magic."""

    def __init__(self) -> None:
        self.magics: dict[tuple[str, str], Callable[[str, str], ReportFrame | None]] = {}

    def register_magic_function(
        self, func: Callable[[str, str], ReportFrame | None], magic_kind: str, magic_name: str
    ) -> None:
        self.magics[magic_kind, magic_name] = func


@pytest.fixture
def run_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], ReportFrame | None]:
    monkeypatch.chdir(tmp_path)
    shell = Shell()
    load_ipython_extension(shell)
    return shell.magics["cell", "vmapdbg"]


def test_a_cell_is_reported_below_it(
    run_cell: Callable[[str, str], ReportFrame | None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It finds modules next to the notebook, gets its arguments, and what it prints is printed."""
    (tmp_path / "helper.py").write_text("NAME = 'next to the notebook'\n", encoding="utf-8")
    report = run_cell("--patches none -- --steps 3", CELL)
    assert report is not None
    assert capsys.readouterr().out == "printed next to the notebook --steps 3\n"
    (frame,) = re.findall(
        r'^<iframe sandbox="allow-scripts" style="[^"<>]*" srcdoc="([^"]*)"></iframe>$', report._repr_html_()
    )
    page = html.unescape(frame)
    assert page == report.page
    assert ".vmapdbg/code-" in page
    assert "softmax" in page
    assert "ambient-ranges off" in page
    report.save(tmp_path / "kept.html")
    assert (tmp_path / "kept.html").read_text(encoding="utf-8") == page
    assert repr(report).startswith("<a report of ")


def test_a_cell_that_fails_shows_what_was_scheduled_before(
    run_cell: Callable[[str, str], ReportFrame | None], capsys: pytest.CaptureFixture[str]
) -> None:
    report = run_cell("", "from tinygrad import Tensor\nTensor.ones(4).contiguous().realize()\n1 / 0\n")
    assert report is not None
    assert "ZeroDivisionError" in report.page
    assert re.search(r'code-\w+\.py", line 3', capsys.readouterr().out)


BAD_LINES = {
    "--nix": "No such option",
    "--patches nix": "nix",
    "-o x.html": "_.save('report.html')",
    "--output=x.html": "_.save('report.html')",
    "'": "No closing quotation",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_is_reported_and_shows_nothing(
    line: str, run_cell: Callable[[str, str], ReportFrame | None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cell(line, "x = 1\n") is None
    said = capsys.readouterr()
    assert BAD_LINES[line] in said.out + said.err
    assert "Traceback" not in said.out + said.err


@pytest.mark.usefixtures("heeds_interrupts")
def test_an_interrupt_ends_the_cell(run_cell: Callable[[str, str], ReportFrame | None], tmp_path: Path) -> None:
    """The kernel gets the signal, and the cell's process has to end with it."""
    cell = "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\ntime.sleep(600)\n"

    def interrupt() -> None:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            waiting.wait(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    waiting = threading.Event()
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run_cell("", cell)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
