"""The searches of `vmapdbg bisect`: runs the snippet with sets of patches, on commits, or with single decisions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from vmapdbg.bisect.decisions import Choices, DecisionSearch, DecisionSearcher, list_forceable
from vmapdbg.bisect.outcome import RUNS_WELL, Outcome, Outcomes, describe_end, find_wrong_schedule
from vmapdbg.bisect.search import CommitSearch, Reduced, Search, search_commits, search_patches
from vmapdbg.commands.shared.children import run_many
from vmapdbg.commands.shared.console import (
    Progress,
    close_pager,
    count_runs,
    make_console,
    print_json,
    say,
    show_progress,
)
from vmapdbg.commands.shared.jobs import findings_of, is_saved, make_job, make_open_job, refuse_overlay_error
from vmapdbg.commands.shared.options import JobOptions
from vmapdbg.commands.shared.runs import baseline_of, capture_of
from vmapdbg.diff import CaptureDiff, diff_captures
from vmapdbg.install.fetched import commit_of, describe_commit, list_commits, repository_of
from vmapdbg.install.job import Job, Run
from vmapdbg.install.patches import Patches
from vmapdbg.install.trees import TreeError, find_tree, parse_name
from vmapdbg.model.capture import SCHEMA, Capture
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import count_kernels
from vmapdbg.model.store import write_output
from vmapdbg.page.documents import (
    CommitTrial,
    DecisionsDocument,
    DecisionTrial,
    History,
    NamedOutcome,
    describe_choices,
    make_bisect_document,
)
from vmapdbg.page.text.bisect import print_bisect, print_decisions, print_history

# for these kinds a right outcome is known; for the others, every change is looked for
RIGHT_OR_WRONG = ("values", "crash")
ALL_FORCED = "the same with every node forced to be a buffer"

NOTHING: Choices = frozenset()


def _name_outcomes(outcomes: Sequence[Outcome]) -> tuple[NamedOutcome, ...]:
    return tuple(NamedOutcome(outcome.name, outcome.summary) for outcome in outcomes)


# *** sets of patches


def show_patches(
    snippet: str | None,
    kind: str,
    runs: int,
    seconds: float | None,
    output: Path | None,
    options: JobOptions,
    as_json: bool,
) -> int:
    """Searches for sets of patches and prints the result. Returns the exit code. With `seconds` the snippet is reduced
    for at most this long, and written to `output` (None: stdout)."""
    job = make_job(snippet, options)
    if job.patches is None:
        raise Failure(
            "this tinygrad is observed, without patches: --commits GOOD..BAD looks for a commit, --decisions for a"
            " decision of its scheduler"
        )
    search, outcomes = bisect_job(job, kind, runs)
    reduced = None
    if seconds is not None:
        from vmapdbg.commands.bisect_reduce import reduce_job

        reduced = reduce_job(job, kind, search, outcomes[0].run, seconds)
    if as_json:
        print_json(make_bisect_document(job.snippet, kind, search, outcomes, reduced))
    else:
        print_bisect(job.snippet, kind, search, outcomes, make_console())
    if reduced is not None:
        close_pager()
        write_reduced(reduced, output, as_json)
    return int(not search.is_uniform)


def bisect_job(job: Job, kind: str, budget: int) -> tuple[Search, list[Outcome]]:
    """Runs the job with sets of its patches and returns what changes its `kind` of outcome.

    The output of the snippet is not shown. Raises Failure if the snippet needs patches that cannot be switched.
    """
    given = job.patches or frozenset()
    sets = 2 ** len(given)
    # a search by halves ends its last round
    most = str(sets) if sets <= budget else f"about {budget}"
    say(f"running {job.snippet} up to {most} times, with all that it does")
    outcomes = Outcomes(kind, findings_of)
    with show_progress(f"bisecting {job.snippet}") as progress:
        count = count_runs(progress)

        def ask(sets: Sequence[Patches]) -> list[str]:
            runs = run_many([replace(job, patches=patches, values=True) for patches in sets], count)
            for run in runs:
                if run.capture is not None:
                    refuse_overlay_error(run.capture)
            return [outcomes.sort_in(run) for run in runs]

        search = search_patches(given, ask, budget)
    return search, outcomes.known


def write_reduced(reduced: Reduced, output: Path | None, as_json: bool) -> None:
    """Writes the reduced snippet to a file, or prints it unless it is part of the JSON."""
    if reduced.text is None:
        say(f"nothing was reduced: {reduced.reason}")
        return
    what = "reduced"
    if output is not None:
        write_output(output, reduced.text)
        what = f"wrote {output}"
    elif not as_json:
        click.echo("\n" + reduced.text, nl=False)
    counts = f"{reduced.before} nodes to {reduced.after}, {reduced.tried} graphs tried"
    say(f"{what}: {counts}")


# *** commits


def show_history(snippet: str | None, span: str, kind: str, options: JobOptions, as_json: bool) -> int:
    """Searches for the commit that changed the outcome and prints it. Returns the exit code."""
    if options.patches:
        raise Failure("--commits runs each commit as it is, without patches")
    history = search_history(replace(make_open_job(snippet, options), patches=None), span, kind)
    if as_json:
        print_json(history)
    else:
        print_history(history, make_console())
    return int(bool(history.suspects))


def search_history(job: Job, span: str, kind: str) -> History:
    """Finds the first commit of a span (`GOOD..BAD`) that changed the `kind` of outcome of a job.

    The commits are from the checkout of the job's tree, else of the working directory. Raises Failure if there is no
    such span, or if an end of it cannot be run.
    """
    top = repository_of(parse_name(job.tree or ".").path)
    line = list_span(top, span)
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
    tried = [commit for commit in search.commits if commit in search.outcomes]
    return History(
        schema=SCHEMA,
        kind="bisect-commits",
        snippet=job.snippet,
        by=kind,
        commits=len(search.commits) - 1,
        outcomes=_name_outcomes(outcomes.known),
        tried=tuple(CommitTrial(describe_commit(top, commit), search.outcomes[commit]) for commit in tried),
        suspects=tuple(describe_commit(top, commit) for commit in search.suspects),
        changes=compare_commits(search, runs, job),
    )


def compare_commits(search: CommitSearch, runs: dict[str, Run], job: Job) -> CaptureDiff | None:
    """Returns what the first commit with another outcome changed, None if no commit has one."""
    if search.first is None or search.before is None:
        return None
    return diff_captures(capture_of(runs[search.before], job), capture_of(runs[search.first], job), None)


def list_span(top: Path, span: str) -> list[str]:
    """Returns the commits of a span, the good commit first. Raises Failure."""
    good, dots, bad = span.partition("..")
    if not (good and dots) or bad.startswith("."):
        raise Failure(f"--commits takes GOOD..BAD, not {span}")
    commits = list_commits(top, good, bad or "HEAD")
    if not commits:
        raise Failure(f"no commit of {span} changes the package tinygrad")
    return [commit_of(top, good), *commits]


def run_commits(job: Job, top: Path, commits: Sequence[str]) -> dict[str, Run]:
    """Runs a job on some commits at the same time. A commit without a tree to run counts as a run that died."""
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
    """Returns the name of a run's outcome, None if the commit cannot be judged and is skipped.

    A snippet that fails before its first schedule says nothing about values, kernels or findings.
    """
    capture = run.capture
    failed_at_once = capture is None or (capture.error is not None and not capture.schedules)
    if failed_at_once and outcomes.kind != "crash":
        return None
    return outcomes.sort_in(run)


# *** decisions


def show_decisions(
    snippet: str | None, kind: str, budget: int, baseline: str | None, options: JobOptions, as_json: bool
) -> int:
    """Searches for decisions and prints them. Returns the exit code."""
    if baseline is not None and kind not in RIGHT_OR_WRONG:
        raise Failure("--baseline is what is right: with --decisions it is for --by values and --by crash")
    if is_saved(baseline):
        raise Failure("--baseline is run, for its values: a saved capture has none")
    job = make_job(snippet, options)
    if job.patches:
        raise Failure("--decisions is about tinygrad as it is: --tinygrad VERSION|PATH, or --patches none")
    document = search_decisions(replace(job, patches=None, values=True), kind, budget, baseline)
    if as_json:
        print_json(document)
    else:
        print_decisions(document, make_console())
    return int(bool(document.found))


@dataclass
class DecisionRunner:
    """Runs a job with sets of choices, and keeps the runs."""

    job: Job
    outcomes: Outcomes
    progress: Progress | None
    runs: dict[Choices, Run] = field(default_factory=dict[Choices, Run])

    def run(self, *sets: Choices) -> list[Run]:
        """Returns a run for each set; new sets run at the same time."""
        new = [choices for choices in sets if choices not in self.runs]
        jobs = [replace(self.job, choices=tuple(sorted(choices))) for choices in new]
        self.runs.update(zip(new, run_many(jobs, self._count), strict=True))
        return [self.runs[choices] for choices in sets]

    def ask(self, sets: Sequence[Choices]) -> list[str]:
        """Returns the name of the outcome of each set."""
        return [self.outcomes.sort_in(run) for run in self.run(*sets)]

    def _count(self) -> None:
        if self.progress is not None:
            self.progress(f"{len(self.runs)} runs and more")

    def run_reference(self, job: Job) -> Run:
        """Runs the job whose outcome is right, twice. Raises Failure if it fails or its two runs differ."""
        one, other = run_many([job, job])
        if describe_end(one) != RUNS_WELL:
            ended = describe_end(one)
            raise Failure(f"the reference for the right outcome fails ({ended}): choose another with --baseline")
        if self.outcomes.sort_in(one) != self.outcomes.sort_in(other):
            raise Failure("two runs of the same program differ: fix its seed (Tensor.manual_seed) first")
        return one


def search_decisions(job: Job, kind: str, budget: int, baseline: str | None) -> DecisionsDocument:
    """Runs the job with other decisions until the decisions that change its `kind` of outcome are found."""
    reference = None if baseline is None else baseline_of(job, baseline)
    say(f"running {job.snippet} up to about {budget} times, with all that it does")
    with show_progress(f"bisecting {job.snippet}") as progress:
        runner = DecisionRunner(job, Outcomes(kind, findings_of), progress)
        capture = capture_of(runner.run(NOTHING)[0], job)
        check_values(capture, kind)
        choices = frozenset(choice for schedule in capture.schedules for choice in list_forceable(schedule))
        label, right, found = None, None, None
        if kind not in RIGHT_OR_WRONG:
            given = runner.ask([NOTHING])[0]
            searcher = DecisionSearcher(capture, choices, runner.ask, budget - len(runner.runs))
            found = searcher.find_single(lambda outcome: outcome != given)
        else:
            label = ALL_FORCED if baseline is None else f"--baseline={baseline}"
            run = runner.run_reference(reference or replace(job, choices=tuple(sorted(choices))))
            if reference is None:
                runner.runs[choices] = run
            right = runner.outcomes.sort_in(run)
            given = runner.ask([NOTHING])[0]
            if given != right:
                choices, found = find_mending(runner, capture, choices, run, budget)
    return describe_search(runner, found, kind, label, right, given, len(choices))


def check_values(capture: Capture, kind: str) -> None:
    """Raises Failure if a snippet runs well but has no values to compare."""
    outputs = sum(len(schedule.outputs) for schedule in capture.schedules)
    if kind == "values" and capture.error is None and not outputs:
        raise Failure(
            f"{capture.snippet} realizes nothing: there are no values to compare (--by kernels, or .realize())"
        )


def find_mending(
    runner: DecisionRunner, capture: Capture, choices: Choices, right: Run, budget: int
) -> tuple[Choices, DecisionSearch]:
    """Searches for the decisions that make the outcome right. Returns the choices to force, and the search."""
    wanted = runner.outcomes.sort_in(right)
    wrong = None if right.capture is None else find_wrong_schedule(right.capture, capture)
    in_schedule = frozenset(choice for choice in choices if choice.schedule == wrong)
    if in_schedule and runner.ask([in_schedule])[0] == wanted:
        choices = in_schedule
    searcher = DecisionSearcher(capture, choices, runner.ask, budget - len(runner.runs))
    return choices, searcher.find_mending(lambda outcome: outcome == wanted)


def describe_search(
    runner: DecisionRunner,
    search: DecisionSearch | None,
    kind: str,
    reference: str | None,
    right: str | None,
    given: str,
    candidates: int,
) -> DecisionsDocument:
    """Returns the document about a search: the found decisions with the fewest kernels first. `search` is None if the
    outcome was right already."""
    runs, job = runner.runs, runner.job
    schedules = runs[NOTHING].schedules
    found = () if search is None else search.found
    best = sorted(found, key=lambda choices: (count_kernels(runs[choices].schedules), sorted(choices)))
    changes = None
    if best:
        changes = diff_captures(capture_of(runs[NOTHING], job), capture_of(runs[best[0]], job), None)

    def describe(choices: Choices) -> DecisionTrial:
        run = runs[choices]
        decided = describe_choices(choices, schedules, run.schedules)
        return DecisionTrial(decided, runner.ask([choices])[0], count_kernels(run.schedules))

    return DecisionsDocument(
        schema=SCHEMA,
        kind="bisect-decisions",
        snippet=job.snippet,
        by=kind,
        reference=reference,
        right=right,
        given=given,
        candidates=candidates,
        outcomes=_name_outcomes(runner.outcomes.known),
        found=tuple(map(describe, best)),
        complete=search is None or search.complete,
        tried=tuple(map(describe, runs)),
        changes=changes,
    )
