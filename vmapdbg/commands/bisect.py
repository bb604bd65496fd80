"""`vmapdbg bisect`."""

import sys
from dataclasses import replace
from pathlib import Path

import click

from vmapdbg.bisect import DEFAULT_RUNS, KERNEL_COUNT, KINDS, MEASURES
from vmapdbg.commands.shared import console, jobs, options
from vmapdbg.commands.shared.work_folder import check_target
from vmapdbg.model.failure import Failure

_DISTINGUISHED = f"What distinguishes outcomes: {', '.join(KINDS)}, or a count: '12 kernels'"
_BY = f"{_DISTINGUISHED}; with --commits also {', '.join(MEASURES)}."


def read_kind(text: str) -> str:
    """Returns a kind of outcome, a measure, or a count: `12 kernels` means 12 or any other count. Raises ValueError."""
    kind, known = " ".join(text.split()), (*KINDS, *MEASURES)
    if kind not in known and KERNEL_COUNT.fullmatch(kind) is None:
        raise ValueError(f"{kind!r} is none of {', '.join(known)} and no count such as '12 kernels'")
    return kind


@click.command(cls=options.SnippetCommand)
@options.snippet
@click.option("--by", "kind", type=options.TextType("KIND", read_kind), default="values", show_default=True, help=_BY)
@click.option("--commits", "span", metavar="GOOD..BAD", help="Find the commit of tinygrad that changed the outcome.")
@options.flag("--decisions", help="Find the single decision of the scheduler that makes it right.")
@options.baseline(help="With --decisions: the right outcome is its outcome. As for diff.", metavar="SPEC")
@click.option(
    "--runs", type=click.IntRange(min=2), default=DEFAULT_RUNS, show_default=True, help="About how many runs at most."
)
@options.flag("--reduce", "with_snippet", help="Write a small program that still shows it.")
@options.output("The file for it; default: stdout.")
@click.option("--seconds", type=options.SECONDS, default=60.0, show_default=True, help="Seconds for --reduce.")
@options.json(help="Print the search as one JSON document.")
@options.of_job
@console.display_options
def bisect(
    snippet: str | None,
    kind: str,
    span: str | None,
    decisions: bool,
    baseline: str | None,
    runs: int,
    with_snippet: bool,
    output: Path | None,
    seconds: float,
    as_json: bool,
    given: options.JobOptions,
) -> None:
    """Find the smallest sets of patches that change the outcome of SNIPPET: its values, its kernels, its findings, or
    how it ends. Or find the commit of tinygrad, or the single decision of its scheduler, that changes it.

    SNIPPET runs with sets of the patches, several at the same time. All sets are tried by size, the smallest first; if
    these are more than --runs, the search is by halves. It is not assumed that more patches are better.

    With --commits, SNIPPET runs on commits of the checkout that you are in, or that --tinygrad names. The search ends
    at the first commit with another outcome than GOOD, and prints what this commit changed in the schedules. Kernels
    are compared by what they store. --by time, ops, bytes and memory measure each commit, with BEAM held at 0, and
    both ends several times: a difference within their noise is no difference.

    With --decisions, SNIPPET runs on tinygrad as it is, with single decisions of the scheduler changed: a node becomes
    a buffer, or a realize point is left out. The right outcome is the outcome if every node becomes a buffer, or the
    outcome of --baseline. The search prints what the decision changes in the schedules.

    With --reduce, the program becomes smaller while two sets of patches still differ. If none differ, or with a
    tinygrad as it is, a program that fails or hangs in tinygrad, or has wrong values (see `check`), is reduced. Ctrl-C
    writes the smallest program until then.

    Without SNIPPET: the snippet of the last show.

    \b
    Exit codes: 0 nothing changes the outcome, 1 something does, 2 usage. With --reduce, 1 too if no program is
    written: there is no fault, or the smallest program does not show it when it is run once more.

    \b
    Examples:
      vmapdbg bisect samples/lost_range.py
      vmapdbg bisect samples/unclosed_range.py --by crash
      vmapdbg bisect train.py --reduce -o small.py
      vmapdbg bisect train.py --reduce -o small.py --tinygrad 0.14.0
      vmapdbg bisect softmax.py --commits v0.13.0..master --by "3 kernels"
      vmapdbg bisect train.py --commits v0.13.0..master --by memory
      vmapdbg bisect softmax.py --decisions --tinygrad 0.14.0"""
    of_commits = span is not None
    refused = {
        "-o is the file for --reduce": output is not None and not with_snippet,
        "--decisions goes with neither --commits nor --reduce": decisions and (of_commits or with_snippet),
        "--baseline is for --decisions": baseline is not None and not decisions,
        f"--by {kind} is for --commits": kind in MEASURES and not of_commits,
        "--reduce is for patches: with --commits there is nothing to reduce": of_commits and with_snippet,
        "--commits runs each commit as it is, without patches": of_commits and given.patches,
    }
    if message := next((message for message, is_given in refused.items() if is_given), None):
        raise Failure(message)
    check_target(output, snippet)
    from vmapdbg.commands import bisect_searches as searches
    from vmapdbg.page.text.bisect import print_decisions, print_history

    job = jobs.make_open_job(snippet, given)
    if span is not None:
        history = searches.search_history(replace(job, patches=None), span, kind)
        console.print_result(history, as_json, print_history)
        sys.exit(int(bool(history.suspects)))
    job = jobs.choose_tinygrad(job, given.patches)
    if decisions:
        document = searches.search_decisions(job, kind, runs, baseline)
        console.print_result(document, as_json, print_decisions)
        sys.exit(int(bool(document.found)))
    sys.exit(searches.show_patches(job, kind, runs, seconds if with_snippet else None, output, as_json))
