"""The searches of `vmapdbg bisect`: sets of patches, single decisions, commits."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import click

from vmapdbg.bisect import MEASURES
from vmapdbg.bisect.measure import COUNTED_RUNS, TIMED_RUNS, Measurements, measure
from vmapdbg.bisect.outcome import Outcomes, describe_end, find_wrong_schedule
from vmapdbg.bisect.search import Choices, DecisionSearcher, PatchSearcher, Reduced, list_forceable, search_commits
from vmapdbg.commands.bisect_reduce import choose_jobs, reduce_job
from vmapdbg.commands.shared import console, jobs
from vmapdbg.commands.shared.children import run_many, run_quietly
from vmapdbg.commands.shared.runs import baseline_of, run_in_turns
from vmapdbg.diff.captures import diff_captures
from vmapdbg.diff.result import CaptureDiff
from vmapdbg.install.job import Job, Run
from vmapdbg.install.patches import Patches
from vmapdbg.install.system import count_cores
from vmapdbg.install.trees import commit_of, describe_commit, list_commits, parse_name, repository_of
from vmapdbg.model.capture import SCHEMA
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import write_output
from vmapdbg.page import documents
from vmapdbg.page.text.bisect import print_bisect

V = TypeVar("V", str, Patches, Choices)


class Trials(Generic[V]):
    """Runs a job in variants (`job_of`), each once, and sorts the runs into outcomes by their `kind`."""

    def __init__(self, kind: str, job_of: Callable[[V], Job], progress: console.Progress) -> None:
        self.kind, self.job_of, self.progress = kind, job_of, progress
        self.outcomes = Outcomes(kind, jobs.add_findings)
        self.runs: dict[V, Run] = {}

    def run(self, variants: Sequence[V]) -> list[Run]:
        """Returns a run of each variant; new ones run at the same time."""
        new = [one for one in variants if one not in self.runs]
        self.runs.update(zip(new, run_many(list(map(self.job_of, new)), progress=self.progress), strict=True))
        return [self.runs[one] for one in variants]

    def ask(self, variants: Sequence[V]) -> list[str]:
        """Returns the name of the outcome of each variant."""
        runs = zip(self.run(variants), map(self.job_of, variants), strict=True)
        return [self.outcomes.sort_in(run, partial(run_quietly, job)) for run, job in runs]


def diff_runs(runs: Sequence[Run]) -> CaptureDiff:
    """Returns what differs between the schedules of two runs."""
    before, after = (jobs.add_findings(run.capture) for run in runs)
    return diff_captures(before, after, None)


# *** sets of patches

RIGHT_OR_WRONG = ("values", "crash")
"""For these kinds a right outcome is known; for the others, every change is looked for."""


def show_patches(job: Job, kind: str, budget: int, seconds: float | None, output: Path | None, as_json: bool) -> int:
    """Runs the job with sets of its patches, and prints what changes its `kind` of outcome. Returns the exit code. In
    at most `seconds`, reduces the snippet to `output` (None: stdout). Raises Failure if nothing is left to do."""
    if job.patches is None and kind not in RIGHT_OR_WRONG:
        why = f"the {kind} of one run differ from nothing"
        raise Failure(f"without patches, --reduce is for --by values and crash: {why}")
    if job.patches is None and seconds is None:
        raise Failure(
            "this tinygrad is observed, without patches: --commits GOOD..BAD looks for a commit, --decisions for a"
            " decision of its scheduler, --reduce for a smaller program with the same fault"
        )
    given = job.patches or frozenset[str]()
    # a search by halves ends its last round
    most = str(2 ** len(given)) if 2 ** len(given) <= budget else f"about {budget}"
    console.say(f"running {job.snippet} up to {most} times, with all that it does")
    with console.show_progress(f"bisecting {job.snippet}") as progress:
        judged = replace(job, values=True)
        # a tinygrad that is observed has no patches
        trials = Trials[Patches](kind, lambda patches: replace(judged, patches=job.patches and patches), progress)
        search = PatchSearcher(given, trials.ask, budget)
    reduced, interrupted = None, None
    if seconds is not None:
        chosen, error = choose_jobs(job, search), trials.runs[given].capture.error
        reduced, interrupted = reduce_job(chosen, kind, error, seconds, output)
    document = documents.BisectDocument(
        schema=SCHEMA,
        kind="bisect",
        snippet=job.snippet,
        on=kind,
        given=tuple(sorted(given)),
        outcomes=tuple(trials.outcomes.known),
        removed=search.removed,
        added=search.added,
        enough=search.enough,
        tried=tuple(documents.Trial(tuple(sorted(patches)), name) for patches, name in search.outcomes.items()),
        reduced=reduced,
    )
    if as_json or job.patches is not None:
        console.print_result(document, as_json, print_bisect)
    if reduced is not None:
        write_reduced(reduced, output, as_json)
    if interrupted is not None:
        raise interrupted
    return int(not search.is_uniform or (reduced is not None and reduced.is_lost))


def write_reduced(reduced: Reduced, output: Path | None, as_json: bool) -> None:
    """Writes the reduced snippet to a file, or prints it unless it is part of the JSON."""
    if reduced.text is None:
        console.say(f"nothing was reduced: {reduced.reason}")
        return
    if output is not None:
        write_output(output, reduced.text)
    elif not as_json:
        click.echo("\n" + reduced.text, nl=False)
    what = "reduced" if output is None else f"wrote {output}"
    console.say(f"{what}: {reduced.before} lines to {reduced.after}, {reduced.tried} programs tried")


# *** --decisions

ALL_FORCED = "the same with every node forced to be a buffer"
NOTHING: Choices = frozenset()


def search_decisions(job: Job, kind: str, budget: int, baseline: str | None) -> documents.DecisionsDocument:
    """Finds the decisions that change the job's `kind` of outcome: runs it with other decisions. Raises Failure."""
    if baseline is not None and kind not in RIGHT_OR_WRONG:
        raise Failure("--baseline is what is right: with --decisions it is for --by values and --by crash")
    if jobs.is_saved(baseline):
        raise Failure("--baseline is run, for its values: a saved capture has none")
    if job.patches:
        raise Failure("--decisions is about tinygrad as it is: --tinygrad VERSION|PATH, or --patches none")
    job = replace(job, patches=None, values=True)
    reference = None if baseline is None else baseline_of(job, baseline)
    console.say(f"running {job.snippet} up to about {budget} times, with all that it does")
    with console.show_progress(f"bisecting {job.snippet}") as progress:
        trials = Trials[Choices](kind, lambda choices: replace(job, choices=tuple(sorted(choices))), progress)
        capture = trials.run([NOTHING])[0].capture
        if kind == "values" and capture.error is None and not any(schedule.outputs for schedule in capture.schedules):
            no_values = "there are no values to compare (--by kernels, or .realize())"
            raise Failure(f"{capture.snippet} realizes nothing: {no_values}")
        choices = frozenset(choice for schedule in capture.schedules for choice in list_forceable(schedule))
        right, right_run, found, is_complete = None, None, list[Choices](), True
        if kind in RIGHT_OR_WRONG:
            chosen = reference or trials.job_of(choices)
            right_run = run_quietly(chosen)
            if right_run.capture.error is not None:
                ended = describe_end(right_run)
                raise Failure(f"the reference for the right outcome fails ({ended}): choose another with --baseline")
            right = trials.outcomes.sort_in(right_run, partial(run_quietly, chosen))
            if reference is None:
                trials.runs[choices] = right_run
        (given,) = trials.ask([NOTHING])
        if right_run is None:
            searcher = DecisionSearcher(capture, choices, trials.ask, budget - len(trials.runs))
            found, is_complete = searcher.find_single(lambda outcome: outcome != given)
        elif given != right:
            wrong = find_wrong_schedule(right_run.capture, capture)
            in_schedule = frozenset(choice for choice in choices if choice.schedule == wrong)
            if in_schedule and trials.ask([in_schedule]) == [right]:
                choices = in_schedule
            searcher = DecisionSearcher(capture, choices, trials.ask, budget - len(trials.runs))
            found, is_complete = searcher.find_mending(lambda outcome: outcome == right)
    made = {choices: run.capture for choices, run in trials.runs.items()}
    best = sorted(found, key=lambda choices: (len(made[choices].kernels), sorted(choices)))

    def describe(choices: Choices) -> documents.DecisionTrial:
        decided = documents.describe_choices(choices, capture.schedules, made[choices].schedules)
        return documents.DecisionTrial(decided, trials.ask([choices])[0], len(made[choices].kernels))

    return documents.DecisionsDocument(
        schema=SCHEMA,
        kind="bisect-decisions",
        snippet=job.snippet,
        by=kind,
        reference=right and (ALL_FORCED if baseline is None else f"--baseline={baseline}"),
        right=right,
        given=given,
        candidates=len(choices),
        outcomes=tuple(trials.outcomes.known),
        found=tuple(map(describe, best)),
        complete=is_complete,
        tried=tuple(map(describe, made)),
        changes=diff_runs(trials.run([NOTHING, best[0]])) if best else None,
    )


# *** --commits


def search_history(job: Job, span: str, kind: str) -> documents.History:
    """Returns the first commit of a span (`GOOD..BAD`, in the checkout of the job's tree, else of the working
    directory) that changed the `kind` of outcome. Raises Failure for a wrong span or end."""
    top = repository_of(parse_name(job.tree or ".").path)
    line = list_span(top, span)
    with console.show_progress(f"bisecting {job.snippet}") as progress:
        trials = CommitTrials(job, top, kind, progress)
        measured = trials.measurements
        try:
            outcomes, step = search_commits(line, trials.name_outcomes, trials.width)
        except ValueError as end:
            ended = describe_end(trials.runs[str(end)])
            raise Failure(f"{str(end)[:12]} is an end of {span}, and cannot be run: {ended}") from None
        suspects, changes = list[str](), None
        if step is not None and (measured is None or measured.differ(*step)):
            suspects = line[line.index(step[0]) + 1 : line.index(step[1]) + 1]
            # of runs for memory nothing was recorded
            again = [replace(trials.job_of(commit), measured="") for commit in step]
            changes = diff_runs(run_many(again) if kind == "memory" else trials.run(step))
    numbers = measured.numbers if measured else {}
    run = [commit for commit in line if commit in outcomes]
    tried = [documents.CommitTrial(describe_commit(top, one), outcomes[one], numbers.get(one)) for one in run]
    return documents.History(
        schema=SCHEMA,
        kind="bisect-commits",
        snippet=job.snippet,
        by=kind,
        commits=len(line) - 1,
        outcomes=tuple(trials.outcomes.known),
        tried=tuple(tried),
        suspects=tuple(describe_commit(top, commit) for commit in suspects),
        changes=changes,
        floor=measured and measured.floor,
    )


class CommitTrials(Trials[str]):
    """Runs a job on `width` commits at once. A measured commit counts as the end with the nearer number."""

    def __init__(self, job: Job, top: Path, kind: str, progress: console.Progress) -> None:
        self.measurements = Measurements() if kind in MEASURES else None
        self.width = 1 if kind == "time" else count_cores()  # nothing runs beside a timed commit
        job = replace(job, patches=None, values=kind not in MEASURES, times=kind == "time")
        job = replace(job, measured=kind if kind in MEASURES else "")
        super().__init__(kind, lambda commit: replace(job, tree=f"{top}@{commit}"), progress)

    def name_outcomes(self, commits: Sequence[str]) -> list[str | None]:
        """Returns the outcome of each commit, None to skip it: the snippet failed before its first schedule."""
        if self.measurements is None:
            captures = [run.capture for run in self.run(commits)]
            named = [self.kind == "crash" or one.error is None or bool(one.schedules) for one in captures]
            return [self.ask([one])[0] if is_named else None for one, is_named in zip(commits, named, strict=True)]
        # the ends, which are asked for first, are counted twice
        turns = TIMED_RUNS if self.kind == "time" else 1 if self.runs else COUNTED_RUNS
        found = run_in_turns(list(map(self.job_of, commits)), turns, self.progress, self.width)
        for commit, runs in zip(commits, found, strict=True):
            self.runs[commit] = runs[-1]
            self.measurements.add(commit, [measure(self.kind, run) for run in runs])
        return list(map(self.measurements.name, commits))


def list_span(top: Path, span: str) -> list[str]:
    """Returns the commits of a span, the good commit first. Raises Failure."""
    good, dots, bad = span.partition("..")
    if not (good and dots) or bad.startswith("."):
        raise Failure(f"--commits takes GOOD..BAD, not {span}")
    commits = list_commits(top, good, bad or "HEAD")
    if not commits:
        raise Failure(f"no commit of {span} changes the package tinygrad")
    return [commit_of(top, good), *commits]
