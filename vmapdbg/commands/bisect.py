"""`vmapdbg bisect`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vmapdbg.bisect import DEFAULT_RUNS, KERNEL_COUNT, KINDS
from vmapdbg.commands.shared.children import run_many
from vmapdbg.commands.shared.console import (
    close_pager,
    count_runs,
    display_options,
    make_console,
    print_json,
    say,
    show_progress,
)
from vmapdbg.commands.shared.jobs import findings_of, make_job, make_open_job, refuse_overlay_error, settings_for
from vmapdbg.commands.shared.options import (
    JobOptions,
    SnippetCommand,
    baseline_option,
    job_options,
    json_option,
    offer,
    output_option,
    snippet_argument,
)
from vmapdbg.commands.shared.runs import capture_of
from vmapdbg.install.job import Job
from vmapdbg.install.patches import Patches
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import check_output, write_output
from vmapdbg.model.vocabulary import OutcomeKind

if TYPE_CHECKING:
    from vmapdbg.bisect.outcome import Outcome
    from vmapdbg.bisect.search import Reduced, Search

DEFAULT_KIND: OutcomeKind = "values"
_SECONDS = 60

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    # before click 8.5 it takes no type argument
    _ParamType = click.ParamType


class OutcomeType(_ParamType):
    """A kind of outcome, or a number of kernels: `12 kernels` distinguishes runs with 12 kernels from all others."""

    name = "KIND"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = " ".join(str(value).split())
        if text not in KINDS and KERNEL_COUNT.fullmatch(text) is None:
            self.fail(f"{text!r} is none of {', '.join(KINDS)} and no count such as '12 kernels'", param, ctx)
        return text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        return offer(KINDS, incomplete)


@click.command(cls=SnippetCommand)
@snippet_argument
@click.option(
    "--by",
    "kind",
    type=OutcomeType(),
    help=f"What tells outcomes apart: {', '.join(KINDS)}, or a count: '12 kernels'.  [default: {DEFAULT_KIND}]",
)
@click.option("--commits", "span", metavar="GOOD..BAD", help="Find the commit of tinygrad that changed the outcome.")
@click.option("--decisions", is_flag=True, help="Find the single decision of the scheduler that makes it right again.")
@baseline_option("With --decisions: what is right. As for diff: another tinygrad.", metavar="SPEC")
@click.option("--on", "old_kind", type=click.Choice(KINDS), hidden=True, help="The old name of --by.")
@click.option(
    "--runs",
    type=click.IntRange(min=2),
    help=f"Run the snippet at most about so often.  [default: {DEFAULT_RUNS}]",
)
@click.option("--reduce", "with_snippet", is_flag=True, help="Write a small snippet that still shows the difference.")
@output_option("The file for it; default: stdout.")
@click.option("--seconds", type=click.FloatRange(min=1), help=f"Reduce for at most so long.  [default: {_SECONDS}]")
@json_option("Print the search as one JSON document.")
@job_options
@display_options
def bisect(
    snippet: str | None,
    kind: str | None,
    span: str | None,
    decisions: bool,
    baseline: str | None,
    old_kind: OutcomeKind | None,
    runs: int | None,
    with_snippet: bool,
    output: Path | None,
    seconds: float | None,
    as_json: bool,
    options: JobOptions,
) -> None:
    """Find the smallest sets of patches that change what comes of SNIPPET, or the commit of tinygrad or the single
    decision that did.

    The snippet is run with sets of the patches, several at the same time: all of them by size, the smallest first, and
    by halves where those are more than --runs. It is not assumed that more patches are better.

    With --commits it is run on commits of the checkout that you are in, or that --tinygrad names, until the first one
    with another outcome than GOOD is found. What that commit changed in the schedules is printed under it.

    With --decisions it is run on a tinygrad as it is, with single decisions of its scheduler made otherwise: a node
    forced to be a buffer, or a realize point let go. What is right is what comes of it with every node forced, or of
    --baseline. What the decision changes in the schedules is printed under it.

    Without SNIPPET: the snippet of the last show.

    \b
    Exit codes: 0 nothing changes the outcome, 1 something does, 2 usage.

    \b
    Examples:
      vmapdbg bisect samples/lost_range.py
      vmapdbg bisect samples/unclosed_range.py --by crash
      vmapdbg bisect train.py --reduce -o small.py
      vmapdbg bisect softmax.py --commits v0.13.0..master --by "3 kernels"
      vmapdbg bisect softmax.py --decisions --tinygrad 0.14.0
    """
    if output is not None:
        if not with_snippet:
            raise Failure("-o is the file for --reduce")
        check_output(output, snippet)
    kind = kind or old_kind or DEFAULT_KIND
    settings = settings_for(snippet, options)
    runs = runs or settings.runs or DEFAULT_RUNS
    if decisions:
        if span is not None or with_snippet:
            raise Failure("--decisions goes with neither --commits nor --reduce")
        from vmapdbg.commands.bisect_decisions import show_decisions

        sys.exit(show_decisions(snippet, kind, runs, baseline, options, as_json))
    if baseline is not None:
        raise Failure("--baseline is for --decisions")
    if span is not None:
        if with_snippet:
            raise Failure("--reduce is for patches: with --commits there is nothing to reduce")
        sys.exit(show_history(snippet, span, kind, options, as_json))
    reduction = None
    if with_snippet:
        reduction = Reduction(output, seconds or settings.seconds or _SECONDS)
    sys.exit(show_patches(snippet, kind, runs, reduction, options, as_json))


@dataclass(frozen=True)
class Reduction:
    """What --reduce is to write: the file, None: stdout; and how many seconds it may take."""

    output: Path | None
    seconds: float


def show_patches(
    snippet: str | None, kind: str, runs: int, reduction: Reduction | None, options: JobOptions, as_json: bool
) -> int:
    """Looks for sets of patches and prints what was found. Returns the exit code."""
    job = make_job(snippet, options)
    if job.patches is None:
        raise Failure(
            "this tinygrad is observed, without patches: --commits GOOD..BAD looks for a commit, --decisions for a"
            " decision of its scheduler"
        )
    search, outcomes = bisect_job(job, kind, runs)
    reduced = None
    if reduction is not None:
        from vmapdbg.commands.bisect_reduce import reduce_job

        reduced = reduce_job(job, kind, search, outcomes[0].run, reduction.seconds)
    if as_json:
        from vmapdbg.page.documents import make_bisect_document

        print_json(make_bisect_document(job.snippet, kind, search, outcomes, reduced))
    else:
        from vmapdbg.page.text.bisect import print_bisect

        print_bisect(job.snippet, kind, search, outcomes, make_console())
    if reduction is not None and reduced is not None:
        close_pager()
        write_reduced(reduced, reduction.output, as_json)
    return int(not search.is_uniform)


def show_history(snippet: str | None, span: str, kind: str, options: JobOptions, as_json: bool) -> int:
    """Looks for a commit and prints what was found. Returns the exit code."""
    if options.patches:
        raise Failure("--commits runs each commit as it is, without patches")
    from vmapdbg.commands.bisect_commits import describe_history, search_history
    from vmapdbg.diff import diff_captures

    job = replace(make_open_job(snippet, options), patches=None)
    found = search_history(job, span, kind)
    changes = None
    if found.before is not None and found.after is not None:
        changes = diff_captures(capture_of(found.before, job), capture_of(found.after, job), None)
    history = describe_history(found, job.snippet, kind, changes)
    if as_json:
        print_json(history)
    else:
        from vmapdbg.page.text.bisect_commits import print_history

        print_history(history, make_console())
    return int(found.search.first is not None)


def bisect_job(job: Job, kind: str, budget: int) -> tuple[Search, list[Outcome]]:
    """Runs the job with sets of its patches and returns what makes a difference to its `kind` of outcome.

    What the snippet prints is not shown. Raises Failure when the snippet needs patches that cannot be switched.
    """
    from vmapdbg.bisect.outcome import Outcomes
    from vmapdbg.bisect.search import search_patches

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
    """Writes the snippet to a file, or prints it; one that is part of the JSON is not printed."""
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
