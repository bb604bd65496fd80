"""The search over a line of commits: what is found, and how often it asks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from vmapdbg.bisect.search import search_commits


class Asked:
    """Outcomes by commit, and how many were asked for in each round."""

    def __init__(self, outcomes: str) -> None:
        """`outcomes` has one letter a commit, `-` for one that cannot be run."""
        self.names = [f"c{i}" for i in range(len(outcomes))]
        self.outcomes = dict(zip(self.names, outcomes, strict=True))
        self.rounds: list[int] = []

    def __call__(self, commits: Sequence[str]) -> list[str | None]:
        self.rounds.append(len(commits))
        return [None if self.outcomes[commit] == "-" else self.outcomes[commit] for commit in commits]


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("changed", range(1, 40))
def test_the_first_commit_with_another_outcome_is_found(changed: int, width: int) -> None:
    asked = Asked("A" * changed + "B" * (40 - changed))
    found = search_commits(asked.names, asked, width)
    assert (found.first, found.before) == (f"c{changed}", f"c{changed - 1}")
    assert sum(asked.rounds) <= {1: 8, 2: 10, 3: 11}[width]


def test_both_ends_alike_is_no_change() -> None:
    asked = Asked("ABA")
    found = search_commits(asked.names, asked)
    assert (found.first, found.before, found.suspects, asked.rounds) == (None, None, (), [2])


def test_a_third_outcome_is_a_change_too() -> None:
    asked = Asked("AAACCCBB")
    assert search_commits(asked.names, asked).first == "c3"


def test_what_cannot_be_run_is_stepped_over() -> None:
    asked = Asked("AAA--" + "B" * 12)
    found = search_commits(asked.names, asked)
    assert found.suspects == ("c3", "c4", "c5")
    assert found.before == "c2"
    assert search_commits(*(lambda a: (a.names, a))(Asked("A---A---BB--B"))).suspects == ("c5", "c6", "c7", "c8")


def test_two_neighbours_need_no_search() -> None:
    asked = Asked("AB")
    assert search_commits(asked.names, asked).first == "c1"
    assert asked.rounds == [2]


@pytest.mark.parametrize("outcomes", ["-AB", "AB-"])
def test_an_end_that_cannot_be_run_is_told(outcomes: str) -> None:
    asked = Asked(outcomes)
    with pytest.raises(ValueError, match=r"c[02]"):
        search_commits(asked.names, asked)
