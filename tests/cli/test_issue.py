"""`vmapdbg issue`: a page about a fault of tinygrad, with the smallest program that shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tool import run_tool, write

# stock 0.12.0 sums some elements three times
WRONG = """from tinygrad import Tensor

scale = 2
x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]) * scale
y = x.relu()
total = y.unsqueeze(0).expand(2, 2, 3).flatten().sum()
print(total.item())
"""


def test_the_page_has_the_smallest_program_and_the_rule(tmp_path: Path) -> None:
    write(tmp_path, WRONG)
    done = run_tool("issue", "snippet.py", "-o", "issue.md", "--seconds", "20", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "issue.md").read_text(encoding="utf-8")
    title, program = page.splitlines()[0], re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    assert re.fullmatch(r"# Wrong value: `.*\.sum\(\).*`", title)
    assert len(program.splitlines()) < len(WRONG.splitlines())
    assert "scale" not in program
    for part in ("tinygrad 0.12.0, Python 3.", "1 of 1 output wrong", "should be", "by the rule at", "--patches none"):
        assert part in page
    assert str(tmp_path.parent) not in page
    # the page is true: its program shows what it says
    write(tmp_path, program, "wrong.py")
    assert run_tool("check", "wrong.py", "--patches", "none", cwd=tmp_path).returncode == 1


@pytest.mark.parametrize("text", ["y = (x + 1).realize()", "y = x.log().realize()"])
def test_no_page_without_a_fault_of_tinygrad(text: str, tmp_path: Path) -> None:
    """Numbers that go wrong are the program's."""
    write(tmp_path, f"from tinygrad import Tensor\nx = Tensor([1.0, 0.0]).realize()\n{text}\n")
    done = run_tool("issue", "snippet.py", "-o", "issue.md", cwd=tmp_path)
    assert done.returncode == 1
    assert "no page was written: neither does tinygrad fail, nor is a value wrong" in done.stderr
    assert not (tmp_path / "issue.md").exists()


# the kernel of the last but one line writes to memory that no program has
KILLED = """from tinygrad import Tensor
from tinygrad.renderer.cstyle import ClangRenderer

render = ClangRenderer.render
ClangRenderer.render = lambda self, uops: render(self, uops).replace("3.5f)", "3.5f * (*(int*)8))")
a = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
b = (a + 1).realize()
c = (b * 3.5).realize()
d = (c + 2).realize()
"""


def test_a_page_about_a_program_that_kills_its_process(tmp_path: Path) -> None:
    write(tmp_path, KILLED)
    done = run_tool("issue", "snippet.py", "-o", "issue.md", "--seconds", "20", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "issue.md").read_text(encoding="utf-8")
    assert page.startswith("# Killed by SIGSEGV while launch ")
    assert "wrong.py was killed by SIGSEGV while launch" in page
    assert "c + 2" not in page
    assert str(tmp_path.parent) not in page
