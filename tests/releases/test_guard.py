"""A part of ours that fails: the program prints what it prints without us, and one line names the part."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from release_trees import HERE, run_on

PROGRAM = """
from tinygrad import Tensor, TinyJit, Variable
x = Tensor.arange(12).reshape(3, 4).float().contiguous().realize()
w = Tensor.ones(4, 2).contiguous().realize()
w.requires_grad = True
(x @ w).relu().sum().backward()
print(w.grad.tolist(), x.softmax(1).sum().item())
n = Variable("n", 1, 3)
for size in (2, 3):
  print(x[:n.bind(size)].sum().item())
step = TinyJit(lambda t: (t + 1).realize())
for number in range(4):
  print(step(Tensor([float(number), 2.0]).realize()).tolist())
try:
  Tensor([1.0]).reshape(7)
except ValueError as error:
  print("the program's own error")
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("planted") / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def run_planted(release: str, when: str, which: str, program: Path) -> tuple[list[str], dict[str, list[str]]]:
    *printed, said = run_on(release, HERE / "planted.py", when, which, program).splitlines()
    return printed, json.loads(said)


@pytest.mark.parametrize("when", ["before", "after"])
def test_every_hook_fails_and_the_program_does_not(release: str, when: str, program: Path) -> None:
    plain = run_on(release, program).splitlines()
    printed, said = run_planted(release, when, "all", program)
    assert printed == plain
    assert len(said["called"]) > 10, "the program must reach the hooks"
    for number in said["called"]:
        part = said["parts"][int(number)]
        assert any(line.startswith(f"{part} could not be observed on this tinygrad: ") for line in said["missing"])


@pytest.mark.slow
def test_one_hook_fails_at_a_time(release: str, program: Path) -> None:
    plain, said = run_planted(release, "before", "none", program)
    assert said["missing"] == []
    for number in said["called"]:
        printed, now = run_planted(release, "before", str(number), program)
        assert printed == plain
        assert any(f"planted {number}" in line for line in now["missing"]), now["missing"]
