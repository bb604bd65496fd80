"""Shell completion offers the names that an option takes, each name of a comma separated list, and the names of the
last run."""

from __future__ import annotations

from pathlib import Path

import pytest
from captures import lost_range
from click.shell_completion import BashComplete, CompletionItem

from vmapdbg.commands.cli import main
from vmapdbg.commands.shared.options import list_names
from vmapdbg.commands.shared.work_folder import remember_names
from vmapdbg.model.store import save_capture


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
        # --paranoid
        (["check"], "--pa", {"--patches"}),
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
    """The old names of options still work, and are not offered."""
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


def test_kernels_and_lines_of_the_last_run_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert offered(["show", "a.py", "--kernel"], "") == set()
    remember_names({"kernels": ["r_3_2", "E_3"], "lines": ["a.py:3", "a.py:7"]})
    assert offered(["show", "a.py", "--kernel"], "r") == {"r_3_2"}
    assert offered(["show", "a.py", "--line"], "a.py") == {"a.py:3", "a.py:7"}
    assert offered(["why"], "E") == {"E_3"}


def test_kernels_of_a_saved_capture_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    capture = lost_range()
    save_capture(capture, Path("run.json"))
    names = list_names(capture)
    assert names["kernels"]
    assert offered(["show", "run.json", "--kernel"], "") == set(names["kernels"])
    Path("broken.json").write_text("{", encoding="utf-8")
    assert offered(["show", "broken.json", "--kernel"], "") == set()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"kernels": 3}'])
def test_a_damaged_list_of_names_offers_nothing(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    remember_names({"kernels": ["r_3_2"], "lines": []})
    (tmp_path / ".vmapdbg" / "names.json").write_text(text, encoding="utf-8")
    assert offered(["show", "a.py", "--kernel"], "") == set()
