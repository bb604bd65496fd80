"""Which tinygrad the tool uses: the installed package, a checkout, a commit, another interpreter's."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tool import run_tool, show_json

SNIPPET = """from tinygrad import Tensor
x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
y = (x.relu() + 1).sum(1).realize()
print(y.tolist())
"""
# appended to tensor.py of the checkout, it makes one kernel more of the snippet
CHANGE = "\n_relu = Tensor.relu\nTensor.relu = lambda self: _relu(self).contiguous()\n"


# appended to cstyle.py, it changes the source of each kernel, and nothing else
RENDERED = """
_render = CStyleLanguage.render_kernel
CStyleLanguage.render_kernel = lambda self, *args, **options: _render(self, *args, **options) + "// rendered"
"""
# appended to search.py, it makes a program fail that lets BEAM search
NO_BEAM = """
def beam_search(*_, **__): raise RuntimeError("searched")
"""
# appended to tensor.py, it takes a hundred kernels of the same work for one
SLOW = """
_plus = Tensor.relu
def _slow(self):
  for _ in range(100): self = _plus(self).contiguous()
  return self
Tensor.relu = _slow
"""


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)


def make_checkout(folder: Path, *changes: tuple[str, str, str]) -> Path:
    """Makes a checkout of the installed tinygrad, and a commit for each change: message, file, text to append."""
    spec = importlib.util.find_spec("tinygrad")
    assert spec is not None
    assert spec.origin is not None
    shutil.copytree(Path(spec.origin).parent, folder / "tinygrad", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pyproject.toml").write_text('[project]\nname = "tinygrad"\nversion = "0.12.0"\n', encoding="utf-8")
    (folder / "snippet.py").write_text(SNIPPET, encoding="utf-8")
    (folder / ".gitignore").write_text("__pycache__\n.vmapdbg\n", encoding="utf-8")
    git(folder, "init", "-q", "-b", "master")
    commit(folder, "first")
    for message, name, text in changes:
        with (folder / "tinygrad" / name).open("a", encoding="utf-8") as file:
            file.write(text)
        commit(folder, message)
    return folder


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of four commits; the third one changes the schedule of the snippet."""
    changes = [("second", "\n# nothing\n"), ("a relu of its own", CHANGE), ("fourth", "\n# nothing else\n")]
    folder = tmp_path_factory.mktemp("work") / "tinygrad"
    return make_checkout(folder, *((message, "tensor.py", text) for message, text in changes))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose third commit changes only the source, the fourth the kernels, the sixth their number."""
    return make_checkout(
        tmp_path_factory.mktemp("measured") / "tinygrad",
        ("no BEAM", "codegen/opt/search.py", NO_BEAM),
        ("the renderer is new style", "renderer/cstyle.py", RENDERED),
        ("a relu of its own", "tensor.py", CHANGE),
        ("nothing", "tensor.py", "\n# nothing\n"),
        ("a slow relu", "tensor.py", SLOW),
    )


def count_kernels(capture: dict[str, Any]) -> int:
    return sum(len(schedule["kernels"]) for schedule in capture["schedules"])


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with nothing installed: no tinygrad, nothing of ours."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


def test_the_checkout_of_the_working_directory_is_observed(checkout: Path) -> None:
    capture, stderr = show_json(Path("snippet.py"), cwd=checkout)
    assert capture["mode"] == "observe"
    assert capture["versions"]["commit"] == git(checkout, "rev-parse", "--short=12", "HEAD")
    assert count_kernels(capture) == 2
    assert stderr.splitlines()[0].startswith("vmapdbg: observing the tinygrad of this folder, 0.12.0 (")
    assert stderr.splitlines()[0].endswith("; the patches need the release 0.12.0")


def test_a_revision_is_observed_and_the_checkout_left_alone(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(SNIPPET, encoding="utf-8")
    capture, stderr = show_json(Path("snippet.py"), "--tinygrad", f"{checkout}@HEAD~2", cwd=tmp_path)
    assert count_kernels(capture) == 1
    assert capture["versions"]["commit"] == git(checkout, "rev-parse", "HEAD~2")
    assert stderr == "[4.0, 8.0]\n" or "observing" not in stderr
    assert git(checkout, "status", "--porcelain") == ""


def test_a_pass_with_another_name_is_seen_by_its_rewrites(checkout: Path, tmp_path: Path) -> None:
    """A new tinygrad renames functions. Kernels still have their nodes, and buffers their ranges."""
    newer = shutil.copytree(checkout / "tinygrad", tmp_path / "newer" / "tinygrad")
    for file in newer.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("run_rangeify", "place_ranges"), encoding="utf-8")
    text = "from tinygrad import Tensor\nTensor.empty(8, 16).softmax(1).realize()\n"
    (tmp_path / "snippet.py").write_text(text, encoding="utf-8")
    capture, _ = show_json(Path("snippet.py"), "--tinygrad", "newer", cwd=tmp_path)
    assert capture["missing"] == ["the schedules: this tinygrad has no run_rangeify"]
    (schedule,) = capture["schedules"]
    outputs = [node for kernel in schedule["kernels"] for node in kernel["outputs"]]
    closed = {made["node"]: made["closed_ranges"] for made in schedule["bufferizes"] if made["outcome"] == "kept"}
    assert len(outputs) == 3
    assert all(closed[node] for node in outputs)


@pytest.mark.slow
def test_diff_of_two_commits(checkout: Path) -> None:
    done = run_tool("diff", "snippet.py", "--baseline=@HEAD~2", "--json", cwd=checkout)
    found = json.loads(done.stdout)
    assert [change["status"] for change in found["schedules"][-1]["kernels"]] == ["split-into"]
    assert found["schedules"][-1]["values"] == "equal"
    assert found["before"]["versions"]["commit"] == git(checkout, "rev-parse", "HEAD~2")


@pytest.mark.slow
def test_diff_in_a_changed_checkout_is_with_its_last_commit(checkout: Path, tmp_path: Path) -> None:
    changed = tmp_path / "tinygrad"
    shutil.copytree(checkout, changed)
    file = changed / "tinygrad" / "tensor.py"
    file.write_text(file.read_text(encoding="utf-8").replace(CHANGE, "\n"), encoding="utf-8")
    done = run_tool("diff", "snippet.py", "--exit-code", cwd=changed)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("kernels 2 -> 1, ")


@pytest.mark.slow
def test_bisect_finds_the_commit(checkout: Path) -> None:
    done = run_tool("bisect", "snippet.py", "--commits", "HEAD~3..HEAD", "--by", "1 kernel", cwd=checkout)
    assert done.returncode == 1, done.stderr
    assert "the first commit with another outcome: " in done.stdout
    found = done.stdout.partition("another outcome: ")[2].splitlines()[0]
    assert found.startswith(git(checkout, "rev-parse", "--short", "HEAD~1"))
    assert found.endswith("a relu of its own")


def blamed_of(folder: Path, *options: str, **variables: str) -> tuple[int, list[str], dict[str, Any]]:
    """Returns the exit code of `bisect --commits`, the messages of the commits that it blames, and its document."""
    done = run_tool("bisect", "snippet.py", *options, "--json", cwd=folder, **variables)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    return done.returncode, [commit.split(" ", 2)[2] for commit in found["suspects"]], found


@pytest.mark.slow
def test_a_kernel_with_another_source_is_the_same_kernel(measured: Path) -> None:
    """A commit that only renders in another way is not blamed for the kernel that a later commit adds."""
    assert blamed_of(measured, "--commits", "HEAD~4..HEAD~1", "--by", "kernels")[:2] == (1, ["a relu of its own"])
    assert blamed_of(measured, "--commits", "HEAD~4..HEAD~3", "--by", "kernels")[:2] == (0, [])


@pytest.mark.slow
@pytest.mark.parametrize(("by", "ends"), [("bytes", (24, 56)), ("memory", (32, 40))])
def test_the_commit_that_moves_more_is_found(measured: Path, by: str, ends: tuple[int, int]) -> None:
    """The program reads 16 bytes and writes 8, and a copy needs its source beside it; the relu of its own writes and
    reads 16 bytes more, and needs 16, 16 and 8. BEAM never searches."""
    code, blamed, found = blamed_of(measured, "--commits", "HEAD~4..HEAD~1", "--by", by, BEAM="1")
    assert (code, blamed, found["floor"]) == (1, ["a relu of its own"], 0)
    numbers = [trial["number"] for trial in found["tried"]]
    assert (numbers[0], numbers[-1]) == ends
    assert found["changes"]["schedules"]


@pytest.mark.slow
def test_a_commit_is_not_blamed_for_noise(measured: Path) -> None:
    same = ("--commits", "HEAD~2..HEAD~1", "--by")
    assert blamed_of(measured, *same, "ops")[:2] == (0, [])
    code, blamed, found = blamed_of(measured, *same, "time")
    assert (code, blamed) == (0, []), found
    first, last = (trial["number"] for trial in found["tried"])
    assert abs(first - last) <= found["floor"]


@pytest.mark.slow
def test_the_commit_that_takes_more_time_is_found(measured: Path) -> None:
    assert blamed_of(measured, "--commits", "HEAD~4..HEAD", "--by", "time")[:2] == (1, ["a slow relu"])


@pytest.mark.slow
def test_an_interpreter_that_has_nothing_of_ours(checkout: Path, bare_python: Path, tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(SNIPPET, encoding="utf-8")
    options = ("--python", str(bare_python), "--tinygrad", str(checkout))
    capture, _ = show_json(Path("snippet.py"), *options, cwd=tmp_path)
    assert capture["mode"] == "observe"
    assert count_kernels(capture) == 2
    linted = run_tool("lint", "snippet.py", *options, cwd=tmp_path)
    assert (linted.returncode, linted.stderr.count("Traceback")) == (0, 0), linted.stderr


def test_patches_are_for_the_release_alone(checkout: Path, bare_python: Path, tmp_path: Path) -> None:
    done = run_tool("show", "snippet.py", "--patches", "all", cwd=checkout)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("vmapdbg: the patches need tinygrad 0.12.0 beside vmapdbg: ")
    (tmp_path / "snippet.py").write_text(SNIPPET, encoding="utf-8")
    done = run_tool("show", "snippet.py", "--python", str(bare_python), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        f"vmapdbg: --python: {bare_python} has no tinygrad (--tinygrad names one)\n",
    )


def test_a_tree_that_does_not_parse_is_the_snippets_failure(checkout: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(checkout / "tinygrad", broken / "tinygrad")
    (broken / "tinygrad" / "tensor.py").write_text("def (:\n", encoding="utf-8")
    (tmp_path / "snippet.py").write_text(SNIPPET, encoding="utf-8")
    done = run_tool("show", "snippet.py", "--tinygrad", str(broken), cwd=tmp_path)
    assert done.returncode == 3
    assert "SyntaxError" in done.stderr
    assert str(broken / "tinygrad" / "tensor.py") in done.stderr
