"""The README and the pages in docs/ show what the tool prints.

The Python blocks of a page run in order, and print what the lines `#> ` say. A block that begins
with `$ vmapdbg ... samples/...` is printed by that command; one below `<!-- prints: COMMAND -->` has some lines of what
that prints (the last of several, with `&&` between them), with `...` where others are left out, and `<!-- NAME ... -->`
above it is the program NAME.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from lanes import one_of
from shown import BLOCK, Printed, find_added, find_missing, list_printed
from tool import ROOT, RunSample, run_tool

DOCS = ROOT / "docs"
TEXTS = {page.name: page.read_text("utf-8") for page in (ROOT / "README.md", *sorted(DOCS.glob("*.md")))}
PAGES = sorted(name for name, text in TEXTS.items() if "```python\nimport vmapdbg.patched" in text)
SHOWN = [
    block
    for text in TEXTS.values()
    for block in re.findall(
        r"^```\n\$ vmapdbg ((?:lint|check|why|why --value|why --value \d+) samples/.*?)^```", text, re.M | re.S
    )
]
PROGRAM = re.compile(r"^<!-- (\w+\.py)\n(.*?)^-->$", re.M | re.S)
# what is not printed by this tool, or by nothing that can be run here: page, beginning of the block
NOT_PRINTED = {
    ("commands.md", "vmapdbg show SNIPPET"): "what can be typed",
    ("lint.md", "vmapdbg lint [SNIPPET"): "what can be typed",
    ("tinygrads.md", "this one decision"): "a search; tests/releases/test_decisions.py makes one like it",
}


PRINTED = [printed for page, text in TEXTS.items() for printed in list_printed(page, text)]


def test_every_block_is_printed_by_something_that_a_test_runs() -> None:
    """A block without a language is output. Who adds one says here how it is printed, or why it cannot be tried."""
    left = dict(NOT_PRINTED)
    for page, text in TEXTS.items():
        for block in BLOCK.finditer(text):
            marked = (block["mark"] or "").startswith(("prints: ", "python: ", "fault: ", "vmapdbg lint samples/"))
            known = [key for key in left if key[0] == page and block["text"].startswith(key[1])]
            for key in known:
                del left[key]
            if not block["language"] and not marked and not known:
                assert block["text"].removeprefix("$ vmapdbg ") in SHOWN, (page, block["text"][:200])
    assert not left


@pytest.mark.parametrize(
    ("shown", "missing", "added"),
    [
        ("$ vmapdbg\na\n  b\nc\n", None, None),
        ("a\n...\nc\n", None, None),
        ("...\nb\n...\n", None, None),
        ("a\nb\n", None, "c"),
        ("b\nc\n", None, "a"),
        ("a\nc\n", "a\nc", "a"),
        ("c\n...\na\n", "a", "a"),
    ],
)
def test_a_block_is_compared_with_what_is_printed(shown: str, missing: str | None, added: str | None) -> None:
    """What README shows, leaves out with `...`, or does not know of."""
    printed = "a\nb\nc\n"
    assert (find_missing(shown, printed), find_added(shown, printed)) == (missing, added)


def test_there_are_pages() -> None:
    assert PAGES
    assert len(SHOWN) >= 2


@pytest.mark.parametrize("block", one_of(SHOWN, 2), ids=lambda block: block.split()[0])
def test_shown_output(block: str, run_sample: RunSample) -> None:
    command, _, expected = block.partition("\n")
    assert run_sample(*shlex.split(command)).stdout.startswith(expected.rstrip("\n"))


@pytest.mark.slow
@pytest.mark.parametrize("printed", PRINTED, ids=lambda printed: " ".join(printed.command.split()[:6]))
def test_marked_output(printed: Printed, tmp_path: Path) -> None:
    """Runs the command of a block, and looks for each part of the block in its output."""
    for name in ("samples", "tests", "bench"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name, program in PROGRAM.findall(TEXTS[printed.page]):
        (tmp_path / name).write_text(program, "utf-8")
    done = None
    for command in printed.command.split(" && "):
        words = shlex.split(command)
        start = words.index("vmapdbg")
        variables = dict(word.split("=", 1) for word in words[:start])
        done = run_tool(*words[start + 1 :], cwd=tmp_path, **variables)
    assert done is not None
    output = done.stdout + done.stderr
    assert find_missing(printed.text, output) is None, output


@pytest.mark.slow
def test_the_reduced_snippet_shows_the_difference(tmp_path: Path) -> None:
    (program,) = re.findall(r"^```python\n(# Reduced from .*?)^```", TEXTS["check.md"], flags=re.M | re.S)
    (tmp_path / "small.py").write_text(program, "utf-8")
    # its third line is the command that shows the fault
    command = program.splitlines()[2].removeprefix("# vmapdbg ").split()
    done = run_tool(*command, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "1 output differs" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    "page", [page if page == "README.md" else pytest.param(page, marks=pytest.mark.slow) for page in PAGES]
)
def test_page(page: str, tmp_path: Path) -> None:
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", TEXTS[page], flags=re.M | re.S))
    expected = re.findall(r"^#> (.*)$", program, flags=re.M)
    last = [block for block in BLOCK.finditer(TEXTS[page]) if (block["mark"] or "").startswith("python: ")]
    for block in last:
        program += "\n" + block["mark"].removeprefix("python: ") + "\n"
    (tmp_path / "page.py").write_text(program, "utf-8")
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    printed = done.stdout
    if last:
        shown = "".join(block["text"] for block in last)
        assert printed.endswith(shown)
        printed = printed.removesuffix(shown)
    if expected:
        assert printed.splitlines() == expected
