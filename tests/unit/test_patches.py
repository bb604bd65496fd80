"""What a `--patches` value turns on."""

from __future__ import annotations

import pytest

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
    assert [spell_patches(parse_patches(spec)) for spec in ("all", "none", "close-ranges")] == [
        "all",
        "none",
        "close-ranges",
    ]
    assert spell_patches(frozenset(SWITCHABLE) - {"close-ranges"}) == "all,-close-ranges"


@pytest.mark.parametrize("spec", ["", "everything", "all,-fuse", "-all", "-none", "all;none", "all,-vmap-ops"])
def test_wrong_spec_is_one_sentence(spec: str) -> None:
    with pytest.raises(PatchError) as raised:
        parse_patches(spec)
    assert "\n" not in str(raised.value)


def test_states_name_every_patch() -> None:
    states = patch_states(frozenset({"nested-ranges"}))
    assert states == {"vmap-ops": True, **{name: name == "nested-ranges" for name in SWITCHABLE}}
