"""The search for patches that matter: the smallest sets are found whatever the outcomes are, each run is made once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from vmapdbg.bisect import DEFAULT_RUNS
from vmapdbg.bisect.search import Search, search_patches
from vmapdbg.install.patches import SWITCHABLE, Patches

NAMES = ["a", "b", "c", "d", "e", "f", "g"]


def search(names: Sequence[str], outcome: Callable[[Patches], str], budget: int = 1000) -> tuple[Search, list[Patches]]:
    asked: list[Patches] = []

    def ask(sets: Sequence[Patches]) -> list[str]:
        asked.extend(sets)
        return [outcome(s) for s in sets]

    return search_patches(frozenset(names), ask, budget), asked


def subsets(names: Sequence[str]) -> list[Patches]:
    return [frozenset(s) for s in chain.from_iterable(combinations(names, n) for n in range(len(names) + 1))]


def test_one_patch_decides() -> None:
    found, _ = search(NAMES[:3], lambda s: "good" if "b" in s else "bad")
    assert found.removed.sets == (frozenset("b"),)
    assert found.added.sets == (frozenset("b"),)
    assert found.enough.sets == (frozenset("b"),)
    assert found.removed.exact


def test_all_of_the_smallest_are_named() -> None:
    found, _ = search(NAMES[:4], lambda s: "bad" if not s & {"a", "c"} else "good")
    assert found.removed.sets == (frozenset("ac"),)
    assert found.enough.sets == (frozenset("a"), frozenset("c"))


def test_a_patch_that_is_only_bad_alone() -> None:
    """Not monotone: none and all are good, one alone is bad."""
    found, _ = search(NAMES[:3], lambda s: "bad" if s == {"c"} else "good")
    assert found.outcomes[frozenset("abc")] == found.outcomes[frozenset()] == "good"
    assert found.added.sets == (frozenset("c"),)
    assert found.removed.sets == (frozenset("ab"),)


def test_nothing_matters() -> None:
    found, asked = search(NAMES[:3], lambda s: "same")
    assert found.is_uniform
    assert found.removed.sets == ()
    assert sorted(map(sorted, asked)) == sorted(map(sorted, subsets(NAMES[:3])))


def test_no_run_is_made_twice() -> None:
    _, asked = search(NAMES[:5], lambda s: str(len(s) % 3))
    assert len(asked) == len(set(asked))


def test_halves_within_the_budget() -> None:
    """128 sets are too many: what is found is minimal, and that it is not proved to be the smallest is said."""
    found, asked = search(NAMES, lambda s: "good" if {"a", "d", "g"} <= s else "bad", budget=24)
    assert found.enough.sets == (frozenset("adg"),)
    assert not found.enough.exact
    assert found.removed.exact  # one patch is enough for that
    assert len(asked) < 60


def test_halves_by_default() -> None:
    """As many patches as there are, and three of them needed together: all 64 sets would find it, too, in more runs."""
    needed = frozenset(SWITCHABLE[1:4])
    found, asked = search(SWITCHABLE, lambda s: "good" if needed <= s else "bad", budget=DEFAULT_RUNS)
    assert found.removed.sets == tuple(frozenset({name}) for name in sorted(needed))
    assert found.removed.exact
    assert found.added.sets == found.enough.sets == (needed,)
    assert not found.added.exact
    assert len(asked) < DEFAULT_RUNS + 5


def test_the_default_tries_each_patch_alone_and_each_two_taken_away() -> None:
    needed = {"a", "c", "d"}
    found, _ = search(NAMES[: len(SWITCHABLE)], lambda s: "good" if s & needed else "bad", budget=DEFAULT_RUNS)
    assert (found.added.sets, found.added.exact) == ((frozenset("a"), frozenset("c"), frozenset("d")), True)
    assert (found.removed.sets, found.removed.size) == ((frozenset("acd"),), 2)


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_against_trying_everything(seed: int, count: int) -> None:
    names = NAMES[:count]
    table = {s: str(hash((seed, tuple(sorted(s)))) % 2) for s in subsets(names)}
    found, _ = search(names, lambda s: table[s])
    whole, empty = frozenset(names), frozenset()
    for kind, hits in {
        "removed": [s for s in subsets(names) if table[whole - s] != table[whole]],
        "added": [s for s in subsets(names) if table[s] != table[empty]],
        "enough": [s for s in subsets(names) if table[s] == table[whole]],
    }.items():
        smallest = min(map(len, hits), default=0)
        assert set(getattr(found, kind).sets) == {s for s in hits if len(s) == smallest}
