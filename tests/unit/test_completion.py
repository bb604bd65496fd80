"""Shell completion offers the names that an option takes, and each name of a comma separated list."""

from __future__ import annotations

import pytest
from click.shell_completion import BashComplete, CompletionItem

from vmapdbg.commands.cli import main


def complete(words: list[str], incomplete: str) -> list[CompletionItem]:
    return BashComplete(main, {}, "vmapdbg", "_VMAPDBG_COMPLETE").get_completions(words, incomplete)


def offered(words: list[str], incomplete: str) -> set[str]:
    return {item.value for item in complete(words, incomplete)}


@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [
        (["show", "--only"], "ranges,v", {"ranges,vmap"}),
        (["bisect", "--by"], "k", {"kernels"}),
        (["bisect"], "--o", {"--output"}),
        (["show", "--patches"], "all,-n", {"all,-nested-ranges"}),
        (["show", "--patches"], "no", {"none"}),
        (["run", "--patches"], "clo", {"close-ranges"}),
        (["lint", "--select"], "VD101,VD10", {f"VD101,VD10{n}" for n in range(1, 10)}),
        (["show", "--target"], "me", {"metal"}),
        (["graph", "--baseline"], "sto", {"stock"}),
        ([], "sch", {"schema"}),
        (["schema"], "lint-", {"lint-files"}),
        (["--color"], "al", {"always"}),
    ],
)
def test_names_are_completed(words: list[str], incomplete: str, expected: set[str]) -> None:
    assert offered(words, incomplete) == expected


@pytest.mark.parametrize(
    "words",
    [
        *([command] for command in ("show", "check", "graph", "diff", "lint", "bisect", "report", "run")),
        ["lint", "a.py"],
        ["why", "48"],
        ["show", "a.py", "--save"],
        ["diff", "--baseline"],
    ],
    ids=" ".join,
)
def test_files_are_left_to_the_shell(words: list[str]) -> None:
    assert [(item.type, item.value) for item in complete(words, "sam")] == [("file", "sam")]
