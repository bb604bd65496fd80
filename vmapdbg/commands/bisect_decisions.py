"""`vmapdbg bisect --decisions`: searches for decisions of the scheduler that change the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from vmapdbg.bisect.decisions import Choices, DecisionSearch, DecisionSearcher, list_forceable
from vmapdbg.bisect.outcome import RUNS_WELL, Outcomes, describe_end, find_wrong_schedule
from vmapdbg.commands.shared import console, jobs
from vmapdbg.commands.shared.children import run_many
from vmapdbg.commands.shared.runs import baseline_of
from vmapdbg.diff import diff_captures
from vmapdbg.install.job import Job, Run
from vmapdbg.model.capture import SCHEMA, Capture
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import count_kernels
from vmapdbg.page.documents import DecisionsDocument, DecisionTrial, describe_choices, name_outcomes
from vmapdbg.page.text.bisect import print_decisions

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
    if as_json:
        console.print_json(document)
    else:
        print_decisions(document, console.make_console())
    return int(bool(document.found))


@dataclass
class DecisionRunner:
    """Runs a job with sets of choices, and keeps the runs."""

    job: Job
    outcomes: Outcomes
    progress: console.Progress
    runs: dict[Choices, Run] = field(default_factory=dict[Choices, Run])

    def run(self, sets: Sequence[Choices]) -> list[Run]:
        """Returns a run for each set; new sets run at the same time."""
        new = [choices for choices in sets if choices not in self.runs]
        chosen = [replace(self.job, choices=tuple(sorted(choices))) for choices in new]
        runs = run_many(chosen, lambda: self.progress(f"{len(self.runs)} runs and more"))
        self.runs.update(zip(new, runs, strict=True))
        return [self.runs[choices] for choices in sets]

    def ask(self, sets: Sequence[Choices]) -> list[str]:
        """Returns the name of the outcome of each set."""
        return [self.outcomes.sort_in(run) for run in self.run(sets)]

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
    console.say(f"running {job.snippet} up to about {budget} times, with all that it does")
    with console.show_progress(f"bisecting {job.snippet}") as progress:
        runner = DecisionRunner(job, Outcomes(kind, jobs.findings_of), progress)
        capture = runner.run([NOTHING])[0].capture
        if kind == "values" and capture.error is None and not any(schedule.outputs for schedule in capture.schedules):
            no_values = "there are no values to compare (--by kernels, or .realize())"
            raise Failure(f"{capture.snippet} realizes nothing: {no_values}")
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


def find_mending(
    runner: DecisionRunner, capture: Capture, choices: Choices, right: Run, budget: int
) -> tuple[Choices, DecisionSearch]:
    """Searches for the decisions that make the outcome right. Returns the choices to force, and the search."""
    wanted = runner.outcomes.sort_in(right)
    wrong = find_wrong_schedule(right.capture, capture)
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
    schedules = runs[NOTHING].capture.schedules
    found = () if search is None else search.found
    best = sorted(found, key=lambda choices: (count_kernels(runs[choices].capture.schedules), sorted(choices)))
    changes = None
    if best:
        before, after = (jobs.add_findings(runs[choices].capture) for choices in (NOTHING, best[0]))
        changes = diff_captures(before, after, None)

    def describe(choices: Choices) -> DecisionTrial:
        run = runs[choices]
        decided = describe_choices(choices, schedules, run.capture.schedules)
        return DecisionTrial(decided, runner.ask([choices])[0], count_kernels(run.capture.schedules))

    return DecisionsDocument(
        schema=SCHEMA,
        kind="bisect-decisions",
        snippet=job.snippet,
        by=kind,
        reference=reference,
        right=right,
        given=given,
        candidates=candidates,
        outcomes=name_outcomes(runner.outcomes.known),
        found=tuple(map(describe, best)),
        complete=search is None or search.complete,
        tried=tuple(map(describe, runs)),
        changes=changes,
    )
