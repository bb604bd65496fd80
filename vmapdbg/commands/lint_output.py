"""What `vmapdbg lint` found in files, printed in the form that is asked for, or written to a file."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from vmapdbg.commands.console import close_pager, get_display, make_console, set_display
from vmapdbg.commands.options import find_exit_code
from vmapdbg.lint import RULES
from vmapdbg.model.capture import Capture, Finding
from vmapdbg.model.data import dump_document
from vmapdbg.model.failure import EXIT_CHILD
from vmapdbg.model.store import StoreError, write_output
from vmapdbg.model.wording import format_plural

_FILE_WIDTH = 80
"""Columns of a text in a file, whatever the terminal has."""


@dataclass(frozen=True)
class Linted:
    """What lint found in one file. `notes` is what there is to say about the runs; `died` says how the child ended
    where there is no capture."""

    capture: Capture
    findings: tuple[Finding, ...] = ()
    ignored: int = 0
    notes: tuple[str, ...] = ()
    died: str | None = None

    @property
    def exit_code(self) -> int:
        if self.died is not None:
            return EXIT_CHILD
        return find_exit_code(self.capture) or int(bool(self.findings))


def show_linted(form: str, linted: Sequence[Linted], output: Path | None) -> None:
    """Prints what was found, or writes it to a file. Raises StoreError where it cannot be written: it is printed
    then."""
    for one in linted:
        for note in one.notes:
            click.echo(f"vmapdbg: {note}", err=True)
        if one.died is not None:
            click.echo(f"vmapdbg: {one.died}", err=True)
    if output is None:
        print_linted(form, linted)
        close_pager()
        return
    text = io.StringIO()
    set_display(file=text, width=get_display().width or _FILE_WIDTH)
    print_linted(form, linted)
    try:
        write_output(output, text.getvalue())
    except StoreError:
        sys.stdout.write(text.getvalue())
        raise


def print_linted(form: str, linted: Sequence[Linted]) -> None:
    """Prints what was found in some files, in the form that is asked for."""
    from vmapdbg.page.lint_formats import dump_github, dump_sarif

    findings = [finding for one in linted for finding in one.findings]
    if form == "json":
        write_document(dump_linted(linted))
    elif form == "sarif":
        write_document(dump_sarif(findings, RULES))
    elif form == "github":
        write_document(dump_github(findings, RULES))
    elif form == "concise":
        from vmapdbg.page.text.lint import print_concise

        for one in linted:
            print_concise(one.findings, make_console(), one.capture.snippet)
    else:
        print_reports(linted)


def write_document(text: str) -> None:
    """Writes a document for a program to stdout, or to the file of --output-file."""
    (get_display().file or sys.stdout).write(text)


def dump_linted(linted: Sequence[Linted]) -> str:
    from vmapdbg.page.lint_formats import dump_json_of_files, make_lint_document

    documents = [make_lint_document(one.capture, one.findings, one.ignored) for one in linted]
    if len(documents) == 1:
        return dump_document(documents[0])
    return dump_json_of_files(documents)


def print_reports(linted: Sequence[Linted]) -> None:
    """Prints a block for each file, and of several the sum."""
    from vmapdbg.page.text.lint import Report, print_text

    console = make_console()
    titles = {rule.code: rule.name for rule in RULES}
    looked_at = [one for one in linted if one.died is None]
    for one in looked_at:
        capture = replace(one.capture, findings=one.findings)
        print_text(Report(capture, one.findings, one.ignored, titles), console)
        if len(linted) > 1:
            console.print()
    if len(linted) > 1:
        found = format_plural(sum(len(one.findings) for one in linted), "finding")
        console.print(f"{found} in {format_plural(len(linted), 'file')}{describe_failures(linted)}")


def describe_failures(linted: Sequence[Linted]) -> str:
    """Returns `, 2 files failed`, nothing where none did."""
    failed = sum(one.exit_code > 1 for one in linted)
    if not failed:
        return ""
    return f", {format_plural(failed, 'file')} failed"
