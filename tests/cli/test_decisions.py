"""`vmapdbg bisect --decisions` on the installed release, observed: what changes the kernels, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from rendered import flatten
from tool import run_tool

SNIPPET = """from tinygrad import Tensor
x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
y = ((x + 1).exp() * 2).realize()
"""
LAZY = "from tinygrad import Tensor\ny = Tensor.empty(4, 4).exp()\n"
CLOCK = "import time\nfrom tinygrad import Tensor\ny = (Tensor([time.time() % 1, 2.0]).exp() * 3).realize()\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("snippet.py", SNIPPET), ("lazy.py", LAZY), ("clock.py", CLOCK)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def bisect(folder: Path, *arguments: str) -> tuple[int, str, str]:
    done = run_tool("bisect", *arguments, cwd=folder)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_each_decision_that_makes_it_two_kernels(folder: Path) -> None:
    code, output, _ = bisect(folder, "snippet.py", "--decisions", "--patches", "none", "--by", "2 kernels")
    assert code == 1
    said = flatten(output)
    assert "each of these 3 decisions changes it" in said
    assert "schedule 1: ADD 5 (2, 2), snippet.py:3, forced to be a buffer -> B, 2 kernels" in said
    assert "what the first of them changes kernels 1 -> 2" in said
    assert "only after, kept: forced to be a buffer, by bisect --decisions" in said
    assert "not all tried" not in said


@pytest.mark.slow
def test_runs_are_limited_and_the_report_says_so(folder: Path) -> None:
    options = ("--decisions", "--patches", "none", "--by", "2 kernels", "--runs", "2")
    _, output, _ = bisect(folder, "snippet.py", *options)
    assert "not all tried: --runs" in flatten(output)
    assert output.startswith("snippet.py  2 runs, by 2 kernels\n")


REFUSED = [
    (
        ("lazy.py", "--patches", "none"),
        "lazy.py realizes nothing: there are no values to compare (--by kernels, or .realize())",
    ),
    pytest.param(
        ("clock.py", "--patches", "none"),
        "not deterministic: two runs of the same program differ by themselves (the clock, its inputs)",
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize(
    ("arguments", "said"), REFUSED, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_a_refusal_is_one_line(arguments: tuple[str, ...], said: str, folder: Path) -> None:
    code, output, stderr = bisect(folder, *arguments, "--decisions")
    assert (code, output) == (2, "")
    assert stderr.splitlines()[-1] == f"vmapdbg: {said}"
