"""`vmapdbg lint` and `vmapdbg run --lint` on the command line: parse, call, print."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from vmapdbg.commands.jobs import capture_job, find_job, find_sides, read_capture, side_capture
from vmapdbg.commands.launcher import Job
from vmapdbg.commands.options import (
    EXIT_CHILD,
    EXIT_SNIPPET,
    EXIT_USAGE,
    Failure,
    make_console,
    patches_option,
    target_option,
    timeout_option,
)
from vmapdbg.lint import CODES, RULES, lint_capture
from vmapdbg.lint.ignores import split_ignored
from vmapdbg.lint.rule import NEED_BASELINE
from vmapdbg.model import Capture, Finding
from vmapdbg.patches import PatchError, parse_patches
from vmapdbg.store import StoreError, write_atomically

FORMATS = ("text", "concise", "json", "github", "sarif")


class CodesType(click.ParamType):
    """A comma separated list of codes."""

    name = "CODES"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        codes = tuple(code.strip().upper() for code in str(value).split(","))
        for code in codes:
            if code not in CODES:
                self.fail(f"unknown code {code!r}: choose from {', '.join(CODES)}", param, ctx)
        return codes


@click.command()
@click.argument("snippet", required=False)
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="How to print.")
@click.option("--select", type=CodesType(), help="Look only for these: VD101,VD105.")
@click.option("--ignore", type=CodesType(), help="Do not look for these.")
@click.option("--baseline", help="What VD103 and VD104 compare with, as for diff.  [default: none]")
@click.option("--explain", type=CodesType(), help="Print what a code means, and nothing else.")
@target_option
@patches_option
@timeout_option
def lint(
    snippet: str | None,
    form: str,
    select: tuple[str, ...] | None,
    ignore: tuple[str, ...] | None,
    baseline: str | None,
    explain: tuple[str, ...] | None,
    target: str | None,
    patches: frozenset[str] | None,
    timeout: float | None,
) -> None:
    """Find faults in the kernels of SNIPPET without running them: lost steps, open ranges, addresses outside a buffer.

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
        raise Failure("--select and --ignore leave no code to look for", EXIT_USAGE)
    capture, before, notes = find_captures(snippet, baseline, codes, target, patches, timeout)
    findings, ignored = split_ignored(lint_capture(capture, before, codes))
    print_findings(form, capture, findings, len(ignored), notes)
    if capture.error is not None:
        sys.exit(EXIT_CHILD if capture.error.type == "ChildDied" else EXIT_SNIPPET)
    sys.exit(1 if findings else 0)


def find_captures(
    snippet: str | None,
    baseline: str | None,
    codes: tuple[str, ...],
    target: str | None,
    patches: frozenset[str] | None,
    timeout: float | None,
) -> tuple[Capture, Capture | None, list[str]]:
    """Returns the capture, the baseline's where one is needed, and what there is to say about them."""
    if snippet is not None and snippet.endswith(".json"):
        capture = read_capture(snippet)
        if baseline is not None and not baseline.endswith(".json"):
            raise Failure("a saved capture needs a saved baseline: --baseline FILE.json", EXIT_USAGE)
        before = None if baseline is None else read_capture(baseline)
        return capture, before, explain_missing(capture, snippet)
    job = find_job(snippet, target, patches, timeout)
    if not NEED_BASELINE.intersection(codes) or is_same(job, baseline or "none"):
        return capture_job(job, quiet_stdout=True), None, []
    sides = find_sides(job, baseline or "none")
    sys.stderr.buffer.write(sides[1].stdout + sides[1].stderr)
    sys.stderr.flush()
    capture, before = side_capture(sides[1], job), side_capture(sides[0], job)
    if capture.error is not None and capture.error.type == "OverlayError":
        raise Failure(capture.error.message, EXIT_USAGE)
    if capture.error is not None and capture.error.type == "ChildDied":
        raise Failure(capture.error.message, EXIT_CHILD)
    notes = []
    # the baseline that nobody asked for may fail: without its patches a vmap scope often does
    if baseline is not None and before.error is not None and capture.error is None:
        notes.append(
            f"the baseline ({baseline}) failed with {before.error.type}: VD103 and VD104 compare only what "
            "it scheduled before"
        )
    return capture, before, notes


def is_same(job: Job, baseline: str) -> bool:
    """Tells whether the baseline is the job itself."""
    if baseline == "stock" or baseline.endswith(".json"):
        return False
    try:
        return parse_patches(baseline) == job.patches
    except PatchError as error:
        raise Failure(str(error), EXIT_USAGE) from None


def explain_missing(capture: Capture, file: str) -> list[str]:
    kernels = [kernel for schedule in capture.schedules for kernel in schedule.kernels]
    if any(kernel.accesses is None for kernel in kernels):
        return [
            f"{file} was made by an older vmapdbg and has no facts about memory: VD101, VD105 and VD106 find nothing"
        ]
    return []


def print_findings(form: str, capture: Capture, findings: tuple[Finding, ...], ignored: int, notes: list[str]) -> None:
    from vmapdbg.render.lint_formats import RuleText, dump_github, dump_json, dump_sarif

    rules = [RuleText(rule.code, rule.name, rule.severity, rule.explanation) for rule in RULES]
    for note in notes:
        click.echo(f"vmapdbg: {note}", err=True)
    if form == "json":
        sys.stdout.write(dump_json(capture, findings, ignored))
    elif form == "sarif":
        sys.stdout.write(dump_sarif(findings, rules))
    elif form == "github":
        sys.stdout.write(dump_github(findings, rules))
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


def run_linted(program: tuple[str, ...], environment: dict[str, str], target: str, output: Path | None) -> int:
    """Runs a program, prints what lint found to stderr and writes it to `output`.

    Returns the exit code: the program's own, or 1 for findings.
    """
    from vmapdbg.commands.linted_run import dump_run, run_and_lint
    from vmapdbg.render.text.lint import print_run

    if output is not None and not output.absolute().parent.is_dir():
        raise Failure(f"cannot write {output}: there is no such folder", EXIT_USAGE)
    linted = run_and_lint(program, environment, target)
    counts = f"{linted.kernels:,} kernels of {linted.schedules:,} schedules"
    counts += f", {linted.ignored} ignored by comments" if linted.ignored else ""
    counts += f" ({linted.undecided:,} kernels have an address that could not be told)" if linted.undecided else ""
    titles = {rule.code: rule.name for rule in RULES}
    print_run(linted.findings, counts, linted.failed, titles, make_console(stderr=True))
    try:
        if output is not None:
            write_atomically(output, dump_run(linted, target))
    except StoreError as error:
        raise Failure(str(error), EXIT_USAGE) from None
    return linted.status or (1 if linted.findings else 0)
