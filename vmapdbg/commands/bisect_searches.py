"""The searches of `vmapdbg bisect`: sets of patches, single decisions, commits. With --reduce, a child reduces the
graph of the snippet."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import click

from vmapdbg.bisect import MEASURES
from vmapdbg.bisect.measure import COUNTED_RUNS, TIMED_RUNS, Measurements, measure
from vmapdbg.bisect.outcome import RUNS_WELL, Outcomes, describe_end, find_wrong_schedule
from vmapdbg.bisect.search import (
    Choices,
    DecisionSearch,
    DecisionSearcher,
    Reduced,
    Search,
    list_forceable,
    search_commits,
    search_patches,
)
from vmapdbg.commands.check import check_job
from vmapdbg.commands.shared import console, jobs
from vmapdbg.commands.shared.children import ask_child, run_job, run_many, run_quietly
from vmapdbg.commands.shared.runs import baseline_of, run_in_turns
from vmapdbg.diff.captures import diff_captures
from vmapdbg.diff.result import CaptureDiff
from vmapdbg.diff.values import estimate_terms
from vmapdbg.install.job import GRAPHS_ARE_REDUCED, Job, ReduceRequest, Run
from vmapdbg.install.patches import Patches, spell_patches
from vmapdbg.install.trees import commit_of, describe_commit, list_commits, parse_name, repository_of
from vmapdbg.model.capture import SCHEMA
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import count_kernels
from vmapdbg.model.store import write_output
from vmapdbg.model.wording import format_known
from vmapdbg.page import documents
from vmapdbg.page.text.bisect import print_bisect, print_decisions, print_history

_HANG = 20.0
"""A graph hangs if it runs for this many seconds; --timeout replaces it."""


K = TypeVar("K", str, Choices)


class Trials(Generic[K]):
    """Runs a job in several ways, each once, and sorts the runs into outcomes by their `kind`. `job_of` returns the job
    of a way; `done` is called after each run."""

    def __init__(self, kind: str, job_of: Callable[[K], Job], done: Callable[[], object] = lambda: None) -> None:
        self.outcomes = Outcomes(kind, jobs.findings_of)
        self.job_of, self.done = job_of, done
        self.runs: dict[K, Run] = {}

    def run(self, ways: Sequence[K]) -> list[Run]:
        """Returns a run for each way; new ways run at the same time."""
        new = [way for way in ways if way not in self.runs]
        self.runs.update(zip(new, run_many(list(map(self.job_of, new)), self.done), strict=True))
        return [self.runs[way] for way in ways]

    def ask(self, ways: Sequence[K]) -> list[str]:
        """Returns the name of the outcome of each way."""
        runs = zip(self.run(ways), map(self.job_of, ways), strict=True)
        return [self.outcomes.sort_in(run, partial(run_quietly, job)) for run, job in runs]


def diff_runs(runs: Sequence[Run]) -> CaptureDiff:
    """Returns what differs between the schedules of two runs."""
    before, after = (jobs.add_findings(run.capture) for run in runs)
    return diff_captures(before, after, None)


def show_patches(job: Job, kind: str, budget: int, seconds: float | None, output: Path | None, as_json: bool) -> int:
    """Runs the job with sets of its patches, and prints what changes its `kind` of outcome. Returns the exit code. With
    `seconds` the snippet is reduced for at most this long, and written to `output` (None: stdout). A tinygrad as it is
    has no patches: then the snippet is only reduced. Raises Failure if nothing is left to do."""
    given = job.patches or frozenset[str]()
    if job.patches is None and kind == "kernels":
        raise Failure(
            "without patches, --reduce is for --by values and crash: the kernels of one run differ from nothing"
        )
    if job.patches is None and seconds is None:
        raise Failure(
            "this tinygrad is observed, without patches: --commits GOOD..BAD looks for a commit, --decisions for a"
            " decision of its scheduler, --reduce for a smaller program with the same fault"
        )
    sets = 2 ** len(given)
    # a search by halves ends its last round
    most = str(sets) if sets <= budget else f"about {budget}"
    console.say(f"running {job.snippet} up to {most} times, with all that it does")
    outcomes = Outcomes(kind, jobs.findings_of)
    with console.show_progress(f"bisecting {job.snippet}") as progress:
        count = console.count_runs(progress)

        def ask(sets: Sequence[Patches]) -> list[str]:
            # a tinygrad that is observed has no patches
            tried = [replace(job, values=True, patches=job.patches and patches) for patches in sets]
            runs = run_many(tried, count)
            return [outcomes.sort_in(run, partial(run_quietly, one)) for one, run in zip(tried, runs, strict=True)]

        search = search_patches(given, ask, budget)
    reduced = None
    if seconds is not None:
        reduced = reduce_job(job, kind, search, describe_end(outcomes.runs[0]), seconds)
    if as_json:
        document = documents.BisectDocument(
            schema=SCHEMA,
            kind="bisect",
            snippet=job.snippet,
            on=kind,
            given=tuple(sorted(search.given)),
            outcomes=tuple(outcomes.known),
            removed=search.removed,
            added=search.added,
            enough=search.enough,
            tried=tuple(documents.Trial(tuple(sorted(patches)), name) for patches, name in search.outcomes.items()),
            reduced=reduced,
        )
        console.print_json(document)
    elif job.patches is not None:
        print_bisect(job.snippet, kind, search, outcomes.known, console.make_console())
    if reduced is not None:
        write_reduced(reduced, output, as_json)
    return int(not search.is_uniform or (reduced is not None and reduced.is_lost))


def write_reduced(reduced: Reduced, output: Path | None, as_json: bool) -> None:
    """Writes the reduced snippet to a file, or prints it unless it is part of the JSON."""
    if reduced.text is None:
        console.say(f"nothing was reduced: {reduced.reason}")
        return
    what = "reduced"
    if output is not None:
        write_output(output, reduced.text)
        what = f"wrote {output}"
    elif not as_json:
        click.echo("\n" + reduced.text, nl=False)
    console.say(f"{what}: {reduced.before} nodes to {reduced.after}, {reduced.tried} graphs tried")


# *** --reduce


def reduce_job(job: Job, kind: str, search: Search, end: str, seconds: float) -> Reduced:
    """Makes the graph of the snippet smaller while two sets of patches still give different outcomes. If all sets of
    the search have the same outcome, and the run ends with `end`, the smaller graph keeps that fault."""
    other = None
    if not search.is_uniform:
        # two sets of patches that differ as little as the search found
        if search.removed.sets:
            patches = search.given, search.given.difference(search.removed.sets[0])
        else:
            patches = frozenset(search.added.sets[0]), frozenset[str]()
        job, other = (replace(job, patches=one) for one in patches)
        names = " and ".join(f"--patches {spell_patches(one)}" for one in patches)
        differ = "How it ends differs" if kind == "crash" else f"Its {kind} differ"
        fault = f"{differ} with {names}."
    elif end != RUNS_WELL:
        fault = f"It ends with {end.partition(':')[0]}{_name_tried(job)}."
    elif kind == "values":
        fault = f"Its values are not those of the numpy reference{_name_tried(job)}."
    else:
        return Reduced(None, f"all sets of patches are alike by {kind}")
    # the child fills in the counts
    head = f"Reduced from {job.snippet}, schedule {{schedule}}: {{before}} nodes to {{after}}, {{tried}} graphs tried."
    with tempfile.TemporaryDirectory(prefix="vmapdbg-") as evidence:
        (Path(evidence) / GRAPHS_ARE_REDUCED).touch()
        capture = run_job(job, subprocess.DEVNULL, subprocess.DEVNULL, evidence)
        request = ReduceRequest(
            job=job,
            other=other,
            evidence=evidence,
            by=kind,
            seconds=seconds,
            hang=job.timeout or _HANG,
            comment=f"{head}\n{fault}",
            # values must differ as much as in the search, which compares whole schedules
            terms=tuple(estimate_terms(capture.schedules)),
        )
        with console.show_progress(f"reducing {job.snippet}") as progress:
            text, _ = ask_child(request, None, "the reduction", None, progress)
        found = json.loads(text)
        if "text" not in found:
            is_lost = found.get("is_lost") or other is not None or end != RUNS_WELL or has_wrong_values(job)
            return Reduced(None, found["reason"], is_lost=is_lost)
        file = Path(evidence) / "reduced.py"
        file.write_text(found["text"], encoding="utf-8")
        if not shows_fault(file, job, other, kind, end):
            return Reduced(None, "the reduced graph shows it, but the file written from it does not", is_lost=True)
        return Reduced(reason=None, **found)


def _name_tried(job: Job) -> str:
    if job.patches is not None:
        return ", with each set of patches that was tried"
    return f" on tinygrad {job.tree}" if job.tree else ", on tinygrad as it is"


def shows_fault(file: Path, job: Job, other: Job | None, kind: str, end: str) -> bool:
    """Tells whether a snippet has different outcomes with the patches of two jobs. Without the other job, whether it
    ends with an error of the same type, or if it should run, has wrong values."""
    chosen = [job] if other is None else [job, other]
    chosen = [replace(one, snippet=str(file), arguments=(), values=other is not None) for one in chosen]
    runs = run_many(chosen)
    if other is not None:
        outcomes = Outcomes(kind, jobs.findings_of)
        return len(set(map(outcomes.sort_in, runs))) > 1
    new_end = describe_end(runs[0])
    if end != RUNS_WELL or new_end != RUNS_WELL:
        return new_end.partition(":")[0] == end.partition(":")[0]
    return has_wrong_values(chosen[0])


def has_wrong_values(job: Job) -> bool:
    _, report, _ = check_job(job)
    return any(check.wrong for check in report.schedules)


# *** --decisions

# for these kinds a right outcome is known; for the others, every change is looked for
RIGHT_OR_WRONG = ("values", "crash")
ALL_FORCED = "the same with every node forced to be a buffer"

NOTHING: Choices = frozenset()


def show_decisions(job: Job, kind: str, budget: int, baseline: str | None, as_json: bool) -> int:
    """Searches for decisions and prints them. Returns the exit code."""
    if baseline is not None and kind not in RIGHT_OR_WRONG:
        raise Failure("--baseline is what is right: with --decisions it is for --by values and --by crash")
    if jobs.is_saved(baseline):
        raise Failure("--baseline is run, for its values: a saved capture has none")
    if job.patches:
        raise Failure("--decisions is about tinygrad as it is: --tinygrad VERSION|PATH, or --patches none")
    document = search_decisions(replace(job, patches=None, values=True), kind, budget, baseline)
    console.print_result(document, as_json, print_decisions)
    return int(bool(document.found))


def search_decisions(job: Job, kind: str, budget: int, baseline: str | None) -> documents.DecisionsDocument:
    """Runs the job with other decisions until the decisions that change its `kind` of outcome are found."""
    reference = None if baseline is None else baseline_of(job, baseline)
    console.say(f"running {job.snippet} up to about {budget} times, with all that it does")
    with console.show_progress(f"bisecting {job.snippet}") as progress:
        trials = Trials[Choices](
            kind, lambda choices: replace(job, choices=tuple(sorted(choices))), console.count_runs(progress)
        )
        capture = trials.run([NOTHING])[0].capture
        if kind == "values" and capture.error is None and not any(schedule.outputs for schedule in capture.schedules):
            no_values = "there are no values to compare (--by kernels, or .realize())"
            raise Failure(f"{capture.snippet} realizes nothing: {no_values}")
        choices = frozenset(choice for schedule in capture.schedules for choice in list_forceable(schedule))
        label, right, found = None, None, None
        if kind not in RIGHT_OR_WRONG:
            given = trials.ask([NOTHING])[0]
            searcher = DecisionSearcher(capture, choices, trials.ask, budget - len(trials.runs))
            found = searcher.find_single(lambda outcome: outcome != given)
        else:
            label = ALL_FORCED if baseline is None else f"--baseline={baseline}"
            run = run_reference(reference or trials.job_of(choices), trials.outcomes)
            if reference is None:
                trials.runs[choices] = run
            right = trials.outcomes.sort_in(run)
            given = trials.ask([NOTHING])[0]
            if given != right:
                wrong = find_wrong_schedule(run.capture, capture)
                in_schedule = frozenset(choice for choice in choices if choice.schedule == wrong)
                if in_schedule and trials.ask([in_schedule])[0] == right:
                    choices = in_schedule
                searcher = DecisionSearcher(capture, choices, trials.ask, budget - len(trials.runs))
                found = searcher.find_mending(lambda outcome: outcome == right)
    candidates = len(choices)
    return describe_search(trials, found, by=kind, reference=label, right=right, given=given, candidates=candidates)


def run_reference(job: Job, outcomes: Outcomes) -> Run:
    """Runs the job whose outcome is right, twice. Raises Failure if it fails or its two runs have nothing in common."""
    one, other = run_many([job, job])
    ended = describe_end(one)
    if ended != RUNS_WELL:
        raise Failure(f"the reference for the right outcome fails ({ended}): choose another with --baseline")
    for run in (one, other):
        outcomes.sort_in(run, lambda: other)
    return one


def describe_search(
    trials: Trials[Choices], search: DecisionSearch | None, **facts: Any
) -> documents.DecisionsDocument:
    """Returns the document about a search: the found decisions with the fewest kernels first. `search` is None if the
    outcome was right already; `facts` are the other fields of the document."""
    schedules = {choices: run.capture.schedules for choices, run in trials.runs.items()}
    found = () if search is None else search.found
    best = sorted(found, key=lambda choices: (count_kernels(schedules[choices]), sorted(choices)))

    def describe(choices: Choices) -> documents.DecisionTrial:
        decided = documents.describe_choices(choices, schedules[NOTHING], schedules[choices])
        return documents.DecisionTrial(decided, trials.ask([choices])[0], count_kernels(schedules[choices]))

    return documents.DecisionsDocument(
        schema=SCHEMA,
        kind="bisect-decisions",
        snippet=trials.job_of(NOTHING).snippet,
        outcomes=tuple(trials.outcomes.known),
        found=tuple(map(describe, best)),
        complete=search is None or search.complete,
        tried=tuple(map(describe, schedules)),
        changes=diff_runs(trials.run([NOTHING, best[0]])) if best else None,
        **facts,
    )


# *** --commits


def show_history(job: Job, span: str, kind: str, as_json: bool) -> int:
    """Prints the first commit of a span (`GOOD..BAD`) that changed the `kind` of outcome of a job. Returns the exit
    code.

    The commits are from the checkout of the job's tree, else of the working directory. Raises Failure if there is no
    such span, or if an end of it cannot be run.
    """
    top = repository_of(parse_name(job.tree or ".").path)
    line = list_span(top, span)
    with console.show_progress(f"bisecting {job.snippet}") as progress:
        trials = CommitTrials(job, top, kind, len(line), progress)
        measured = trials.measurements
        try:
            search = search_commits(line, trials.name_outcomes, trials.width)
        except ValueError as end:
            commit = str(end)
            ended = describe_end(trials.runs[commit])
            raise Failure(f"{commit[:12]} is an end of {span}, and cannot be run: {ended}") from None
        if measured is not None and search.step is not None and not measured.differ(*search.step):
            search = replace(search, suspects=())
        changes = None
        if search.step is not None:
            # of runs for memory nothing was recorded
            again = [replace(trials.job_of(commit), measured="") for commit in search.step]
            changes = diff_runs(run_many(again) if kind == "memory" else trials.run(search.step))
    history = documents.History(
        schema=SCHEMA,
        kind="bisect-commits",
        snippet=job.snippet,
        by=kind,
        commits=len(line) - 1,
        outcomes=tuple(trials.outcomes.known),
        tried=tuple(
            documents.CommitTrial(
                describe_commit(top, commit), search.outcomes[commit], measured and measured.numbers.get(commit)
            )
            for commit in line
            if commit in search.outcomes
        ),
        suspects=tuple(describe_commit(top, commit) for commit in search.suspects),
        changes=changes,
        floor=measured and measured.floor,
    )
    console.print_result(history, as_json, print_history)
    return int(bool(history.suspects))


class CommitTrials(Trials[str]):
    """Runs a job on commits, and names their outcomes. By a kind of `MEASURES`, each is measured instead, and is as the
    first or as the last commit, whichever is nearer."""

    def __init__(self, job: Job, top: Path, kind: str, total: int, progress: console.Progress) -> None:
        self.kind, self.total, self.progress = kind, total, progress
        self.measurements = Measurements() if kind in MEASURES else None
        # nothing runs beside a commit that is timed
        self.width = 1 if kind == "time" else os.cpu_count() or 1
        job = replace(job, patches=None, values=kind not in MEASURES, times=kind == "time")
        job = replace(job, measured=kind if kind in MEASURES else "")
        super().__init__(kind, lambda commit: replace(job, tree=f"{top}@{commit}"))

    def report(self, commits: Sequence[str], turn: str = "") -> None:
        names = " ".join(commit[:9] for commit in commits)
        self.progress(f"{len(self.runs)} of {self.total} commits tried, now {names}{format_known(', {}', turn)}")

    def name_outcomes(self, commits: Sequence[str]) -> list[str | None]:
        """Returns the name of the outcome of each commit, None if it has none: then it is skipped.

        A snippet that fails before its first schedule says nothing about values, kernels or findings.
        """
        self.report(commits)
        if self.measurements is not None:
            self._measure(commits, self.measurements)
            return list(map(self.measurements.name, commits))
        names: list[str | None] = []
        for commit, run in zip(commits, self.run(commits), strict=True):
            failed_at_once = run.capture.error is not None and not run.capture.schedules
            names.append(None if failed_at_once and self.kind != "crash" else self.ask([commit])[0])
        return names

    def _measure(self, commits: Sequence[str], measurements: Measurements) -> None:
        """Times commits several times, in turns; counts the ends, which are asked for first, twice."""
        chosen = list(map(self.job_of, commits))
        if self.kind == "time":
            found = run_in_turns(chosen, TIMED_RUNS, lambda turn: self.report(commits, turn))
        else:
            ran = run_many(chosen * (1 if self.runs else COUNTED_RUNS))
            found = [ran[i :: len(chosen)] for i in range(len(chosen))]
        for commit, runs in zip(commits, found, strict=True):
            self.runs[commit] = runs[-1]
            measurements.add(commit, [measure(self.kind, run) for run in runs])


def list_span(top: Path, span: str) -> list[str]:
    """Returns the commits of a span, the good commit first. Raises Failure."""
    good, dots, bad = span.partition("..")
    if not (good and dots) or bad.startswith("."):
        raise Failure(f"--commits takes GOOD..BAD, not {span}")
    commits = list_commits(top, good, bad or "HEAD")
    if not commits:
        raise Failure(f"no commit of {span} changes the package tinygrad")
    return [commit_of(top, good), *commits]
