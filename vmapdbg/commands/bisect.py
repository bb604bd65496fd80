"""`vmapdbg bisect`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from vmapdbg.bisect import DEFAULT_RUNS, KERNEL_COUNT, KINDS
from vmapdbg.commands.shared.console import display_options
from vmapdbg.commands.shared.jobs import settings_for
from vmapdbg.commands.shared.options import (
    JobOptions,
    ParamType,
    SnippetCommand,
    baseline_option,
    job_options,
    json_option,
    offer,
    output_option,
    snippet_argument,
)
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import check_output
from vmapdbg.model.vocabulary import OutcomeKind

DEFAULT_KIND: OutcomeKind = "values"
_SECONDS = 60


class OutcomeType(ParamType):
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
    if decisions and (span is not None or with_snippet):
        raise Failure("--decisions goes with neither --commits nor --reduce")
    if baseline is not None and not decisions:
        raise Failure("--baseline is for --decisions")
    if span is not None and with_snippet:
        raise Failure("--reduce is for patches: with --commits there is nothing to reduce")
    from vmapdbg.commands.bisect_search import show_decisions, show_history, show_patches

    if decisions:
        sys.exit(show_decisions(snippet, kind, runs, baseline, options, as_json))
    if span is not None:
        sys.exit(show_history(snippet, span, kind, options, as_json))
    seconds = (seconds or settings.seconds or _SECONDS) if with_snippet else None
    sys.exit(show_patches(snippet, kind, runs, seconds, output, options, as_json))
