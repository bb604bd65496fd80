"""`vmapdbg lint`, `run --lint`, what the examples in docs/ make of them, and `[tool.vmapdbg]` in effect: the command
line counts more, and a mistake ends the tool before anything runs."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from rendered import print_to_text
from tool import ROOT, RunSample, run_tool

from vmapdbg.commands.cli import main
from vmapdbg.lint import RULES
from vmapdbg.model.capture import Finding
from vmapdbg.page.text.lint import print_concise

SAMPLE = str(ROOT / "samples" / "lost_range.py")
# a range is lost, and nothing runs
LOST = """
from tinygrad import Tensor, UOp, dtypes
from tinygrad.uop.ops import AxisType
keep, batch = UOp.const(dtypes.index, 0), UOp.range(3, -1, AxisType.LOOP)
x = Tensor.empty(3, 4).vmapin((batch, keep))
y = (x.sum() + 1).contiguous().expand(5){comment}
out = (y * 2).vmapout((batch, keep))
"""
OFF = ("--patches", "all,-ambient-ranges")


def write(folder: Path, comment: str = "", name: str = "a.py") -> None:
    (folder / name).write_text(LOST.format(comment=comment), encoding="utf-8")


def test_the_example_of_the_docs(run_sample: RunSample) -> None:
    """docs/lint.md shows the beginning of what is printed at 80 columns."""
    shown = re.search(r"<!-- vmapdbg lint samples.*?-->\n```\n(.*?)```", (ROOT / "docs/lint.md").read_text(), re.DOTALL)
    assert shown is not None
    done = run_sample("lint", "samples/lost_range.py", *OFF)
    assert done.returncode == 1
    assert done.stdout.startswith(shown[1])
    assert done.stdout.count("VD101") == 2
    # what the snippet prints is no data
    assert "reduce+index" in done.stderr
    assert "reduce+index" not in done.stdout


ORDER = """
from tinygrad import Tensor
x = Tensor([[-1.0, 2.0]]).realize()
chosen = x[[0, 0, 0]]
x.assign(x + 1)
Tensor.realize(x, chosen)
y, z = Tensor([1.0, 2.0, 3.0]).realize(), Tensor([4.0, 5.0, 6.0]).realize()
Tensor.realize(z + 1, y.detach())
"""


@pytest.mark.slow
def test_memory_that_is_read_or_written_wrongly(tmp_path: Path) -> None:
    """Faults of 0.12.0 that the patches do not change, also if the program had the same kernels before."""
    (tmp_path / "a.py").write_text(ORDER, encoding="utf-8")
    done = run_tool("lint", "a.py", "--format", "json", "--ignore", "VD104", cwd=tmp_path)
    found = [(one["code"], one["line"]) for one in json.loads(done.stdout)["findings"]]
    assert found == [("VD109", "a.py:4"), ("VD110", "a.py:8")], done.stderr
    again = ORDER.replace("import Tensor", "import Tensor\n(Tensor([4.0, 5.0, 6.0]).realize() + 1).realize()")
    (tmp_path / "b.py").write_text(again, encoding="utf-8")
    done = run_tool("run", "--lint", "b.py", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "VD109" in done.stderr
    assert "VD110" in done.stderr


def test_clean(tmp_path: Path) -> None:
    done = run_tool("lint", SAMPLE, cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"{SAMPLE}  no finding in 5 kernels, target c"), done


def test_remembered_snippet_saved_capture_and_formats(tmp_path: Path) -> None:
    write(tmp_path)
    show = run_tool("show", "a.py", *OFF, "--save", "capture.json", "--only", "source", cwd=tmp_path)
    assert show.returncode == 0
    # under the kernel's line that stores
    assert re.search(r"\*\(data0_1\+0\) = .*\n +\^ VD101\n", show.stdout), show.stdout
    concise = run_tool("lint", "--format", "concise", "--select", "VD101,vd105", cwd=tmp_path)
    assert concise.returncode == 1
    assert re.fullmatch(r"a\.py:6: VD101 kernel .* loops over rm1 \(3, .* survives\n", concise.stdout), concise.stdout
    assert "using a.py" in concise.stderr
    saved = run_tool("lint", "capture.json", "--format", "json", cwd=tmp_path)
    document = json.loads(saved.stdout)
    assert (saved.returncode, document["findings"][0]["code"]) == (1, "VD101")
    assert json.loads((tmp_path / "capture.json").read_text())["findings"] == document["findings"]
    github = run_tool("lint", "capture.json", "--format", "github", cwd=tmp_path)
    assert github.stdout.startswith("::error file=a.py,line=6,title=VD101 overlapping stores::kernel")
    sarif = json.loads(run_tool("lint", "capture.json", "--format", "sarif", cwd=tmp_path).stdout)
    assert sarif["runs"][0]["results"][0]["ruleId"] == "VD101"
    for ignored in (("--ignore", "VD101"), ("--select", "VD105")):
        assert run_tool("lint", "capture.json", *ignored, cwd=tmp_path).returncode == 0


def test_comment_takes_a_finding_out(tmp_path: Path) -> None:
    write(tmp_path, "  # vmapdbg: ignore[VD101]")
    done = run_tool("lint", "a.py", *OFF, cwd=tmp_path)
    assert done.returncode == 0
    assert "1 ignored by comments" in " ".join(done.stdout.split())
    assert "VD101" not in run_tool("show", "a.py", *OFF, cwd=tmp_path).stdout


def test_open_range_of_a_snippet_that_fails(tmp_path: Path) -> None:
    write(tmp_path)
    done = run_tool("lint", "a.py", "--patches", "none", cwd=tmp_path)
    assert done.returncode == 3
    assert "VD107 range left open" in done.stdout
    assert "RuntimeError" in done.stderr


def test_diff_shows_which_findings_disappear(tmp_path: Path) -> None:
    write(tmp_path)
    done = run_tool("diff", "a.py", "--baseline", "all,-ambient-ranges", cwd=tmp_path)
    assert re.search(r"^Findings  1 gone\n- VD101 kernel .* loops over rm1", done.stdout, re.M), done.stdout


@pytest.mark.parametrize(
    "target",
    ["metal", *(pytest.param(name, marks=pytest.mark.slow) for name in ("llvm", "cuda", "opencl", "hip", "wgsl"))],
)
def test_every_target(tmp_path: Path, target: str) -> None:
    """The fault is in the schedule: it is there for each target, whatever its threads are."""
    write(tmp_path)
    done = run_tool("lint", "a.py", *OFF, "--target", target, "--select", "VD101", "--format", "json", cwd=tmp_path)
    assert [found["line"] for found in json.loads(done.stdout)["findings"]] == ["a.py:6"]


def test_explain(tmp_path: Path) -> None:
    done = run_tool("lint", "--explain", "VD101,VD107", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("VD101  overlapping stores (error)\n")
    assert "\nVD107  range left open (error)\n" in done.stdout


REALIZES = "from tinygrad import Device\nDevice.DEFAULT = 'PYTHON'\n" + LOST.format(comment="") + "out.realize()\n"


def test_run_lints_a_whole_program(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(REALIZES + "print('ran')\n", encoding="utf-8")
    done = run_tool("run", "--lint-output", "out.json", *OFF, "a.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "ran\n"), done.stderr
    written = json.loads((tmp_path / "out.json").read_text())
    assert ([found["code"] for found in written["findings"]], written["kernels"]) == (["VD101"], 2)
    assert "a.py:8  VD101 overlapping stores" in done.stderr
    assert re.search(r"vmapdbg lint: 1 finding in 2 kernels of 1 schedule$", done.stderr, re.M), done.stderr
    # the program's own exit code counts more
    (tmp_path / "exits.py").write_text(REALIZES + "raise SystemExit(7)\n", encoding="utf-8")
    exits = run_tool("run", "--lint", *OFF, "exits.py", cwd=tmp_path)
    assert (exits.returncode, "VD101" in exits.stderr) == (7, True)
    write(tmp_path, "print(1)\n", "idle.py")
    assert "no kernels to check in 0 schedules" in run_tool("run", "--lint", "idle.py", cwd=tmp_path).stderr
    clean = run_tool("run", "--lint", "a.py", cwd=tmp_path)
    assert clean.returncode == 0
    assert "vmapdbg lint: no finding in 2 kernels" in clean.stderr


@pytest.mark.slow
def test_run_hears_of_processes_that_the_program_starts(tmp_path: Path) -> None:
    """As pytest-xdist's workers, and they may end without exit handlers."""
    (tmp_path / "work.py").write_text(REALIZES + "import os\nos._exit(0)\n", encoding="utf-8")
    starter = "import subprocess, sys\nfor _ in range(2): subprocess.run([sys.executable, 'work.py'])\n"
    (tmp_path / "a.py").write_text(starter, encoding="utf-8")
    done = run_tool("run", "--lint", *OFF, "a.py", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("VD101") == 1
    assert "of 2 schedules" in done.stderr


@pytest.mark.slow
def test_run_changes_nothing_of_the_program(tmp_path: Path) -> None:
    """tinygrad numbers kernels of one name in a process; DEBUG prints the names."""
    text = "from tinygrad import Tensor, Device\nDevice.DEFAULT = 'PYTHON'\n"
    text += "for i in range(3): (Tensor.empty(4, 4)+i).realize()\n"
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    plain, linted = (run_tool("run", *options, "a.py", cwd=tmp_path, DEBUG="2") for options in ([], ["--lint"]))

    def names(output: str) -> list[str]:
        return re.findall(r"E_\w+", re.sub(r"\x1b\[\d+m", "", output))

    assert names(plain.stdout) == names(linted.stdout) != []


ROTARY = "samples/rotary.py"


@pytest.mark.slow
def test_the_patch_that_is_advised_takes_the_finding_away(run_sample: RunSample) -> None:
    """Stock does the same work: no patch is to be switched off for that."""
    done = run_sample("show", ROTARY, "--json", "--patches", "all,-realize-reused", "--target", "c")
    before = json.loads(done.stdout)
    (found,) = before["findings"]
    assert (found["code"], found["advice"]) == ("VD104", "turn realize-reused on (--patches all)")
    after = json.loads(run_sample("show", ROTARY, "--json", "--patches", "all", "--target", "c").stdout)
    assert after["findings"] == []
    assert count_ops(after) < count_ops(before) / 4


def count_ops(capture: dict[str, Any]) -> int:
    return sum(kernel["executed_ops"] for schedule in capture["schedules"] for kernel in schedule["kernels"])


UNGUARDED = """
from tinygrad import Tensor
x = Tensor.empty(64, 64)
y = x.softmax().softmax()
"""


def test_the_advised_guard_removes_the_finding(tmp_path: Path) -> None:
    """With and without a baseline, and for kernels with and without a partner in it."""
    (tmp_path / "a.py").write_text(UNGUARDED, encoding="utf-8")
    options = ("--target", "metal", "--select", "VD104", "--format", "json")
    done = run_tool("lint", "a.py", "--patches", "all,-fusion-guard", *options, cwd=tmp_path)
    advices = {found["advice"] for found in json.loads(done.stdout)["findings"]}
    assert advices == {"turn fusion-guard on (--patches all)"}
    done = run_tool("lint", "a.py", *options, cwd=tmp_path)
    assert json.loads(done.stdout)["findings"] == []


# *** several files

EXAMPLES = ROOT / "docs" / "examples"


def write_files(folder: Path) -> None:
    write(folder)
    (folder / "good.py").write_text("from tinygrad import Tensor\nx = Tensor.empty(3) + 1\n", encoding="utf-8")
    (folder / "dies.py").write_text("1 / 0\n", encoding="utf-8")
    (folder / "exits.py").write_text("import os\nos._exit(3)\n", encoding="utf-8")


def test_several_files(tmp_path: Path) -> None:
    write_files(tmp_path)
    done = run_tool("lint", "a.py", "good.py", *OFF, cwd=tmp_path)
    assert done.returncode == 1
    blocks = done.stdout.split("\n\n")
    assert [block.split()[0] for block in blocks] == ["a.py", "a.py:6", "good.py", "1"]
    assert blocks[-1] == "1 finding in 2 files\n"


def test_a_later_file_without_codes_is_refused_before_any_file_runs(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("open('ran', 'w')\n", encoding="utf-8")
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.py").write_text("", encoding="utf-8")
    (other / "pyproject.toml").write_text("[tool.vmapdbg]\nignore = ['VD101']\n", encoding="utf-8")
    done = run_tool("lint", "a.py", "other/b.py", "--select", "VD101", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--select and --ignore leave no code to look for" in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_file_that_fails_leaves_the_others(tmp_path: Path) -> None:
    """The exit code is the worst exit code of all files."""
    write_files(tmp_path)
    done = run_tool("lint", "dies.py", "a.py", *OFF, cwd=tmp_path)
    assert done.returncode == 3
    assert done.stdout.endswith("\n1 finding in 2 files, 1 file failed\n")
    assert "ZeroDivisionError" in done.stderr
    done = run_tool("lint", "exits.py", "a.py", *OFF, "--format", "json", cwd=tmp_path)
    assert done.returncode == 4
    assert "exits.py ended the process with status 3" in done.stderr
    document = json.loads(done.stdout)
    assert (document["kind"], [one["snippet"] for one in document["files"]]) == ("lint-files", ["exits.py", "a.py"])
    assert [[found["code"] for found in one["findings"]] for one in document["files"]] == [[], ["VD101"]]
    assert document["files"][0]["error"]["type"] == "ChildDied"


@pytest.mark.parametrize(
    "form", ["text", *[pytest.param(form, marks=pytest.mark.slow) for form in ("concise", "json", "github", "sarif")]]
)
def test_a_file_has_what_stdout_would(form: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    run_tool("show", "a.py", *OFF, "--save", "run.json", cwd=tmp_path)
    printed = run_tool("lint", "run.json", "--format", form, cwd=tmp_path)
    written = run_tool("lint", "run.json", "--format", form, "--output-file", "out", cwd=tmp_path)
    assert (written.returncode, written.stdout) == (1, "")
    assert (tmp_path / "out").read_text(encoding="utf-8") == printed.stdout != ""


def test_a_comment_in_another_file_is_reported_with_the_findings(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(LOST.format(comment="  # vmapdbg: ignore[VD999]"), encoding="utf-8")
    (tmp_path / "a.py").write_text("from mine import out\n", encoding="utf-8")
    done = run_tool("lint", "a.py", *OFF, cwd=tmp_path)
    assert (done.returncode, "mine.py:6  VD101" in done.stdout) == (1, True)
    assert done.stderr.count("vmapdbg: mine.py:6: unknown code 'VD999' in ignore[VD999]") == 1


# *** the examples


def test_the_problem_matcher_reads_findings(tmp_path: Path) -> None:
    """Each rule appears once, with its severity; GitHub gets only words that it knows."""
    matchers = json.loads((EXAMPLES / "vmapdbg-matcher.json").read_text(encoding="utf-8"))["problemMatcher"]
    assert len({matcher["owner"] for matcher in matchers}) == len(matchers) == 2
    write_files(tmp_path)
    printed = run_tool("lint", "a.py", *OFF, "--format", "concise", cwd=tmp_path).stdout
    assert printed.count("\n") == 1
    for rule in RULES:
        line = printed.strip().replace("VD101", rule.code)
        read = [(matcher, re.fullmatch(matcher["pattern"][0]["regexp"], line)) for matcher in matchers]
        ((matcher, found),) = [(matcher, found) for matcher, found in read if found is not None]
        pattern = matcher["pattern"][0]
        assert matcher["severity"] == rule.severity
        assert (found[pattern["file"]], found[pattern["line"]], found[pattern["code"]]) == ("a.py", "6", rule.code)
        assert found[pattern["message"]].startswith("kernel r_")


def test_the_problem_matcher_reads_a_finding_without_a_line() -> None:
    """It names the snippet alone; GitHub takes a line that is not there for none."""
    matchers = json.loads((EXAMPLES / "vmapdbg-matcher.json").read_text(encoding="utf-8"))["problemMatcher"]
    for rule in RULES:
        finding = Finding(rule.code, "r_4", None, None, "reads x of a.py:3: it is lost")
        line = print_to_text(lambda console, found=finding: print_concise([found], console, "my net.py"))
        (found,) = filter(None, (re.fullmatch(matcher["pattern"][0]["regexp"], line.strip()) for matcher in matchers))
        assert found.groups() == ("my net.py", None, rule.code, "reads x of a.py:3: it is lost")
    said = "my net.py: 2 findings in 3 kernels, target c"
    assert not any(re.fullmatch(matcher["pattern"][0]["regexp"], said) for matcher in matchers)


def read_commands(file: Path, key: str) -> list[list[str]]:
    """The commands of ours that a YAML file has under a key."""
    found = re.findall(rf"^[ -]*{key}: (vmapdbg .*)$", file.read_text(encoding="utf-8"), re.M)
    return [shlex.split(command)[1:] for command in found]


@pytest.mark.parametrize(
    ("file", "key"),
    [(EXAMPLES / "lint.yml", "run"), (ROOT / ".pre-commit-hooks.yaml", "entry")],
    ids=["workflow", "hook"],
)
def test_the_commands_of_the_examples_are_ours(file: Path, key: str) -> None:
    commands = read_commands(file, key)
    assert commands
    for name, *arguments in commands:
        command = main.get_command(main.make_context("vmapdbg", [name]), name)
        assert command is not None
        context = command.make_context(name, [*arguments, "a.py"])
        assert context.params["form"] in ("concise", "github", "sarif")


def test_the_hook_is_whole() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert {"id", "name", "entry", "language"} <= set(hook)
    assert hook["language"] == "python"
    # it runs what it is given: by itself no file
    assert not re.search(hook["files"], "a.py")
    workflow = yaml.safe_load((EXAMPLES / "lint.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["lint"]["steps"]


# *** settings

TABLE = '[tool.vmapdbg]\ntarget = "metal"\nignore = ["VD101"]\npatches = "all,-ambient-ranges"\n'


def write_table(folder: Path, table: str) -> None:
    (folder / "src").mkdir()
    (folder / "pyproject.toml").write_text(table, encoding="utf-8")
    (folder / "src" / "a.py").write_text(LOST.format(comment=""), encoding="utf-8")


@pytest.mark.slow
def test_settings_come_from_the_folder_of_the_snippet(tmp_path: Path) -> None:
    write_table(tmp_path, TABLE)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    snippet = "../src/a.py"
    done = run_tool("lint", snippet, "--format", "json", cwd=elsewhere)
    found = json.loads(done.stdout)
    assert (done.returncode, found["target"], found["findings"]) == (0, "metal", [])
    assert found["patches"]["ambient-ranges"] is False
    # show prints it, too
    assert "VD101" not in run_tool("show", snippet, cwd=elsewhere).stdout
    # the command line counts more
    done = run_tool("lint", snippet, "--select", "VD101", "--ignore", "VD104", "--target", "c", cwd=elsewhere)
    assert (done.returncode, "VD101" in done.stdout, "target c" in done.stdout) == (1, True, True)
    assert run_tool("lint", snippet, "--patches", "all", "--ignore", "VD104", cwd=elsewhere).returncode == 0


def test_run_has_settings(tmp_path: Path) -> None:
    write_table(tmp_path, TABLE)
    (tmp_path / "src" / "a.py").write_text(LOST.format(comment="") + "out.realize()\n", encoding="utf-8")
    assert run_tool("run", "--lint", "src/a.py", cwd=tmp_path, DEV="PYTHON").returncode == 0
    (tmp_path / "pyproject.toml").write_text("[tool.vmapdbg]\nignore = []\n", encoding="utf-8")
    assert run_tool("run", "--lint", *OFF, "src/a.py", cwd=tmp_path, DEV="PYTHON").returncode == 1


@pytest.mark.parametrize(
    "command", [["show"], ["lint"], ["check"], ["bisect"], ["diff", "--baseline"], ["run", "--lint"]]
)
def test_a_mistake_ends_the_tool(command: list[str], tmp_path: Path) -> None:
    write_table(tmp_path, "[tool.vmapdbg]\ntagret = 'metal'\n")
    (tmp_path / "src" / "a.py").write_text("open('ran', 'w')\n", encoding="utf-8")
    done = run_tool(*command, "src/a.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown key 'tagret' in [tool.vmapdbg]" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "ran").exists()
