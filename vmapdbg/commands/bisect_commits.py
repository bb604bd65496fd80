"""`vmapdbg bisect --commits`: searches for the commit of tinygrad that changed the outcome."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vmapdbg.bisect.outcome import Outcomes, describe_end
from vmapdbg.bisect.search import search_commits
from vmapdbg.commands.shared import console, jobs
from vmapdbg.commands.shared.children import run_many
from vmapdbg.diff import diff_captures
from vmapdbg.install.job import Job, Run
from vmapdbg.install.trees import commit_of, describe_commit, list_commits, parse_name, repository_of
from vmapdbg.model.capture import SCHEMA
from vmapdbg.model.failure import Failure
from vmapdbg.page.documents import CommitTrial, History, name_outcomes
from vmapdbg.page.text.bisect import print_history


def show_history(job: Job, span: str, kind: str, as_json: bool) -> int:
    """Prints the first commit of a span (`GOOD..BAD`) that changed the `kind` of outcome of a job. Returns the exit
    code.

    The commits are from the checkout of the job's tree, else of the working directory. Raises Failure if there is no
    such span, or if an end of it cannot be run.
    """
    top = repository_of(parse_name(job.tree or ".").path)
    line = list_span(top, span)
    outcomes, runs = Outcomes(kind, jobs.findings_of), dict[str, Run]()
    with console.show_progress(f"bisecting {job.snippet}") as progress:

        def ask(commits: Sequence[str]) -> list[str | None]:
            progress(f"{len(runs)} of {len(line)} commits tried, now {' '.join(c[:9] for c in commits)}")
            trees = [replace(job, tree=f"{top}@{commit}", patches=None, values=True) for commit in commits]
            runs.update(zip(commits, run_many(trees), strict=True))
            return [name_outcome(runs[commit], outcomes) for commit in commits]

        try:
            search = search_commits(line, ask, os.cpu_count() or 1)
        except ValueError as end:
            commit = str(end)
            ended = describe_end(runs[commit])
            raise Failure(f"{commit[:12]} is an end of {span}, and cannot be run: {ended}") from None
    changes = None
    if search.first is not None and search.before is not None:
        before, after = (jobs.add_findings(runs[commit].capture) for commit in (search.before, search.first))
        changes = diff_captures(before, after, None)
    tried = [commit for commit in search.commits if commit in search.outcomes]
    history = History(
        schema=SCHEMA,
        kind="bisect-commits",
        snippet=job.snippet,
        by=kind,
        commits=len(search.commits) - 1,
        outcomes=name_outcomes(outcomes.known),
        tried=tuple(CommitTrial(describe_commit(top, commit), search.outcomes[commit]) for commit in tried),
        suspects=tuple(describe_commit(top, commit) for commit in search.suspects),
        changes=changes,
    )
    if as_json:
        console.print_json(history)
    else:
        print_history(history, console.make_console())
    return int(bool(history.suspects))


def list_span(top: Path, span: str) -> list[str]:
    """Returns the commits of a span, the good commit first. Raises Failure."""
    good, dots, bad = span.partition("..")
    if not (good and dots) or bad.startswith("."):
        raise Failure(f"--commits takes GOOD..BAD, not {span}")
    commits = list_commits(top, good, bad or "HEAD")
    if not commits:
        raise Failure(f"no commit of {span} changes the package tinygrad")
    return [commit_of(top, good), *commits]


def name_outcome(run: Run, outcomes: Outcomes) -> str | None:
    """Returns the name of a run's outcome, None if it has none: then the commit is skipped.

    A snippet that fails before its first schedule says nothing about values, kernels or findings.
    """
    capture = run.capture
    failed_at_once = capture.error is not None and not capture.schedules
    if failed_at_once and outcomes.kind != "crash":
        return None
    return outcomes.sort_in(run)
