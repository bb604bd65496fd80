"""The source of a diff is aligned as difflib aligns it, however long its lines are."""

from __future__ import annotations

from difflib import SequenceMatcher

from hypothesis import given
from hypothesis import strategies as st

from vmapdbg.diff import sequences
from vmapdbg.diff.sequences import find_opcodes


@given(*2 * [st.lists(st.sampled_from("abc"), max_size=24)])
def test_long_sequences_are_matched_as_difflib_does(before: list[str], after: list[str]) -> None:
    """A wrong stretch would mark what did not change, or pair lines that have nothing in common."""
    numbers = [tuple("abc".index(item) for item in side) for side in (before, after)]
    expected = SequenceMatcher(None, before, after, autojunk=False)
    found = sequences._LargeMatcher(*numbers)
    assert found.get_matching_blocks() == expected.get_matching_blocks()
    assert list(find_opcodes(before, after)) == expected.get_opcodes()


def test_same_pattern_is_compared_once() -> None:
    """24 layers of a network would take 24 times as long."""
    sequences._compare_numbers.cache_clear()
    assert find_opcodes("xyz", "xz") == find_opcodes((7, 8, 9), (7, 9))
    assert sequences._compare_numbers.cache_info().hits == 1
