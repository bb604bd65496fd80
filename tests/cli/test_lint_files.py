"""`vmapdbg lint` of several files, into a file, and what the examples in docs/ make of it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from lost import LOST, OFF
from rendered import print_to_text
from tool import ROOT, run_tool

from vmapdbg.commands.cli import main
from vmapdbg.lint import RULES
from vmapdbg.model.capture import Finding
from vmapdbg.page.text.lint import print_concise

EXAMPLES = ROOT / "docs" / "examples"


def write(folder: Path) -> None:
    (folder / "a.py").write_text(LOST.format(comment=""), encoding="utf-8")
    (folder / "good.py").write_text("from tinygrad import Tensor\nx = Tensor.empty(3) + 1\n", encoding="utf-8")
    (folder / "dies.py").write_text("1 / 0\n", encoding="utf-8")
    (folder / "exits.py").write_text("import os\nos._exit(3)\n", encoding="utf-8")


def test_several_files(tmp_path: Path) -> None:
    write(tmp_path)
    done = run_tool("lint", "a.py", "good.py", *OFF, cwd=tmp_path)
    assert done.returncode == 1
    blocks = done.stdout.split("\n\n")
    assert [block.split()[0] for block in blocks] == ["a.py", "a.py:6", "good.py", "1"]
    assert blocks[-1] == "1 finding in 2 files\n"


@pytest.mark.slow
def test_a_file_that_fails_leaves_the_others(tmp_path: Path) -> None:
    """The exit code is the worst exit code of all files."""
    write(tmp_path)
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
    "form", ["text", *[pytest.param(form, marks=pytest.mark.slow) for form in ("concise", "json", "github")]]
)
def test_a_file_has_what_stdout_would(form: str, tmp_path: Path) -> None:
    write(tmp_path)
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
    write(tmp_path)
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
        assert context.params["form"] in ("concise", "github")


def test_the_hook_is_whole() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert {"id", "name", "entry", "language"} <= set(hook)
    assert hook["language"] == "python"
    # it runs what it is given: by itself no file
    assert not re.search(hook["files"], "a.py")
    workflow = yaml.safe_load((EXAMPLES / "lint.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["lint"]["steps"]
