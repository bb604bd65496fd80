"""`vmapdbg lint`."""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from vmapdbg.commands.baseline import capture_of, find_baseline, run_beside
from vmapdbg.commands.console import make_console
from vmapdbg.commands.jobs import capture_job, find_job, is_saved, refuse_overlay_error
from vmapdbg.commands.launcher import ChildDied
from vmapdbg.commands.options import JobOptions, NamesType, SnippetCommand, end_if_failed, job_options
from vmapdbg.job.job import Job
from vmapdbg.lint import CODES, NEED_BASELINE, RULES, lint_capture
from vmapdbg.lint.ignores import split_ignored
from vmapdbg.model.capture import Capture, Finding
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import load_capture

FORMATS = ("text", "concise", "json", "github", "sarif")
CODES_TYPE = NamesType("code", CODES, str.upper)


@click.command(cls=SnippetCommand)
@click.argument("snippet", required=False)
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="How to print.")
@click.option("--select", type=CODES_TYPE, help="Look only for these: VD101,VD105.")
@click.option("--ignore", type=CODES_TYPE, help="Do not look for these.")
@click.option("--baseline", help="What VD103 and VD104 compare with, as for diff.  [default: none]")
@click.option("--explain", type=CODES_TYPE, help="Print what a code means, and nothing else.")
@job_options
def lint(
    snippet: str | None,
    form: str,
    select: tuple[str, ...] | None,
    ignore: tuple[str, ...] | None,
    baseline: str | None,
    explain: tuple[str, ...] | None,
    options: JobOptions,
) -> None:
    """Find faults in the kernels of SNIPPET without running them: overlapping stores, open ranges, addresses outside a
    buffer.

    SNIPPET is a Python file or a saved capture; without it, the snippet of the last show. A comment
    `# vmapdbg: ignore[VD104]` on a line of yours takes that code out for the line. Ends with 1 when there are findings.

    \b
    Examples:
      vmapdbg lint samples/lost_range.py --patches all,-ambient-ranges
      vmapdbg lint model.py --target metal --select VD101,VD102
      vmapdbg lint capture.json --format sarif
      vmapdbg lint --explain VD101
    """
    if explain is not None:
        print_explained(explain)
        return
    codes = tuple(code for code in select or CODES if code not in (ignore or ()))
    if not codes:
        raise Failure("--select and --ignore leave no code to look for")
    capture, before, notes = find_captures(snippet, baseline, codes, options)
    findings, ignored = split_ignored(lint_capture(capture, before, codes))
    notes += explain_failed(capture)
    print_findings(form, capture, findings, len(ignored), notes)
    end_if_failed(capture)
    if findings:
        sys.exit(1)


def find_captures(
    snippet: str | None, baseline: str | None, codes: tuple[str, ...], options: JobOptions
) -> tuple[Capture, Capture | None, list[str]]:
    """Returns the capture, the baseline's where one is needed, and what there is to say about them."""
    if snippet is not None and is_saved(snippet):
        return read_captures(snippet, baseline)
    job = find_job(snippet, options)
    if not NEED_BASELINE.intersection(codes) or is_same(job, baseline):
        return capture_job(job, quiet_stdout=True), None, []
    runs = run_beside(job, baseline or "none")
    before, capture = capture_of(runs[0], job), capture_of(runs[1], job)
    refuse_overlay_error(capture)
    if runs[1].died is not None:
        raise ChildDied(runs[1].died)
    notes: list[str] = []
    # the baseline that nobody asked for may fail: without its patches a vmap scope often does
    if baseline is not None and before.error is not None and capture.error is None:
        notes.append(
            f"the baseline ({baseline}) failed with {before.error.type}: VD103 and VD104 compare only what "
            "it scheduled before"
        )
    return capture, before, notes


def read_captures(file: str, baseline: str | None) -> tuple[Capture, Capture | None, list[str]]:
    """Does the same for a saved capture."""
    capture = load_capture(file)
    if baseline is not None and not baseline.endswith(".json"):
        raise Failure("a saved capture needs a saved baseline: --baseline FILE.json")
    before = None if baseline is None else load_capture(baseline)
    return capture, before, explain_missing(capture, file)


def is_same(job: Job, baseline: str | None) -> bool:
    """Tells whether the baseline is the job itself. An observed tinygrad has none of its own."""
    if baseline is None:
        return not job.patches
    return not baseline.endswith(".json") and find_baseline(job, baseline) == job


def explain_missing(capture: Capture, file: str) -> list[str]:
    kernels = [kernel for schedule in capture.schedules for kernel in schedule.kernels]
    if any(kernel.accesses is None for kernel in kernels):
        return [
            f"{file} was made by an older vmapdbg and has no facts about memory: VD101, VD105 and VD106 find nothing"
        ]
    return []


def explain_failed(capture: Capture) -> list[str]:
    """Returns what there is to say where tinygrad failed: what it made no kernels of, lint cannot look at."""
    from vmapdbg.render.crash_sentences import describe_crash, describe_error

    notes: list[str] = []
    if capture.error is not None and capture.error.crash is not None:
        notes += describe_crash(capture.error.crash)
    for schedule in capture.schedules:
        failed = [
            (number, kernel.failed) for number, kernel in enumerate(schedule.kernels) if kernel.failed is not None
        ]
        for number, error in failed:
            notes.append(f"kernel #{number} of schedule {schedule.index} has no program: {describe_error(error)}")
    return notes


def print_findings(form: str, capture: Capture, findings: tuple[Finding, ...], ignored: int, notes: list[str]) -> None:
    from vmapdbg.render.lint_formats import dump_github, dump_json, dump_sarif

    for note in notes:
        click.echo(f"vmapdbg: {note}", err=True)
    if form == "json":
        sys.stdout.write(dump_json(capture, findings, ignored))
    elif form == "sarif":
        sys.stdout.write(dump_sarif(findings, RULES))
    elif form == "github":
        sys.stdout.write(dump_github(findings, RULES))
    else:
        from vmapdbg.render.text.lint import Report, print_concise, print_text

        if form == "concise":
            print_concise(findings, make_console(), capture.snippet)
        else:
            titles = {rule.code: rule.name for rule in RULES}
            print_text(Report(replace(capture, findings=findings), findings, ignored, titles), make_console())


def print_explained(codes: tuple[str, ...]) -> None:
    from vmapdbg.render.text.lint import print_explanation

    for number, code in enumerate(codes):
        if number:
            click.echo()
        rule = next(rule for rule in RULES if rule.code == code)
        print_explanation(rule.code, rule.name, rule.severity, rule.explanation, make_console())
