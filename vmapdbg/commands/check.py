"""`vmapdbg check`."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from vmapdbg.commands.ask import start_comparison
from vmapdbg.commands.completion import offer_files
from vmapdbg.commands.console import close_pager, make_console
from vmapdbg.commands.estimate import count_work, tell_estimate
from vmapdbg.commands.jobs import find_job, refuse_overlay_error, tell_death
from vmapdbg.commands.launcher import ChildDied, Streams, run_job
from vmapdbg.commands.options import JobOptions, SnippetCommand, end_after, job_options, tell_no_schedule
from vmapdbg.commands.progress import show_progress
from vmapdbg.install.job import CheckRequest, Job
from vmapdbg.model.capture import Capture
from vmapdbg.model.data import build_data, dump_document

if TYPE_CHECKING:
    from vmapdbg.check.result import CheckReport

_REFERENCE = "the numpy reference"


def refuse_oracle(context: click.Context, option: click.Parameter, value: str | bool | None) -> None:
    """Ends the tool if an oracle is asked for that was removed."""
    if value == "numpy" or not value:
        return
    name = "--paranoid" if value is True else f"--oracle {value}"
    raise click.UsageError(f"{name} was removed: the numpy reference finds all that it found")


@click.command(cls=SnippetCommand)
@click.argument("snippet", required=False, shell_complete=offer_files)
@click.option(
    "--oracle", hidden=True, callback=refuse_oracle, expose_value=False, help="There is one reference: numpy."
)
@click.option("--paranoid", is_flag=True, hidden=True, callback=refuse_oracle, expose_value=False)
@click.option("--json", "as_json", is_flag=True, help="Print the findings and comparisons as one JSON document.")
@job_options
def check(
    snippet: str | None,
    as_json: bool,
    options: JobOptions,
) -> None:
    """Run SNIPPET and compare each value with what its graph should give.

    The snippet runs once. Its graphs and inputs go to a process without tinygrad, which computes them by numpy.
    If tinygrad fails or does not end, the report says what it was doing, and what the values should be.
    A wrong value is traced back to the first buffer that is wrong: its node, the kernel that wrote it, and the decision
    that made it. Without SNIPPET: the snippet of the last show.

    \b
    Exit codes: 0 all right, 1 a value is wrong, 2 usage, 3 the snippet failed, 4 a child hung or died.

    \b
    Examples:
      vmapdbg check samples/lost_range.py
      vmapdbg check samples/lost_range.py --patches all,-ambient-ranges
      vmapdbg check samples/softmax.py --json
    """
    job = find_job(snippet, options)
    capture, report, ended = check_job(job)
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


def check_job(job: Job) -> tuple[Capture, CheckReport, BaseException | None]:
    """Runs the job once, and compares its values in another child while it runs and afterwards.

    What the snippet prints goes to stderr. The last result is what ended the comparison early, if anything: then the
    report has what was compared before. Raises ChildDied.
    """
    streams = Streams(stdout=sys.stderr.fileno())
    with contextlib.ExitStack() as stack:
        evidence = stack.enter_context(tempfile.TemporaryDirectory(prefix="vmapdbg-"))
        request = CheckRequest(job=job, evidence=evidence)
        comparison = stack.enter_context(start_comparison(request))
        with show_progress(f"working on {job.snippet}", late=True) as progress:
            capture = run_job(job, streams, ["vmapdbg.page.text.check"], evidence, progress, shadow=True)
        refuse_overlay_error(capture)
        tell_death(capture)
        work = tuple(count_work(schedule) for schedule in capture.schedules)
        done = comparison.list_compared()
        tell_estimate([amount for schedule, amount in enumerate(work) if schedule not in done])
        with show_progress(f"comparing {job.snippet} with {_REFERENCE}") as progress:
            text, ended = comparison.ask(work, f"the comparison with {_REFERENCE}", progress)
    from vmapdbg.check.result import CheckReport

    report = build_data(CheckReport, json.loads(text))
    if report.left and ended is None:
        ended = ChildDied(f"the comparison with {_REFERENCE} ended before it was done")
    return capture, report, ended
