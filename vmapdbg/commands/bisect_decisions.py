"""`vmapdbg bisect --decisions`: runs the snippet with single decisions of the scheduler made otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vmapdbg.bisect.decisions import Choices, DecisionSearch, DecisionSearcher, list_forceable
from vmapdbg.bisect.outcome import Outcomes, describe_end, find_wrong_schedule
from vmapdbg.commands.shared.children import run_many
from vmapdbg.commands.shared.console import Progress, make_console, print_json, say, show_progress
from vmapdbg.commands.shared.jobs import findings_of, is_saved, make_job
from vmapdbg.commands.shared.options import JobOptions
from vmapdbg.commands.shared.runs import baseline_of, capture_of
from vmapdbg.install.job import Job, Run
from vmapdbg.model.capture import SCHEMA, Capture
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import count_kernels

if TYPE_CHECKING:
    from vmapdbg.diff import CaptureDiff
    from vmapdbg.page.documents import DecisionsDocument

# of these it is known what is right; of the others, which decisions change them
RIGHT_OR_WRONG = ("values", "crash")
ALL_FORCED = "the same with every node forced to be a buffer"

NOTHING: Choices = frozenset()


@dataclass
class Runner:
    """Runs a job with sets of choices; `runs` has what came of each."""

    job: Job
    outcomes: Outcomes
    progress: Progress | None
    runs: dict[Choices, Run] = field(default_factory=dict[Choices, Run])

    def run(self, *sets: Choices) -> list[Run]:
        """Runs those that are new, at the same time."""
        new = [choices for choices in sets if choices not in self.runs]
        jobs = [replace(self.job, choices=tuple(sorted(choices))) for choices in new]
        self.runs.update(zip(new, run_many(jobs, self._count), strict=True))
        return [self.runs[choices] for choices in sets]

    def ask(self, sets: Sequence[Choices]) -> list[str]:
        return [self.outcomes.sort_in(run) for run in self.run(*sets)]

    def _count(self) -> None:
        if self.progress is not None:
            self.progress(f"{len(self.runs)} runs and more")


@dataclass(frozen=True)
class DecisionsFound:
    """What was found about a job. `reference` says what is taken for right, and `right` is the name of its outcome;
    both are None where it is not known what is right. `given` is the outcome as it is. `search` is None where there
    was nothing to look for."""

    reference: str | None
    right: str | None
    given: str
    candidates: int
    search: DecisionSearch | None
    runner: Runner


def show_decisions(
    snippet: str | None, kind: str, budget: int, baseline: str | None, options: JobOptions, as_json: bool
) -> int:
    """Looks for decisions and prints what was found. Returns the exit code."""
    if baseline is not None and kind not in RIGHT_OR_WRONG:
        raise Failure("--baseline is what is right: with --decisions it is for --by values and --by crash")
    if is_saved(baseline):
        raise Failure("--baseline is run, for its values: a saved capture has none")
    job = find_observed(snippet, options)
    found = find_decisions(job, kind, budget, baseline)
    changes = compare_best(found, job)
    document = describe_decisions(found, job.snippet, kind, changes)
    if as_json:
        print_json(document)
    else:
        from vmapdbg.page.text.bisect_decisions import print_decisions

        print_decisions(document, make_console())
    return int(bool(document.found))


def find_observed(snippet: str | None, options: JobOptions) -> Job:
    """Returns the job, observed and with its values read. Raises Failure where it is to have patches."""
    job = make_job(snippet, options)
    if job.patches:
        raise Failure("--decisions is about tinygrad as it is: --tinygrad VERSION|PATH, or --patches none")
    return replace(job, patches=None, values=True)


def find_decisions(job: Job, kind: str, budget: int, baseline: str | None) -> DecisionsFound:
    """Runs the job with other decisions until it is found which of them matter to its `kind` of outcome."""
    reference = None if baseline is None else baseline_of(job, baseline)
    say(f"running {job.snippet} up to about {budget} times, with all that it does")
    with show_progress(f"bisecting {job.snippet}") as progress:
        runner = Runner(job, Outcomes(kind, findings_of), progress)
        capture = capture_of(runner.run(NOTHING)[0], job)
        check_values(capture, kind)
        choices = frozenset(choice for schedule in capture.schedules for choice in list_forceable(schedule))
        if kind not in RIGHT_OR_WRONG:
            given = runner.ask([NOTHING])[0]
            searcher = DecisionSearcher(capture, choices, runner.ask, budget - len(runner.runs))
            found = searcher.find_single(lambda outcome: outcome != given)
            return DecisionsFound(None, None, given, len(choices), found, runner)
        if reference is None:
            right = run_reference(replace(job, choices=tuple(sorted(choices))), runner)
            runner.runs[choices] = right
        else:
            right = run_reference(reference, runner)
        return find_mending(runner, capture, choices, right, budget, baseline)


def check_values(capture: Capture, kind: str) -> None:
    """Raises Failure where a snippet runs well and has no values to compare."""
    outputs = sum(len(schedule.outputs) for schedule in capture.schedules)
    if kind == "values" and capture.error is None and not outputs:
        raise Failure(
            f"{capture.snippet} realizes nothing: there are no values to compare (--by kernels, or .realize())"
        )


def run_reference(job: Job, runner: Runner) -> Run:
    """Runs what is taken for right, twice. Raises Failure where it fails or comes out differently."""
    one, other = run_many([job, job])
    if describe_end(one) != "it runs":
        raise Failure(f"what is taken for right fails ({describe_end(one)}): name something that runs with --baseline")
    if runner.outcomes.sort_in(one) != runner.outcomes.sort_in(other):
        raise Failure("two runs of the same program differ: fix its seed (Tensor.manual_seed) first")
    return one


def find_mending(
    runner: Runner, capture: Capture, choices: Choices, right: Run, budget: int, baseline: str | None
) -> DecisionsFound:
    """Looks for the decisions that make the outcome that of the run that is right."""
    reference = f"--baseline={baseline}" if baseline is not None else ALL_FORCED
    wanted = runner.outcomes.sort_in(right)
    given = runner.ask([NOTHING])[0]
    if given == wanted:
        return DecisionsFound(reference, wanted, given, len(choices), None, runner)
    wrong = None if right.capture is None else find_wrong_schedule(right.capture, capture)
    there = frozenset(choice for choice in choices if choice.schedule == wrong)
    if there and runner.ask([there])[0] == wanted:
        choices = there
    searcher = DecisionSearcher(capture, choices, runner.ask, budget - len(runner.runs))
    found = searcher.find_mending(lambda outcome: outcome == wanted)
    return DecisionsFound(reference, wanted, given, len(choices), found, runner)


# *** what is shown


def sort_found(found: DecisionsFound) -> list[Choices]:
    """Returns what was found, that with the fewest kernels first."""
    sets = () if found.search is None else found.search.found
    return sorted(sets, key=lambda choices: (count_kernels(found.runner.runs[choices].schedules), sorted(choices)))


def compare_best(found: DecisionsFound, job: Job) -> CaptureDiff | None:
    """Returns what the first of the decisions that were found changes, None where there is none."""
    best = sort_found(found)
    if not best:
        return None
    from vmapdbg.diff import diff_captures

    without, made = found.runner.runs[NOTHING], found.runner.runs[best[0]]
    return diff_captures(capture_of(without, job), capture_of(made, job), None)


def describe_decisions(
    found: DecisionsFound, snippet: str, kind: str, changes: CaptureDiff | None
) -> DecisionsDocument:
    """Returns the document about a search."""
    from vmapdbg.page.documents import DecisionsDocument, DecisionTrial, NamedOutcome, describe_choices

    runner = found.runner
    schedules = runner.runs[NOTHING].schedules

    def describe(choices: Choices) -> DecisionTrial:
        run = runner.runs[choices]
        decided = describe_choices(choices, schedules, run.schedules)
        return DecisionTrial(decided, runner.ask([choices])[0], count_kernels(run.schedules))

    return DecisionsDocument(
        schema=SCHEMA,
        kind="bisect-decisions",
        snippet=snippet,
        by=kind,
        reference=found.reference,
        right=found.right,
        given=found.given,
        candidates=found.candidates,
        outcomes=tuple(NamedOutcome(outcome.name, outcome.summary) for outcome in runner.outcomes.known),
        found=tuple(map(describe, sort_found(found))),
        complete=found.search is None or found.search.complete,
        tried=tuple(map(describe, runner.runs)),
        changes=changes,
    )
