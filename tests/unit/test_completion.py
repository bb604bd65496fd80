"""Shell completion offers commands, options, the choices of an option, and files."""

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
        (["bisect"], "--o", {"--output"}),
        (["show", "--target"], "me", {"metal"}),
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
    ],
    ids=" ".join,
)
def test_files_are_left_to_the_shell(words: list[str]) -> None:
    assert [(item.type, item.value) for item in complete(words, "sam")] == [("file", "sam")]
