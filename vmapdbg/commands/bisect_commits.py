"""`vmapdbg bisect --commits`: runs the snippet on the commits of a checkout of tinygrad."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vmapdbg.bisect.commits import CommitSearch, search_commits
from vmapdbg.bisect.outcome import Outcome, Outcomes, describe_end
from vmapdbg.commands.shared.children import run_many
from vmapdbg.commands.shared.console import show_progress
from vmapdbg.commands.shared.jobs import findings_of
from vmapdbg.install.fetched import commit_of, describe_commit, list_commits, repository_of
from vmapdbg.install.job import Job, Run
from vmapdbg.install.trees import TreeError, find_tree, parse_name
from vmapdbg.model.capture import SCHEMA
from vmapdbg.model.failure import Failure

if TYPE_CHECKING:
    from vmapdbg.diff import CaptureDiff
    from vmapdbg.page.documents import History


@dataclass(frozen=True)
class CommitsFound:
    """What a search over the commits of the repository `top` found: the outcomes, by their names, and the runs of the
    first commit that changed the outcome and of the one before it (None where none did)."""

    top: Path
    search: CommitSearch
    outcomes: Sequence[Outcome]
    before: Run | None
    after: Run | None


def search_history(job: Job, span: str, kind: str) -> CommitsFound:
    """Finds the first commit of a span (`GOOD..BAD`) where the `kind` of outcome of a job changed.

    The commits are those of the checkout that the job's tree is in, else of the working directory. Raises Failure where
    there is no such span, and where an end of it cannot be run.
    """
    top = repository_of(parse_name(job.tree or ".").path)
    line = find_line(top, span)
    outcomes, runs = Outcomes(kind, findings_of), dict[str, Run]()
    with show_progress(f"bisecting {job.snippet}") as progress:

        def ask(commits: Sequence[str]) -> list[str | None]:
            if progress is not None:
                progress(f"{len(runs)} of {len(line)} commits tried, now {' '.join(c[:9] for c in commits)}")
            runs.update(run_commits(job, top, commits))
            return [name_outcome(runs[commit], outcomes) for commit in commits]

        try:
            search = search_commits(line, ask, os.cpu_count() or 1)
        except ValueError as end:
            commit = str(end)
            ended = describe_end(runs[commit])
            raise Failure(f"{commit[:12]} is an end of {span}, and cannot be run: {ended}") from None
    if search.first is None or search.before is None:
        return CommitsFound(top, search, outcomes.known, None, None)
    return CommitsFound(top, search, outcomes.known, runs[search.before], runs[search.first])


def find_line(top: Path, span: str) -> list[str]:
    """Returns the commits of a span, the good one first. Raises Failure."""
    good, dots, bad = span.partition("..")
    if not (good and dots) or bad.startswith("."):
        raise Failure(f"--commits takes GOOD..BAD, not {span}")
    commits = list_commits(top, good, bad or "HEAD")
    if not commits:
        raise Failure(f"no commit of {span} changes the package tinygrad")
    return [commit_of(top, good), *commits]


def run_commits(job: Job, top: Path, commits: Sequence[str]) -> dict[str, Run]:
    """Runs a job on some commits at the same time. A commit that has no tree to run is as one that died."""
    jobs, runs = dict[str, Job](), dict[str, Run]()
    for commit in commits:
        tree = f"{top}@{commit}"
        try:
            find_tree(tree)
        except TreeError as error:
            runs[commit] = Run(None, str(error))
        else:
            jobs[commit] = replace(job, tree=tree, patches=None, values=True)
    runs.update(zip(jobs, run_many(list(jobs.values())), strict=True))
    return runs


def name_outcome(run: Run, outcomes: Outcomes) -> str | None:
    """Returns the name of a run's outcome, None where the tree cannot be run: it is stepped over.

    A snippet that fails before it makes a schedule says nothing about values, kernels or findings.
    """
    capture = run.capture
    failed_at_once = capture is None or (capture.error is not None and not capture.schedules)
    if failed_at_once and outcomes.kind != "crash":
        return None
    return outcomes.sort_in(run)


def describe_history(found: CommitsFound, snippet: str, kind: str, changes: CaptureDiff | None) -> History:
    """Returns the document about a search; `changes` is what the first commit changed."""
    from vmapdbg.page.documents import CommitTrial, History, NamedOutcome

    search, top = found.search, found.top
    tried = [commit for commit in search.commits if commit in search.outcomes]
    return History(
        schema=SCHEMA,
        kind="bisect-commits",
        snippet=snippet,
        by=kind,
        commits=len(search.commits) - 1,
        outcomes=tuple(NamedOutcome(outcome.name, outcome.summary) for outcome in found.outcomes),
        tried=tuple(CommitTrial(describe_commit(top, commit), search.outcomes[commit]) for commit in tried),
        suspects=tuple(describe_commit(top, commit) for commit in search.suspects),
        changes=changes,
    )
