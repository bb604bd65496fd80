"""The search for patches that matter: the smallest sets are found whatever the outcomes are, each run is made once."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rendered import print_to_text

from vmapdbg.bisect import DEFAULT_RUNS
from vmapdbg.bisect.measure import Measurements
from vmapdbg.bisect.search import PatchSearcher, Searcher, search_commits
from vmapdbg.install.patches import SWITCHABLE, Patches
from vmapdbg.page.documents import CommitTrial, History
from vmapdbg.page.text.bisect import print_history

NAMES = ["a", "b", "c", "d", "e", "f", "g"]


def search(
    names: Sequence[str], outcome: Callable[[Patches], str], budget: int = 1000
) -> tuple[PatchSearcher, list[Patches]]:
    asked: list[Patches] = []

    def ask(sets: Sequence[Patches]) -> list[str]:
        asked.extend(sets)
        return [outcome(s) for s in sets]

    return PatchSearcher(frozenset(names), ask, budget), asked


def subsets(names: Sequence[str]) -> list[Patches]:
    return [frozenset(s) for s in chain.from_iterable(combinations(names, n) for n in range(len(names) + 1))]


def test_all_of_the_smallest_are_named() -> None:
    found, _ = search(NAMES[:3], lambda s: "good" if "b" in s else "bad")
    assert found.removed.sets == found.added.sets == found.enough.sets == (tuple("b"),)
    assert found.removed.exact
    found, _ = search(NAMES[:4], lambda s: "bad" if not s & {"a", "c"} else "good")
    assert found.removed.sets == (tuple("ac"),)
    assert found.enough.sets == (tuple("a"), tuple("c"))


def test_a_patch_that_is_only_bad_alone() -> None:
    """Not monotone: none and all are good, one alone is bad."""
    found, _ = search(NAMES[:3], lambda s: "bad" if s == {"c"} else "good")
    assert found.outcomes[frozenset("abc")] == found.outcomes[frozenset()] == "good"
    assert found.added.sets == (tuple("c"),)
    assert found.removed.sets == (tuple("ab"),)


def test_no_run_is_made_twice() -> None:
    found, asked = search(NAMES[:3], lambda s: "same")
    assert found.is_uniform
    assert found.removed.sets == ()
    assert sorted(map(sorted, asked)) == sorted(map(sorted, subsets(NAMES[:3])))
    _, asked = search(NAMES[:5], lambda s: str(len(s) % 3))
    assert len(asked) == len(set(asked))


def test_halves_within_the_budget() -> None:
    """128 sets are too many: what is found is minimal, and that it is not proved to be the smallest is said."""
    found, asked = search(NAMES, lambda s: "good" if {"a", "d", "g"} <= s else "bad", budget=24)
    assert found.enough.sets == (tuple("adg"),)
    assert not found.enough.exact
    assert found.removed.exact  # one patch is enough for that
    assert len(asked) < 60


def test_halves_by_default() -> None:
    """As many patches as there are, and three of them needed together: all sets would find it, too, in more runs."""
    needed = frozenset(SWITCHABLE[1:4])
    found, asked = search(SWITCHABLE, lambda s: "good" if needed <= s else "bad", budget=DEFAULT_RUNS)
    assert found.removed.sets == tuple((name,) for name in sorted(needed))
    assert found.removed.exact
    assert found.added.sets == found.enough.sets == (tuple(sorted(needed)),)
    assert not found.added.exact
    assert len(asked) < DEFAULT_RUNS + 5


def test_the_default_tries_each_patch_alone_and_each_two_taken_away() -> None:
    needed = {"a", "c", "d"}
    names = string.ascii_lowercase[: len(SWITCHABLE)]
    found, _ = search(list(names), lambda s: "good" if s & needed else "bad", budget=DEFAULT_RUNS)
    assert (found.added.sets, found.added.exact) == ((tuple("a"), tuple("c"), tuple("d")), True)
    assert (found.removed.sets, found.removed.size) == ((tuple("acd"),), 2)


@pytest.mark.parametrize(("count", "expected"), [(1, (frozenset("a"), True)), (2, (frozenset("ab"), False))])
def test_one_member_is_minimal_also_after_the_last_run(count: int, expected: tuple[Patches, bool]) -> None:
    """`bisect --decisions` says whether its decisions are minimal."""
    searcher = Searcher(frozenset(NAMES[:count]), lambda sets: ["bad"] * len(sets), budget=0)
    assert searcher.find_minimal(lambda part: part, lambda outcome: outcome == "bad", is_limited=True) == expected


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
        assert set(getattr(found, kind).sets) == {tuple(sorted(s)) for s in hits if len(s) == smallest}


# *** commits


class AskedCommits:
    """Outcomes by commit, and how many were asked for in each round."""

    def __init__(self, outcomes: str) -> None:
        """`outcomes` has one letter for each commit, `-` for a commit that cannot run."""
        self.names = [f"c{i}" for i in range(len(outcomes))]
        self.outcomes = dict(zip(self.names, outcomes, strict=True))
        self.rounds: list[int] = []

    def __call__(self, commits: Sequence[str]) -> list[str | None]:
        self.rounds.append(len(commits))
        return [None if self.outcomes[commit] == "-" else self.outcomes[commit] for commit in commits]


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("changed", range(1, 40))
def test_the_first_commit_with_another_outcome_is_found(changed: int, width: int) -> None:
    asked = AskedCommits("A" * changed + "B" * (40 - changed))
    _, step = search_commits(asked.names, asked, width)
    assert step == (f"c{changed - 1}", f"c{changed}")
    assert sum(asked.rounds) <= {1: 8, 2: 10, 3: 11}[width]


def test_ends_and_outcomes() -> None:
    asked = AskedCommits("ABA")
    assert (search_commits(asked.names, asked)[1], asked.rounds) == (None, [2]), "equal ends"
    asked = AskedCommits("AAACCCBB")
    assert search_commits(asked.names, asked)[1] == ("c2", "c3"), "a third outcome is a change, too"
    asked = AskedCommits("AB")
    assert search_commits(asked.names, asked)[1] == ("c0", "c1")
    assert asked.rounds == [2], "two neighbours need no search"


def test_what_cannot_be_run_is_stepped_over() -> None:
    asked = AskedCommits("AAA--" + "B" * 12)
    assert search_commits(asked.names, asked)[1] == ("c2", "c5")
    asked = AskedCommits("A---A---BB--B")
    assert search_commits(asked.names, asked)[1] == ("c4", "c8")


@pytest.mark.parametrize("outcomes", ["-AB", "AB-"])
def test_an_end_that_cannot_be_run_is_reported(outcomes: str) -> None:
    asked = AskedCommits(outcomes)
    with pytest.raises(ValueError, match=r"c[02]"):
        search_commits(asked.names, asked)


@pytest.mark.parametrize(
    ("good", "bad", "middle", "floor", "names"),
    [
        ((8, 8), (9, 9), (8,), 0, "ABA"),  # counts are exact
        ((8, 9), (9, 9), (8,), 1, "AAA"),  # unless they vary
        ((5, 9, 5.5), (6, 5.8, 5.9), (5.7,), 0.5, "ABB"),  # one slow run in three is no noise
        ((5, 5.4, 6), (5.3, 5.3, 5.3), (9,), 0.4, "AAA"),
    ],
)
def test_what_is_within_the_noise_of_the_ends_is_no_difference(
    good: tuple[float, ...], bad: tuple[float, ...], middle: tuple[float, ...], floor: float, names: str
) -> None:
    found = Measurements()
    for commit, measured in {"good": good, "bad": bad, "middle": middle}.items():
        found.add(commit, measured)
    assert found.floor == pytest.approx(floor)
    assert "".join(filter(None, map(found.name, ("good", "bad", "middle")))) == names
    found.add("broken", ())
    assert found.name("broken") is None


@pytest.mark.parametrize(
    ("by", "numbers", "floor", "said"),
    [
        ("memory", (2048, 2048), 0, "no commit: 2 KiB at both ends"),
        ("time", (1e-3, 2e-3), 3e-3, "no commit: within noise (1.00 ms at the first, 2.00 ms at the last)"),
        ("ops", (5, 6, 7), 1.5, "no single commit: each step is within noise (5 at the first, 7 at the last)"),
    ],
)
def test_why_no_commit_is_blamed_is_said(by: str, numbers: tuple[float, ...], floor: float, said: str) -> None:
    tried = tuple(CommitTrial(f"c{i}", "A", number) for i, number in enumerate(numbers))
    history = History(1, "bisect-commits", "x.py", by, 4, (), tried, (), None, floor)
    text = print_to_text(lambda console: print_history(history, console), 100)
    assert text.startswith(f"x.py  {len(numbers)} of 5 commits, by {by}, BEAM held at 0, noise ")
    assert said in text.splitlines()
