"""What is typed: no command, code in the place of a file, arguments of the snippet, how is printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tool import ROOT, run_tool

from vmapdbg.commands.cli import COMMANDS

CODE = "import sys\nfrom tinygrad import Tensor\nprint(sys.argv)\nx = Tensor.empty(3) + 1\n"


def test_without_a_command_the_tool_says_what_people_can_do(tmp_path: Path) -> None:
    """Each line is a command that exists, with its options; the list of all commands is in --help."""
    done = run_tool(cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 60
    typed = re.findall(r"vmapdbg (\w+) (.+)$", done.stdout, re.M)
    assert len(typed) >= 6
    for name, words in typed:
        # a word that names no file is an option of the command
        options = [word.partition("=")[0] for word in words.split() if word.startswith("-")]
        helped = run_tool(name, "--help", cwd=tmp_path).stdout
        assert all(option in helped for option in options), (name, words)
    shown = run_tool("--help", cwd=tmp_path).stdout
    assert all(f"\n  {name} " in shown for name in COMMANDS)


# *** code in the place of a file


def test_code_is_a_snippet(tmp_path: Path) -> None:
    """Its lines have a file, which the next command finds; it imports from the working directory."""
    (tmp_path / "mine.py").write_text("SIZE = 3\n", encoding="utf-8")
    code = CODE.replace("(3)", "(mine.SIZE)").replace("import sys\n", "import sys, mine\n")
    done = run_tool("show", "-c", code, "--only", "kernels", "--", "--steps", "4", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("['-c', '--steps', '4']\n")
    assert re.search(r"lines code-[0-9a-f]{8}\.py:4", done.stdout)
    why = run_tool("why", "E_3", cwd=tmp_path)
    assert why.returncode == 0
    assert re.search(r"using \S+/code-[0-9a-f]{8}\.py, from the last show with -- --steps 4", why.stderr)
    # other arguments in the place of those
    assert "['-c', 'b']" in run_tool("why", "E_3", "--", "b", cwd=tmp_path).stderr
    assert "['-c']" in run_tool("why", "E_3", "--", cwd=tmp_path).stderr


@pytest.mark.slow
def test_stdin_is_a_snippet(tmp_path: Path) -> None:
    done = run_tool("why", "E_3", "-", "--", "a", cwd=tmp_path, stdin=CODE)
    assert done.returncode == 0, done.stderr
    assert "['-', 'a']" in done.stderr
    assert done.stdout.startswith("kernel E_3 #0")
    done = run_tool("lint", "-", "--format", "json", cwd=tmp_path, stdin=CODE)
    assert (done.returncode, json.loads(done.stdout)["findings"]) == (0, [])


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, id=command[0], marks=() if command[0] == "lint" else pytest.mark.slow)
        for command in (
            ["diff", "--baseline"],
            ["graph", "-o", "out.json"],
            ["report", "-o", "out.html"],
            ["check"],
            ["bisect", "--by", "kernels", "--runs", "2"],
            ["why", "--value"],
            ["lint"],
        )
    ],
)
def test_every_command_takes_code_and_arguments(command: list[str], tmp_path: Path) -> None:
    code = f"import sys\nopen('ran', 'a').write(str(sys.argv) + chr(10))\n{CODE}"
    done = run_tool(*command, "-c", code, "--", "--lr", "1", cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr
    assert set((tmp_path / "ran").read_text().splitlines()) == {"['-c', '--lr', '1']"}


def test_code_in_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be", encoding="utf-8")
    done = run_tool("show", "-c", CODE, cwd=tmp_path, XDG_STATE_HOME="state")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("vmapdbg: cannot keep the code: ")
    assert (tmp_path / "state").is_file()


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [(("-c", "import sys; print(sys.argv)", "a"), "['-c', 'a']\n"), (("-m", "mine", "a"), "mine.py', 'a']\n")],
)
def test_run_takes_code(arguments: tuple[str, ...], printed: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import sys; print(sys.argv)\n", encoding="utf-8")
    done = run_tool("run", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(printed)


def test_run_takes_stdin(tmp_path: Path) -> None:
    done = run_tool("run", "-", "a", cwd=tmp_path, stdin="import sys; print(sys.argv)")
    assert (done.returncode, done.stdout) == (0, "['-', 'a']\n"), done.stderr


# *** how is printed


def test_width_and_colour(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(CODE, encoding="utf-8")
    run_tool("show", "a.py", "--save", "run.json", cwd=tmp_path)
    narrow = run_tool("show", "run.json", "--width", "60", cwd=tmp_path).stdout
    wide = run_tool("--width", "160", "show", "run.json", cwd=tmp_path).stdout
    assert max(map(len, narrow.splitlines())) <= 60
    assert max(map(len, wide.splitlines())) > 80
    assert "\x1b[" not in wide
    coloured = run_tool("show", "run.json", "--color=always", cwd=tmp_path, TERM="xterm-256color", NO_COLOR="1").stdout
    assert "\x1b[" in coloured
    plain = re.sub(r"\x1b\[[\d;]*m", "", coloured)
    assert plain == run_tool("show", "run.json", "--color=never", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    "command", [["show", "run.json", "--all"], ["diff", "run.json", "run.json", "--all"], ["patches"]]
)
def test_a_reader_that_stops_early_is_not_a_finding(command: list[str], tmp_path: Path) -> None:
    """As `vmapdbg diff ... | head -1`: 1 would mean that there are findings."""
    (tmp_path / "a.py").write_text(CODE, encoding="utf-8")
    run_tool("show", "a.py", "--save", "run.json", cwd=tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as stdout:
        arguments = [sys.executable, "-m", "vmapdbg", *command]
        done = subprocess.run(arguments, cwd=tmp_path, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# *** how a snippet ends


@pytest.mark.slow
def test_an_endless_recursion_is_printed_as_python_prints_it(tmp_path: Path) -> None:
    text = "from tinygrad import Tensor\nx = Tensor.empty(4)\nfor _ in range(20000): x = x + 1\nx.realize()\n"
    (tmp_path / "chain.py").write_text(text, encoding="utf-8")
    done = run_tool("show", "chain.py", cwd=tmp_path)
    plain = run_tool("run", "chain.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines()[-1].startswith("RecursionError: maximum recursion depth exceeded")
    assert len(done.stderr.splitlines()) < 3100
    assert str(ROOT / "vmapdbg") not in done.stderr
    assert len(plain.stderr.splitlines()) == len(done.stderr.splitlines())


def test_linked_errors_are_printed_as_python_prints_them(tmp_path: Path) -> None:
    text = "def f():\n  raise KeyError('a')\ntry:\n  f()\nexcept KeyError as e:\n  raise ValueError('b') from e\n"
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    plain = subprocess.run([sys.executable, "a.py"], cwd=tmp_path, capture_output=True, text=True, check=False).stderr
    assert run_tool("show", "a.py", cwd=tmp_path).stderr == plain.replace(f"{tmp_path}/", "")
