"""What a `--patches` value turns on; shell completion offers commands, options, the choices of an option, and files."""

from __future__ import annotations

import pytest
from click.shell_completion import BashComplete

from vmapdbg.commands.cli import main
from vmapdbg.install.patches import SWITCHABLE, PatchError, format_patches, parse_patches, patch_states, spell_patches


@pytest.mark.parametrize(
    ("spec", "on"),
    [
        ("all", set(SWITCHABLE)),
        ("none", set()),
        ("all,-close-ranges", set(SWITCHABLE) - {"close-ranges"}),
        ("-close-ranges", set(SWITCHABLE) - {"close-ranges"}),
        ("ambient-ranges,close-ranges", {"ambient-ranges", "close-ranges"}),
        (" ambient-ranges , -ambient-ranges", set()),
        ("vmap-ops", set()),
        ("all,none", set()),
    ],
)
def test_spec(spec: str, on: set[str]) -> None:
    assert parse_patches(spec) == on
    assert parse_patches(format_patches(parse_patches(spec))) == on
    assert parse_patches(spell_patches(parse_patches(spec))) == on


def test_a_spec_is_spelled_in_its_shortest_form() -> None:
    for spec in ("all", "none", "close-ranges", "all,-close-ranges"):
        assert spell_patches(parse_patches(spec)) == spec


@pytest.mark.parametrize("spec", ["", "everything", "all,-fuse", "-all", "-none", "all;none", "all,-vmap-ops"])
def test_wrong_spec_is_one_sentence(spec: str) -> None:
    with pytest.raises(PatchError) as raised:
        parse_patches(spec)
    assert "\n" not in str(raised.value)


def test_states_name_every_patch() -> None:
    states = patch_states(frozenset({"nested-ranges"}))
    assert states == {"vmap-ops": True, **{name: name == "nested-ranges" for name in SWITCHABLE}}


# *** completion


def complete(words: list[str], incomplete: str) -> set[tuple[str, str]]:
    """Returns the type and the value of each completion."""
    found = BashComplete(main, {}, "vmapdbg", "_VMAPDBG_COMPLETE").get_completions(words, incomplete)
    return {(item.type, item.value) for item in found}


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
    assert complete(words, incomplete) == {("plain", name) for name in expected}


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
    assert complete(words, "sam") == {("file", "sam")}
