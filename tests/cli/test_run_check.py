"""`vmapdbg run --check`: a program's own values, judged while it runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tool import find_processes, run_tool, start_tool, wait_until

# 0.12.0 merges the two axes, and reads another's elements: 126 instead of 42
WRONG = """
x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
print(x.relu().unsqueeze(0).expand(2, 2, 3).flatten().sum().item())
"""
RIGHT = """
print((Tensor([1.0, 2.0]) * 2).tolist())
Tensor([3.0]).contiguous().schedule()
"""
IMPORT = "from tinygrad import Tensor\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "wrong.py").write_text(IMPORT + WRONG)
    (tmp_path / "right.py").write_text(IMPORT + RIGHT)
    return tmp_path


def test_the_report_names_the_wrong_value(folder: Path) -> None:
    done = run_tool("run", "--check", "wrong.py", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "126.0\n")
    assert "wrong.py:4  VD201 wrong value" in done.stderr
    assert "the only element is wrong: 126.0, should be 42.0" in done.stderr
    assert "1 finding in 1 test" in done.stderr


def test_an_observed_tinygrad_is_judged_too(folder: Path) -> None:
    done = run_tool("run", "--check", "--baseline", "wrong.py", cwd=folder)
    assert done.returncode == 2
    import tinygrad

    tree = str(Path(tinygrad.__file__ or "").parent.parent)
    done = run_tool("run", "--check", "--tinygrad", tree, "wrong.py", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "126.0\n")
    assert "wrong.py:4  VD201 wrong value" in done.stderr


def test_says_what_was_not_compared(folder: Path) -> None:
    done = run_tool("run", "--check", "right.py", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "[2.0, 4.0]\n")
    assert "1 output compared, none wrong\n" in done.stderr
    words = " ".join(done.stderr.split())
    assert "not compared: 1 schedule: scheduled by other means than Tensor.realize" in words


def test_only_a_balanced_program_is_all_right(folder: Path) -> None:
    (folder / "balanced.py").write_text(IMPORT + RIGHT.partition("Tensor([3.0]).contig")[0])
    done = run_tool("run", "--check", "--strict", "balanced.py", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "vmapdbg check: 1 output, all right\n")
    done = run_tool("run", "--check", "--strict", "--json", "right.py", cwd=folder)
    account = json.loads(done.stdout)["account"]
    assert (done.returncode, account["seen"]["outputs"], account["compared"]["outputs"]) == (1, 1, 1)
    assert [(left["what"], left["count"]) for left in account["left"]] == [("other schedules", 1)]


KILLED = """
import multiprocessing, os
import tinygrad.engine.realize as realize

def work():
    (Tensor([1.0, 2.0]) * 3).realize()
    realize.ExecItem.run = lambda *_, **__: os.kill(os.getpid(), 9)
    (Tensor([1.0, 2.0, 3.0]) * 5).realize()

if __name__ == "__main__":
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    (Tensor([1.0]) + 1).realize()
"""


@pytest.mark.parametrize("kind", ["--check", "--lint"])
def test_a_process_that_is_killed_is_left_over(folder: Path, kind: str) -> None:
    """Its last output exists nowhere but in its own count."""
    (folder / "killed.py").write_text(IMPORT + KILLED)
    done = run_tool("run", kind, "--strict", "killed.py", cwd=folder, COLUMNS="200")
    assert done.returncode == 1
    assert "all right" not in done.stderr
    assert "no finding" not in done.stderr
    assert "it ended while kernels ran" in done.stderr
    assert kind == "--lint" or "2 of 3 outputs compared, none wrong" in done.stderr


def test_launches_that_lint_did_not_see_are_left_over(folder: Path) -> None:
    """A kernel that runs without a schedule was not linted."""
    (folder / "linted.py").write_text(IMPORT + "(Tensor([1.0, 2.0]) + 1).realize()\n")
    done = run_tool("run", "--lint", "--strict", "linted.py", cwd=folder)
    assert (done.returncode, "no finding in 1 kernel of" in done.stderr) == (0, True)
    again = "item = (Tensor([1.0, 2.0]) * 3).schedule()[-1]\nfor _ in range(2): item.run()\n"
    (folder / "linted.py").write_text(IMPORT + again)
    done = run_tool("run", "--lint", "--strict", "--lint-output", "out.json", "linted.py", cwd=folder)
    assert (done.returncode, "0 findings" in done.stderr) == (1, True)
    account = json.loads((folder / "out.json").read_text())["account"]
    assert account["seen"]["other launches"] == 2
    assert [(left["what"], left["count"]) for left in account["left"]] == [("other launches", 2)]


def test_writes_a_document(folder: Path) -> None:
    done = run_tool("run", "--check", "--json", "wrong.py", cwd=folder)
    document = json.loads(done.stdout)
    schema = json.loads(run_tool("schema", "run-check", cwd=folder).stdout)
    assert list(Draft202012Validator(schema).iter_errors(document)) == []
    assert (document["status"], document["compared"], document["program"]) == (0, 1, ["wrong.py"])
    (finding,) = document["findings"]
    assert finding["tests"] == ["wrong.py"]
    # what the program prints is none of the document
    assert "126.0\n" in done.stderr


def test_the_exit_code_is_the_program_s_where_all_is_right(folder: Path) -> None:
    (folder / "fails.py").write_text(IMPORT + RIGHT + "raise SystemExit(7)\n")
    assert run_tool("run", "--check", "fails.py", cwd=folder).returncode == 7


def test_a_schedule_that_raises_is_not_a_finding(folder: Path) -> None:
    (folder / "raises.py").write_text(
        "from tinygrad import Tensor\n"
        "import tinygrad.engine.realize as realize\n"
        "def refuse(*args, **kwargs): raise RuntimeError('no such kernel')\n"
        "(Tensor([1.0]) + 1).realize()\n"
        "realize.ExecItem.run = refuse\n"
        "try: (Tensor([1.0, 2.0]) + 1).realize()\n"
        "except RuntimeError: pass\n"
    )
    done = run_tool("run", "--check", "raises.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "it raised RuntimeError" in " ".join(done.stderr.split())


@pytest.mark.slow
def test_names_the_test_in_workers(folder: Path) -> None:
    lines = (IMPORT + WRONG.replace("\n", "\n  ")).replace("\n  x =", "\ndef test_wrong():\n  x =")
    (folder / "test_it.py").write_text(lines + "\n\ndef test_right():\n  assert Tensor([1.0]).tolist() == [1.0]\n")
    done = run_tool("run", "--check", "-m", "pytest", "-q", "-n", "2", "test_it.py", cwd=folder)
    assert done.returncode == 1
    assert "in test_it.py::test_wrong" in done.stderr
    assert "test_right" not in done.stderr


# a rule that replaces a node by a node with the same source
ENDLESS = """
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import PatternMatcher, UOp, UPat, graph_rewrite

around = PatternMatcher([(UPat(Ops.SIN, name="x"), lambda x: x.sin())])
graph_rewrite(UOp.variable("a", 1, 9).cast(dtypes.float).sin(), around, name="there and back")
"""


@pytest.mark.slow
def test_a_rewrite_without_end_is_stopped_and_explained(folder: Path) -> None:
    (folder / "endless.py").write_text(ENDLESS)
    done = run_tool("run", "--check", "endless.py", cwd=folder, COLUMNS="200")
    assert done.returncode == 1
    assert "EndlessRewrite: tinygrad rewrites a graph without end" in done.stderr
    assert "endless.py:7  VD205 rewriting without end" in done.stderr
    assert "SIN float gets SIN float as a source, by the rule at" in done.stderr
    assert "endless.py:6" in done.stderr


# the rewrite "add control flow" of 0.12.0's code generation has no end
ENDLESS_TEST = """
def test_endless():
  rows = Tensor.ones(48, 64).contiguous().realize()
  rows.pad(((1, 2), (0, 0))).sum(1).realize()

def test_right():
  assert Tensor([1.0]).tolist() == [1.0]
"""


@pytest.mark.slow
def test_tests_after_an_endless_test_are_run(folder: Path) -> None:
    (folder / "test_it.py").write_text(IMPORT + ENDLESS_TEST)
    options = ("--check", "--json", "--patches", "none")
    done = run_tool("run", *options, "-m", "pytest", "-q", "test_it.py", cwd=folder)
    document = json.loads(done.stdout)
    (call,) = document["endless"]
    assert (done.returncode, document["status"], call["code"]) == (1, 1, "VD205")
    assert (call["line"], call["tests"]) == ("test_it.py:5", ["test_it.py::test_endless"])
    assert (call["crash"]["rewrite"], call["crash"]["kernel"]) == ("add control flow", 0)
    assert call["expected"][0]["first"] == [0.0, *[64.0] * 7]
    assert "1 failed, 1 passed" in done.stderr


LONG = """
import json, os, time
print(json.loads(os.environ['VMAPDBG_COLLECT'])['folder'], flush=True)
time.sleep(60)
"""


def test_the_comparison_ends_with_a_tool_that_is_killed(folder: Path) -> None:
    """The comparison waits for more schedules, and its parent is gone."""
    (folder / "long.py").write_text(LONG)
    tool = start_tool("run", "--check", "long.py", cwd=folder)
    assert tool.stdout is not None
    evidence = tool.stdout.readline().strip()
    assert find_processes(evidence)
    os.killpg(tool.pid, signal.SIGKILL)
    tool.wait()
    wait_until(lambda: not find_processes(evidence), "the comparison outlived the tool")
    shutil.rmtree(evidence)
