"""`vmapdbg check`."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from vmapdbg.check.oracles import DEFAULT, ORACLES
from vmapdbg.commands.ask import start_comparison
from vmapdbg.commands.completion import offer_files
from vmapdbg.commands.console import close_pager, make_console
from vmapdbg.commands.estimate import count_work, tell_estimate
from vmapdbg.commands.jobs import find_job, refuse_overlay_error, tell_death
from vmapdbg.commands.launcher import ChildDied, Streams, run_job
from vmapdbg.commands.options import JobOptions, NamesType, SnippetCommand, end_after, job_options, tell_no_schedule
from vmapdbg.commands.progress import show_progress
from vmapdbg.commands.settings import find_settings
from vmapdbg.install.job import CheckRequest, Job
from vmapdbg.model.capture import Capture
from vmapdbg.model.data import build_data, dump_document

if TYPE_CHECKING:
    from vmapdbg.check.result import CheckReport

_ELEMENTS = 2000


@click.command(cls=SnippetCommand)
@click.argument("snippet", required=False, shell_complete=offer_files)
@click.option(
    "--oracle",
    "chosen",
    type=NamesType("oracle", ORACLES),
    multiple=True,
    help=f"What computes the right values: {', '.join(ORACLES)}, or several of them.  [default: {DEFAULT}]",
)
@click.option("--paranoid", is_flag=True, hidden=True, help="The old name of --oracle stock,python.")
@click.option(
    "--elements",
    type=click.IntRange(min=1),
    help="Run at most this many graphs for one output; of a larger batch some elements are checked."
    f"  [default: {_ELEMENTS}]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings and comparisons as one JSON document.")
@job_options
def check(
    snippet: str | None,
    chosen: tuple[tuple[str, ...], ...],
    paranoid: bool,
    elements: int | None,
    as_json: bool,
    options: JobOptions,
) -> None:
    """Run SNIPPET and compare each value with what its graph should give.

    The snippet runs once. Its graphs and inputs then go to a process without the overlay, where an oracle computes
    them anew: by numpy, with nothing of tinygrad (numpy), or by tinygrad with each vmap scope unrolled (stock, python).
    Where tinygrad fails or does not end, it is told what it was doing, and what the values should be.
    A wrong value is traced back to the first buffer that is wrong: its node, the kernel that wrote it, and the decision
    that made it. Without SNIPPET: the snippet of the last show.

    \b
    Exit codes: 0 all right, 1 a value is wrong, 2 usage, 3 the snippet failed, 4 a child hung or died.

    \b
    Examples:
      vmapdbg check samples/lost_range.py
      vmapdbg check samples/lost_range.py --patches all,-ambient-ranges
      vmapdbg check train.py --oracle stock,python --elements 500 --json
    """
    oracles = choose_oracles(chosen, paranoid)
    job = find_job(snippet, options)
    limit = elements or find_settings(job.snippet).elements or _ELEMENTS
    capture, report, ended = check_job(job, limit, oracles)
    from vmapdbg.page.check_sentences import make_findings

    capture = replace(capture, findings=make_findings(capture, report))
    if as_json:
        from vmapdbg.page.documents import make_check_document

        sys.stdout.write(dump_document(make_check_document(capture, report)))
    elif capture.schedules:
        from vmapdbg.page.text.check import print_check

        print_check(capture, report, make_console())
    else:
        tell_no_schedule(capture)
    close_pager()
    if ended is not None:
        raise ended
    end_after(capture)
    if capture.findings:
        sys.exit(1)


def choose_oracles(chosen: tuple[tuple[str, ...], ...], paranoid: bool) -> tuple[str, ...]:
    """Returns the oracles that are asked for, each once, in the order of the table."""
    names = {name for names in chosen for name in names}
    if paranoid:
        names |= {"stock", "python"}
    return tuple(name for name in ORACLES if name in names) or (DEFAULT,)


def check_job(job: Job, limit: int, oracles: tuple[str, ...]) -> tuple[Capture, CheckReport, BaseException | None]:
    """Runs the job once, and has oracles compute in another child what it should have got, meanwhile and afterwards.

    What the snippet prints goes to stderr. `limit` is the most graphs that an oracle runs for one output. Returns what
    ended the comparison early, too: then the report has what was compared by then. Raises ChildDied.
    """
    streams = Streams(stdout=sys.stderr.fileno())
    with contextlib.ExitStack() as stack:
        evidence = stack.enter_context(tempfile.TemporaryDirectory(prefix="vmapdbg-"))
        request = CheckRequest(job=job, evidence=evidence, limit=limit, oracles=oracles)
        comparison = stack.enter_context(start_comparison(request))
        with show_progress(f"working on {job.snippet}", late=True) as progress:
            capture = run_job(job, streams, ["vmapdbg.page.text.check"], evidence, progress, shadow=True)
        refuse_overlay_error(capture)
        tell_death(capture)
        work: tuple[int, ...] = ()
        # how fast the other oracles are depends on the snippet
        if oracles == (DEFAULT,):
            work = tuple(count_work(schedule) for schedule in capture.schedules)
            done = comparison.list_compared()
            tell_estimate([amount for schedule, amount in enumerate(work) if schedule not in done])
        compared_with = " and ".join(ORACLES[name] for name in oracles)
        with show_progress(f"comparing {job.snippet} with {compared_with}") as progress:
            text, ended = comparison.ask(work, f"the comparison with {compared_with}", progress)
    from vmapdbg.check.result import CheckReport

    report = build_data(CheckReport, json.loads(text))
    if report.left and ended is None:
        ended = ChildDied(f"the comparison with {compared_with} ended before it was done")
    return capture, report, ended
