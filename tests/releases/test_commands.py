"""The table of docs/tinygrads.md says which command works on which release. Here each of its cells is tried."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from release_trees import ROOT
from tool import run_tool

PAGE = ROOT / "docs" / "tinygrads.md"
SNIPPET = """from tinygrad import Tensor
x = Tensor([[1.0, 2.0, 4.0], [3.0, 5.0, 7.0]]).realize()
y = x.softmax(1).realize()
"""
SUITE = """from tinygrad import Tensor
def test_sum():
    assert Tensor([1, 2]).sum().item() == 3
"""
Run = Callable[..., tuple[int, str]]


def graph(run: Run) -> bool:
    return run("graph", "snippet.py", "-o", "out.dot")[0] == 0 and Path("out.dot").exists()


def report(run: Run) -> bool:
    code, _ = run("report", "snippet.py", "-o", "out.html")
    return code == 0 and "snippet.py" in Path("out.html").read_text(encoding="utf-8")


def diff(run: Run) -> bool:
    (Path("other.py")).write_text(SNIPPET.replace("softmax", "log_softmax"), encoding="utf-8")
    run("show", "other.py", "--save", "other.json", "--only", "kernels")
    return run("diff", "snippet.py", "--baseline", "other.json", "--exit-code")[0] == 1


def bisect_decisions(run: Run) -> bool:
    code, out = run("bisect", "snippet.py", "--decisions", "--by", "3 kernels", "--runs", "8")
    return code in (0, 1) and "runs, by 3 kernels" in out


def run_save(run: Run) -> bool:
    code, out = run("run", "--save", "saved", *PYTEST)
    return code == 0 and "saved 1 test," in out and run("diff", "saved", "saved", "--exit-code")[0] == 0


def prints(words: str, *arguments: str) -> Callable[[Run], bool]:
    """Returns a check that a command ends well and prints a match of the expression `words`."""

    def check(run: Run) -> bool:
        code, out = run(*arguments)
        return code == 0 and re.search(words, out) is not None

    return check


PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_suite.py")
COMMANDS: dict[str, Callable[[Run], bool]] = {
    "show": prints("STORE|REDUCE", "show", "snippet.py"),
    "show --time": prints(r'"launches": 1,\n      "median": ', "show", "snippet.py", "--time", "--json"),
    "show --optimizations": prints(r"none: \d\S* [mun]?s", "show", "snippet.py", "--optimizations"),
    "show --memory": prints("at the peak, launch", "show", "snippet.py", "--memory"),
    "graph": graph,
    "report": report,
    "why": prints(r"\(indexing.py:", "why", "snippet.py:3", "snippet.py"),
    "why --value": prints("2 outputs, right after every pass", "why", "--value", "snippet.py"),
    "diff": diff,
    "lint": prints("no finding in", "lint", "snippet.py"),
    "check": prints("all right", "check", "snippet.py"),
    "tune": prints(r'"runs": 2,\n "number": (0\.0*)?[1-9]', "tune", "snippet.py", "--budget", "1e-9", "--json"),
    "bisect --decisions": bisect_decisions,
    "run --lint": prints(r"no finding in [1-9]\d* kernels", "run", "--lint", "snippet.py"),
    "run --save": run_save,
    "run --check": prints(r"[1-9]\d* outputs?, all right", "run", "--check", *PYTEST),
}


def read_table() -> dict[tuple[str, str], str]:
    """Returns (command, release) -> what the page says."""
    rows = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith(("| `", "| command"))
    ]
    head = next(row for row in rows if row[0] == "command")
    return {
        (row[0].strip("`"), release): cell
        for row in rows
        if row[0].strip("`") in COMMANDS
        for release, cell in zip(head[1:], row[1:], strict=True)
    }


def test_the_table_has_every_command(release: str) -> None:
    assert {command for command, version in read_table() if version == release} == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_table_of_the_document_holds(
    release: str, tree: Path, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("snippet.py").write_text(SNIPPET, encoding="utf-8")
    Path("test_suite.py").write_text(SUITE, encoding="utf-8")

    def run(*arguments: str) -> tuple[int, str]:
        first, *rest = arguments
        done = run_tool(first, "--tinygrad", str(tree), *rest, cwd=tmp_path)
        # a saved run, or a saved capture, names no tinygrad
        is_saved = "--tinygrad" in done.stderr or "two saved runs take only" in done.stderr
        if is_saved and done.returncode == 2:
            done = run_tool(*arguments, cwd=tmp_path)
        return done.returncode, done.stdout + done.stderr

    works = COMMANDS[command](run)
    assert works == (read_table()[command, release] == "yes"), sys.argv
