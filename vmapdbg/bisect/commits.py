"""Which commit changed the outcome: a search over a line of commits, several at a time.

An outcome is a name; two commits with the same name came out alike. Commits that cannot be run (a tree that does not
import) are stepped over, as `git bisect skip` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Ask = Callable[[Sequence[str]], Sequence[str | None]]
"""Returns the name of the outcome of each commit, None where it cannot be run."""


@dataclass(frozen=True)
class CommitSearch:
    """What a search found. `commits` is the line, the one before the first of them included; `outcomes` has those
    that were run.

    `first` is the first commit with another outcome than the one before it, None where both ends came out alike.
    `suspects` are the commits that it may be, in order: more than one where those in between cannot be run.
    """

    commits: tuple[str, ...]
    outcomes: dict[str, str | None]
    suspects: tuple[str, ...]

    @property
    def first(self) -> str | None:
        if not self.suspects:
            return None
        return self.suspects[-1]

    @property
    def before(self) -> str | None:
        """The last commit that was run and had the old outcome."""
        if not self.suspects:
            return None
        return self.commits[self.commits.index(self.suspects[0]) - 1]


def search_commits(commits: Sequence[str], ask: Ask, width: int = 1) -> CommitSearch:
    """Searches a line of commits, the good one first and the bad one last, for a change of the outcome.

    `width` commits are asked for at the same time, and cut what is left into as many pieces and one more. Where the
    outcome changes several times, one of the changes from the first commit's outcome is found. Raises ValueError where
    an end of the line cannot be run.
    """
    outcomes: dict[str, str | None] = {}

    def look(chosen: Sequence[str]) -> None:
        new = [commit for commit in dict.fromkeys(chosen) if commit not in outcomes]
        if new:
            outcomes.update(zip(new, ask(new), strict=True))

    line = tuple(commits)
    look([line[0], line[-1]])
    for end in (line[0], line[-1]):
        if outcomes[end] is None:
            raise ValueError(end)
    good = outcomes[line[0]]
    if outcomes[line[-1]] == good:
        return CommitSearch(line, outcomes, ())
    low, high = 0, len(line) - 1
    while True:
        inside = [i for i in range(low + 1, high) if line[i] not in outcomes]
        if not inside:
            break
        look([line[i] for i in choose_cuts(inside, width)])
        known = [i for i in range(low, high + 1) if outcomes.get(line[i]) is not None]
        high = next(i for i in known if outcomes[line[i]] != good)
        low = max(i for i in known if i < high)
    return CommitSearch(line, outcomes, line[low + 1 : high + 1])


def choose_cuts(inside: Sequence[int], width: int) -> list[int]:
    """Returns up to `width` of the numbers, as evenly spaced as can be."""
    pieces = min(width, len(inside)) + 1
    return [inside[len(inside) * cut // pieces] for cut in range(1, pieces)]
