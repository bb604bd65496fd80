"""`vmapdbg lint`."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from vmapdbg.commands.shared import console, jobs, options
from vmapdbg.commands.shared.runs import run_with_baseline
from vmapdbg.commands.shared.settings import find_settings
from vmapdbg.commands.shared.work_folder import check_target
from vmapdbg.install.job import Job
from vmapdbg.lint import CODES, NEED_BASELINE, RULES, lint_capture
from vmapdbg.lint.ignores import split_ignored
from vmapdbg.model.capture import DIED, SCHEMA, Capture, Finding
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import StoreError, load_capture, write_output
from vmapdbg.model.wording import format_plural
from vmapdbg.page.claims import account_of_linted

Codes = tuple[str, ...] | None
CODES_TYPE = options.names("code", CODES, str.upper)
_FILE_WIDTH = 80  # columns of a text in a file, whatever the width of the terminal


@dataclass(frozen=True)
class Linted:
    """A capture with the findings of lint. `ignored` counts the findings that comments excluded."""

    capture: Capture
    ignored: int

    @property
    def is_dead(self) -> bool:
        """Whether the child died before it captured a schedule."""
        error = self.capture.error
        return error is not None and error.type == DIED and not self.capture.schedules

    @property
    def exit_code(self) -> int:
        return console.exit_code_of(self.capture) or int(bool(self.capture.findings))


Subject = tuple[Job | Capture, Capture | None, Sequence[str]]
"""A job or a saved capture, the saved baseline of a saved capture, and the codes to look for."""

# *** formats: each function prints what was found in some files


def print_reports(linted: Sequence[Linted]) -> None:
    """Prints a block for each file, and the sum if there are several."""
    from vmapdbg.page.text import lint as text

    page = console.make_console()
    for one in (one for one in linted if not one.is_dead):
        text.print_text(one.capture, one.ignored, page)
        if len(linted) > 1:
            page.print()
    if len(linted) > 1:
        found = format_plural(len(_findings_of(linted)), "finding")
        failed = sum(one.exit_code > 1 for one in linted)
        also_failed = f", {format_plural(failed, 'file')} failed" if failed else ""
        page.print(f"{found} in {format_plural(len(linted), 'file')}{also_failed}")


def print_concise(linted: Sequence[Linted]) -> None:
    """Prints a line for each finding."""
    from vmapdbg.page.text import lint as text

    for one in linted:
        text.print_concise(one.capture.findings, console.make_console(), one.capture.snippet)


def print_documents(linted: Sequence[Linted]) -> None:
    """Prints one JSON document."""
    from vmapdbg.page.documents import LintDocument, LintFilesDocument, make_document

    documents: list[LintDocument] = []
    for one in linted:
        body = {"findings": one.capture.findings, "account": account_of_linted(one.capture), "ignored": one.ignored}
        documents.append(make_document(LintDocument, one.capture, **body))
    if len(documents) == 1:
        console.print_json(documents[0])
    else:
        console.print_json(LintFilesDocument(schema=SCHEMA, kind="lint-files", files=tuple(documents)))


def print_github(linted: Sequence[Linted]) -> None:
    """Prints GitHub's workflow commands."""
    from vmapdbg.page.text.lint import dump_github

    sys.stdout.write(dump_github(_findings_of(linted), RULES))


def print_sarif(linted: Sequence[Linted]) -> None:
    """Prints SARIF 2.1.0."""
    from vmapdbg.page.text.lint import dump_sarif

    sys.stdout.write(dump_sarif(_findings_of(linted), RULES))


def _findings_of(linted: Sequence[Linted]) -> list[Finding]:
    return [finding for one in linted for finding in one.capture.findings]


FORMATS: dict[str, Callable[[Sequence[Linted]], None]] = {
    "text": print_reports,
    "concise": print_concise,
    "json": print_documents,
    "github": print_github,
    "sarif": print_sarif,
}


@click.command(cls=options.SnippetCommand)
@click.argument("snippets", nargs=-1, type=options.FILE, metavar="[SNIPPET]...")
@click.option(
    "--format", "form", type=click.Choice(list(FORMATS)), default="text", show_default=True, help="How to print."
)
@options.output("Write the findings to this file, not to stdout.", "-o", "--output-file", "output")
@click.option("--select", type=CODES_TYPE, help="Look only for these: VD101,VD105.")
@click.option("--ignore", type=CODES_TYPE, help="Do not look for these.")
@options.strict
@options.baseline(help="What VD103 and VD104 compare with, as for diff.  [default: none]")
@click.option("--explain", type=CODES_TYPE, help="Print what a code means, and nothing else.")
@options.of_job
@console.display_options
def lint(
    snippets: tuple[str, ...],
    form: str,
    output: Path | None,
    select: Codes,
    ignore: Codes,
    strict: bool,
    baseline: str | None,
    explain: tuple[str, ...] | None,
    given: options.JobOptions,
) -> None:
    """Find faults in the kernels of each SNIPPET without running them: overlapping stores, open ranges, addresses
    outside a buffer.

    SNIPPET is a Python file or a saved capture; without it, the snippet of the last show. The comment
    `# vmapdbg: ignore[VD104]` hides the findings VD104 of its line. Ends with 1 if there are findings.

    \b
    Examples:
      vmapdbg lint samples/lost_range.py --patches all,-ambient-ranges
      vmapdbg lint model.py train.py --target metal --select VD101,VD102
      vmapdbg lint capture.json --format sarif --output-file lint.sarif
      vmapdbg lint --explain VD101"""
    if explain is not None:
        print_explained(explain)
        return
    names: tuple[str | None, ...] = snippets or (None,)
    if given.code is not None and len(names) > 1:
        raise Failure("-c CODE is the snippet: it takes no files")
    for name in names:
        check_target(output, name)
        if name is not None and name != "-":
            jobs.check_snippet(name)
    # all are known before the first one runs: a refusal loses no findings
    subjects = [find_subject(name, baseline, given, select, ignore) for name in names]
    linted = [lint_subject(subject, baseline) for subject in subjects]
    if len(linted) > 1 or not linted[0].is_dead:
        write_linted(form, linted, output)
    is_open = strict and not all(account_of_linted(one.capture).is_balanced for one in linted)
    sys.exit(max(int(is_open), *(one.exit_code for one in linted)))


def write_linted(form: str, linted: Sequence[Linted], output: Path | None) -> None:
    """Prints what was found, or writes it to a file. If the file cannot be written, prints it and raises StoreError."""
    if output is None:
        FORMATS[form](linted)
        return
    text = console.print_to_text(lambda: FORMATS[form](linted), _FILE_WIDTH)
    try:
        write_output(output, text)
    except StoreError:
        sys.stdout.write(text)
        raise


def find_subject(
    name: str | None, baseline: str | None, given: options.JobOptions, select: Codes, ignore: Codes
) -> Subject:
    """Returns what to lint in a file; None is the snippet of the last show. Raises Failure."""
    what: Job | Capture
    if jobs.is_saved(name):
        what = jobs.load_saved(name, given)
        if baseline is not None and not jobs.is_saved(baseline):
            raise Failure("a saved capture needs a saved baseline: --baseline FILE.json")
        before = None if baseline is None else load_capture(baseline)
        if any(kernel.accesses is None for kernel in what.kernels):
            missing = "has no facts about memory: VD101, VD105 and VD106 find nothing"
            console.say(f"{name} was made by an older vmapdbg and {missing}")
    else:
        what, before = jobs.make_job(name, given), None
        name = what.snippet
    codes = find_settings(name).choose_codes(select, ignore)
    if not codes:
        raise Failure("--select and --ignore leave no code to look for")
    return what, before, codes


def lint_subject(subject: Subject, baseline: str | None) -> Linted:
    """Returns what lint finds; runs a job, and its baseline if a code needs it."""
    from vmapdbg.page.sentences import describe_crash

    job, before, codes = subject
    if isinstance(job, Capture):
        capture = job
    elif not NEED_BASELINE.intersection(codes) or (baseline is None and not job.patches):
        # an observed tinygrad has no default baseline
        capture = jobs.capture_job(job)
    else:
        before, capture = (run.capture for run in run_with_baseline(job, baseline or "none"))
        console.report_death(capture)
        # the default baseline may fail: without its patches a vmap scope often does
        if baseline is not None and before.error is not None and capture.error is None:
            compared = "VD103 and VD104 compare only what it scheduled before"
            console.say(f"the baseline ({baseline}) failed with {before.error.type}: {compared}")
    findings, ignored = split_ignored(lint_capture(capture, before, codes), capture.sources)
    jobs.report_mistakes(findings, capture.sources)
    if capture.error is not None and capture.error.crash is not None:
        for sentence in describe_crash(capture.error.crash):
            console.say(sentence)
    console.report_unrendered(capture)
    return Linted(replace(capture, findings=findings), len(ignored))


def print_explained(codes: tuple[str, ...]) -> None:
    from vmapdbg.page.text.lint import print_explanation

    page = console.make_console()
    for number, code in enumerate(codes):
        if number:
            page.print()
        rule = next(rule for rule in RULES if rule.code == code)
        print_explanation(rule.code, rule.name, rule.severity, rule.explanation, page)
