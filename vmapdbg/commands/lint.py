"""`vmapdbg lint`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from vmapdbg.commands.baseline import capture_of, find_baseline, run_beside
from vmapdbg.commands.completion import offer_baselines, offer_files
from vmapdbg.commands.console import make_console
from vmapdbg.commands.jobs import (
    capture_job,
    check_snippet,
    find_job,
    is_saved,
    refuse_options,
    refuse_overlay_error,
    settings_for,
    tell_mistakes,
)
from vmapdbg.commands.lint_output import Linted, show_linted
from vmapdbg.commands.options import JobOptions, NamesType, SnippetCommand, job_options
from vmapdbg.install.job import Job
from vmapdbg.lint import CODES, NEED_BASELINE, RULES, lint_capture
from vmapdbg.lint.ignores import list_mistakes, split_ignored
from vmapdbg.model.capture import Capture
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import check_output, load_capture

FORMATS = ("text", "concise", "json", "github", "sarif")
CODES_TYPE = NamesType("code", CODES, str.upper)


@click.command(cls=SnippetCommand)
@click.argument("snippets", nargs=-1, shell_complete=offer_files, metavar="[SNIPPET]...")
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="How to print.")
@click.option(
    "-o",
    "--output-file",
    "output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write it there, not to stdout.",
)
@click.option("--select", type=CODES_TYPE, help="Look only for these: VD101,VD105.")
@click.option("--ignore", type=CODES_TYPE, help="Do not look for these.")
@click.option(
    "--baseline",
    shell_complete=offer_baselines,
    help="What VD103 and VD104 compare with, as for diff.  [default: none]",
)
@click.option("--explain", type=CODES_TYPE, help="Print what a code means, and nothing else.")
@job_options
def lint(
    snippets: tuple[str, ...],
    form: str,
    output: Path | None,
    select: tuple[str, ...] | None,
    ignore: tuple[str, ...] | None,
    baseline: str | None,
    explain: tuple[str, ...] | None,
    options: JobOptions,
) -> None:
    """Find faults in the kernels of each SNIPPET without running them: overlapping stores, open ranges, addresses
    outside a buffer.

    SNIPPET is a Python file or a saved capture; without it, the snippet of the last show. A comment
    `# vmapdbg: ignore[VD104]` on a line of yours takes that code out for the line. Ends with 1 when there are findings.

    \b
    Examples:
      vmapdbg lint samples/lost_range.py --patches all,-ambient-ranges
      vmapdbg lint model.py train.py --target metal --select VD101,VD102
      vmapdbg lint capture.json --format sarif --output-file lint.sarif
      vmapdbg lint --explain VD101
    """
    if explain is not None:
        print_explained(explain)
        return
    names: tuple[str | None, ...] = snippets or (None,)
    if options.code is not None and len(names) > 1:
        raise Failure("-c CODE is the snippet: it takes no files")
    chosen = [choose_codes(name, select, ignore, options) for name in names]
    check_files(snippets, output)
    linted = [lint_file(name, baseline, codes, options) for name, codes in zip(names, chosen, strict=True)]
    if len(linted) == 1 and linted[0].died is not None:
        click.echo(f"vmapdbg: {linted[0].died}", err=True)
    else:
        show_linted(form, linted, output)
    sys.exit(max(one.exit_code for one in linted))


def choose_codes(
    name: str | None, select: tuple[str, ...] | None, ignore: tuple[str, ...] | None, options: JobOptions
) -> tuple[str, ...]:
    """Returns the codes to look for in a file: what the command line says, and where it does not, the settings. Raises
    Failure where none is left."""
    codes = settings_for(name, options).choose_codes(select, ignore)
    if not codes:
        raise Failure("--select and --ignore leave no code to look for")
    return tuple(codes)


def check_files(snippets: Sequence[str], output: Path | None) -> None:
    """Raises Failure, before anything runs, where a snippet cannot be run or a comment in it ignores no code, and where
    the output cannot be written."""
    if output is not None:
        check_output(output)
    for snippet in snippets:
        if output is not None:
            check_output(output, snippet)
        if snippet == "-":
            continue
        check_snippet(snippet)
        if not is_saved(snippet):
            refuse_mistakes(snippet)


def refuse_mistakes(snippet: str) -> None:
    """Raises Failure for a comment that is to ignore a code and cannot."""
    for mistake in list_mistakes(snippet, CODES):
        raise Failure(mistake)


def lint_file(name: str | None, baseline: str | None, codes: tuple[str, ...], options: JobOptions) -> Linted:
    """Returns what lint finds in a file; None is the snippet of the last show."""
    linted = find_captures(name, baseline, codes, options)
    if isinstance(linted, Linted):
        return linted
    capture, before, notes = linted
    findings, ignored = split_ignored(lint_capture(capture, before, codes))
    tell_mistakes(findings)
    return Linted(capture, findings, len(ignored), (*notes, *explain_failed(capture)))


def find_captures(
    snippet: str | None, baseline: str | None, codes: tuple[str, ...], options: JobOptions
) -> tuple[Capture, Capture | None, list[str]] | Linted:
    """Returns the capture, the baseline's where one is needed, and what there is to say about them; what is known where
    the child died."""
    if is_saved(snippet):
        refuse_options(snippet, options)
        return read_captures(snippet, baseline)
    job = find_job(snippet, options)
    refuse_mistakes(job.snippet)
    if not NEED_BASELINE.intersection(codes) or is_same(job, baseline):
        return capture_job(job, quiet_stdout=True), None, []
    runs = run_beside(job, baseline or "none")
    before, capture = capture_of(runs[0], job), capture_of(runs[1], job)
    refuse_overlay_error(capture)
    if runs[1].died is not None:
        return Linted(capture, died=runs[1].died)
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
    if baseline is not None and not is_saved(baseline):
        raise Failure("a saved capture needs a saved baseline: --baseline FILE.json")
    before = None if baseline is None else load_capture(baseline)
    return capture, before, explain_missing(capture, file)


def is_same(job: Job, baseline: str | None) -> bool:
    """Tells whether the baseline is the job itself. An observed tinygrad has none of its own."""
    if baseline is None:
        return not job.patches
    return not is_saved(baseline) and find_baseline(job, baseline) == job


def explain_missing(capture: Capture, file: str) -> list[str]:
    if any(kernel.accesses is None for kernel in capture.kernels):
        return [
            f"{file} was made by an older vmapdbg and has no facts about memory: VD101, VD105 and VD106 find nothing"
        ]
    return []


def explain_failed(capture: Capture) -> list[str]:
    """Returns what there is to say where tinygrad failed: what it made no kernels of, lint cannot look at."""
    from vmapdbg.page.crash_sentences import describe_crash, describe_error

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


def print_explained(codes: tuple[str, ...]) -> None:
    from vmapdbg.page.text.lint import print_explanation

    console = make_console()
    for number, code in enumerate(codes):
        if number:
            console.print()
        rule = next(rule for rule in RULES if rule.code == code)
        print_explanation(rule.code, rule.name, rule.severity, rule.explanation, console)
