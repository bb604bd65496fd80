"""`vmapdbg check`."""

import contextlib
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vmapdbg.commands.shared import console, jobs, options
from vmapdbg.commands.shared.children import ChildDied, import_meanwhile, run_job, started_child
from vmapdbg.install.job import SCHEDULE_FILES, CheckRequest, Job
from vmapdbg.model.capture import Capture
from vmapdbg.model.store import build_data, read_lines

if TYPE_CHECKING:
    from vmapdbg.check.result import CheckReport

_REFERENCE = "the numpy reference"


@click.command(cls=options.SnippetCommand)
@options.snippet
@options.json(help="Print the findings and comparisons as one JSON document.")
@options.strict
@options.flag("--gradients", help="Compare gradients with finite differences in double, too.")
@options.of_job
@console.display_options
def check(snippet: str | None, as_json: bool, strict: bool, gradients: bool, given: options.JobOptions) -> None:
    """Run SNIPPET and compare each value with what its graph should give.

    The snippet runs once. Its graphs and inputs go to a process without tinygrad, which computes them by numpy.
    If tinygrad fails or does not end, the report says what it was doing, and what the values should be.
    A wrong value is traced back to the first buffer that is wrong: its node, the kernel that wrote it, and the decision
    that made it. If numbers go wrong although tinygrad computes what SNIPPET asks for, the report names the op that
    makes the first NaN or infinity, or that loses the digits, and memory that is read and never written. With
    --gradients, each gradient that SNIPPET asks for is compared with finite differences, and the op with the wrong
    rule is named. Without SNIPPET: the snippet of the last show.

    Exit codes: 0 nothing wrong was found, 1 a value is wrong or goes wrong, 2 usage, 3 the snippet failed, 4 a child
    hung or died.

    \b
    Examples:
      vmapdbg check samples/lost_range.py
      vmapdbg check samples/lost_range.py --patches all,-ambient-ranges
      vmapdbg check samples/softmax.py --json"""
    capture, report, ended = check_job(replace(jobs.make_job(snippet, given), gradients=gradients))
    from vmapdbg.page.check_sentences import add_pattern_sentences, make_findings

    capture, account = replace(capture, findings=make_findings(capture, report)), report.settle(capture)
    if as_json:
        from vmapdbg.page.documents import CheckDocument, make_document

        shown = {"schedules": add_pattern_sentences(report).schedules, "left": report.left, "account": account}
        console.print_json(make_document(CheckDocument, capture, findings=capture.findings, **shown))
    elif capture.schedules:
        from vmapdbg.page.text.check import print_check

        print_check(capture, report, console.make_console())
    else:
        console.report_no_schedule(capture)
    if ended is not None:
        raise ended
    console.end_after(capture)
    if capture.findings or (strict and not account.is_balanced):
        sys.exit(1)


def check_job(job: Job) -> "tuple[Capture, CheckReport, BaseException | None]":
    """Runs the job once, with its output on stderr, and compares its values meanwhile and afterwards in another child.
    The last result is what ended the comparison early: then the report is incomplete. Raises ChildDied."""
    stderr = sys.stderr.fileno()
    with contextlib.ExitStack() as stack:
        evidence = stack.enter_context(tempfile.TemporaryDirectory(prefix="vmapdbg-"))
        request = CheckRequest(job=job, evidence=evidence)
        child = stack.enter_context(started_child(request, None, stderr, one_thread=True))
        with console.show_progress(f"working on {job.snippet}", wait=True) as progress:
            import_meanwhile("vmapdbg.page.text.check")
            capture = run_job(job, stderr, evidence=evidence, progress=progress, shadow=True)
        console.report_death(capture)
        with console.show_progress(f"comparing {job.snippet} with {_REFERENCE}") as progress:
            child.request.over.touch()
            text, ended = child.answer(f"the comparison with {_REFERENCE}", job.timeout, progress)
        files = list(Path(evidence).glob(SCHEDULE_FILES))
    report = try_stock(job, capture, read_report(text, len(files)))
    if report.left and ended is None:
        ended = ChildDied(f"the comparison with {_REFERENCE} ended before it was done")
    return capture, report, ended


def try_stock(job: Job, capture: Capture, report: "CheckReport") -> "CheckReport":
    """Returns the report with, for each schedule that failed, whether it runs without patches; not for a vmap scope,
    which stock tinygrad lacks. The snippet runs once more for it."""
    failed = {check.schedule for check in report.schedules if check.failed is not None}
    if not failed or not job.patches:
        return report
    with contextlib.suppress(ChildDied):
        _, plain, _ = check_job(replace(job, patches=frozenset()))
        runs = {(check.schedule, check.line): check.failed is None for check in plain.schedules}
        failed -= {number for number in failed if any(r.vmap for r in capture.schedules[number].ranges)}
        checks = list(report.schedules)
        for number, check in enumerate(checks):
            if check.schedule in failed:
                checks[number] = replace(check, stock_runs=runs.get((check.schedule, check.line)))
        return replace(report, schedules=tuple(checks))
    return report


def read_report(text: str, count: int) -> "CheckReport":
    """Returns the report of `count` schedules and replays, in order. The last line of `text` for a schedule counts."""
    from vmapdbg.check.result import CheckReport, ScheduleCheck

    checks = [build_data(ScheduleCheck, data) for data in read_lines(text)]
    last = {(check.schedule, -1 if check.replay is None else check.replay): check for check in checks}
    return CheckReport(tuple(last[key] for key in sorted(last)), count - len(last))
