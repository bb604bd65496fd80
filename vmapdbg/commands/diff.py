"""`vmapdbg diff`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from vmapdbg.commands.diff_suite import SuiteFormat, SuiteOptions, diff_folders, find_folders
from vmapdbg.commands.report import check_page, write_diff_report
from vmapdbg.commands.shared.console import (
    display_options,
    end_if_failed,
    make_console,
    print_json,
    report_untimed,
    say,
)
from vmapdbg.commands.shared.jobs import name_of
from vmapdbg.commands.shared.options import (
    JobOptions,
    ScheduleType,
    SnippetCommand,
    baseline_option,
    job_options,
    json_option,
    offer_files,
    output_option,
)
from vmapdbg.commands.shared.runs import make_edits, make_sides
from vmapdbg.model.failure import Failure

if TYPE_CHECKING:
    from vmapdbg.page.view import View

_SEE_MORE = (
    "A part of the changes: --kernel NAME, --line FILE:N, --schedule N. All changes: --schedule all; with what is the"
    " same: --all. As a page: -o report.html. Save runs with vmapdbg show --save run.json, and compare two such files."
)


@click.command(cls=SnippetCommand)
@click.argument("inputs", nargs=-1, shell_complete=offer_files)
@baseline_option(
    "The before: none (every switchable patch off), stock (no overlay), a patch list, another tinygrad (VERSION, @REV"
    " or PATH), or a saved capture.  [default: none; @HEAD for a changed checkout]",
    is_flag=False,
    flag_value="",
)
@click.option("--schedule", type=ScheduleType(), help="Print the changes of this schedule, or of all.")
@click.option("--kernel", metavar="NAME|N", help="Print only this kernel, and its nodes.")
@click.option("--line", metavar="FILE:N", help="Print only what this line of the snippet made.")
@click.option("--all", "show_all", is_flag=True, help="Print what did not change, too.")
@output_option("Write an HTML page; print the verdict alone.")
@click.option("--time", "times", is_flag=True, help="Run what stays lazy, too, and time every launch on both sides.")
@click.option("--unified", is_flag=True, help="Print changed source in one column.")
@json_option("Print the differences as one JSON document.")
@click.option("--exit-code", is_flag=True, help="End with 1 when there are differences.")
@click.option("--test", help="Of two saved runs: print this test in full (its id, or a part that no other has).")
@click.option("--format", "form", type=click.Choice(("text", "github")), help="Of two saved runs: github is Markdown.")
@job_options
@display_options
def diff(
    inputs: tuple[str, ...],
    baseline: str | None,
    schedule: int | Literal["all"] | None,
    kernel: str | None,
    line: str | None,
    show_all: bool,
    output: Path | None,
    times: bool,
    unified: bool,
    as_json: bool,
    exit_code: bool,
    test: str | None,
    form: SuiteFormat | None,
    options: JobOptions,
) -> None:
    """Show what the patches change, or an edit: INPUTS is a SNIPPET, or two of them, or two saved captures, or two runs
    that `run --save` saved, or nothing for the last snippet.

    Both sides run at the same time, with --time in turns; what the snippet prints on them is compared, too. Of a long
    diff an overview is shown: the kernels and lines that changed most.

    \b
    Examples:
      vmapdbg diff --baseline
      vmapdbg diff samples/ffn_overfusion.py --baseline=all,-fusion-guard
      vmapdbg diff samples/softmax.py --baseline=stock --exit-code
      vmapdbg diff old.py new.py --time
      vmapdbg diff model.py --tinygrad 0.14.0 --baseline=0.13.0
      vmapdbg diff model.py --baseline=@master
      vmapdbg diff before.json after.json --line model.py:12
      vmapdbg diff before_dir after_dir --exit-code
    """
    # `--baseline snippet.py` means `snippet.py --baseline`
    if baseline is not None and baseline.endswith(".py"):
        inputs, baseline = (baseline, *inputs), None
    if len(inputs) > 2:
        raise Failure("diff takes one snippet, two saved captures or two saved runs, or two snippets")
    part = Part(schedule, kernel, line, show_all, unified)
    if folders := find_folders(inputs):
        part.refuse("two saved runs: --test has one in full")
        refuse_for_folders(output, times)
        asked = SuiteOptions(test, form, as_json=as_json, show_all=show_all, unified=unified, exit_code=exit_code)
        diff_folders(*folders, asked)
        return
    if test is not None or form is not None:
        raise Failure("--test and --format are for two saved runs: vmapdbg diff BEFORE_DIR AFTER_DIR")
    part.check(output, as_json=as_json)
    if output is not None:
        # before anything runs
        for snippet in inputs or (None,):
            check_page(output, name_of(snippet, options))
    view = compare_inputs(inputs, baseline, options, times)
    if output is not None:
        write_diff_report(view, output)
        say(f"wrote {output}")
    if as_json:
        print_json(view.diff)
    else:
        print_part(view, part, output)
    end_if_failed(view.after)
    if exit_code and not view.diff.is_empty:
        sys.exit(1)


def refuse_for_folders(output: Path | None, times: bool) -> None:
    """Raises Failure for options that two saved runs of a test suite do not have."""
    if output is not None:
        raise Failure("two saved runs have no page: --format github is Markdown")
    if times:
        raise Failure("--time runs both sides, and these are saved runs of a test-suite")


@dataclass(frozen=True)
class Part:
    """The part of a diff to print; None for options that are not given."""

    schedule: int | Literal["all"] | None
    kernel: str | None
    line: str | None
    show_all: bool
    unified: bool

    def refuse(self, what: str) -> None:
        """Raises Failure if options select a part; `what` is what has no parts."""
        for name in ("schedule", "kernel", "line"):
            if getattr(self, name) is not None:
                raise Failure(f"--{name} is for a diff as text, not for {what}")

    def check(self, output: Path | None, *, as_json: bool) -> None:
        """Raises Failure for options that exclude each other."""
        if self.kernel is not None and self.line is not None:
            raise Failure("--kernel and --line: choose one")
        if as_json:
            self.refuse("--json, which has the whole")
        if output is not None:
            self.refuse("the page of -o")

    @property
    def number(self) -> int | None:
        """The index of the schedule, if one is selected."""
        return self.schedule if isinstance(self.schedule, int) else None


def compare_inputs(inputs: tuple[str, ...], baseline: str | None, options: JobOptions, times: bool) -> View:
    """Runs or reads both sides, and compares them. Raises Failure."""
    if len(inputs) == 2:
        if baseline:
            raise Failure(f"{inputs[0]} is compared with {inputs[1]}: with two of them there is no --baseline")
        pair = make_edits(inputs[0], inputs[1], options, times)
    else:
        pair = make_sides(next(iter(inputs), None), baseline or None, options, times)
    if times:
        report_untimed(pair.before, pair.after)
    from vmapdbg.diff import diff_captures
    from vmapdbg.page.view import View

    found = diff_captures(pair.before, pair.after, pair.printed, pair.names, pair.same_lines)
    return View.of_two(pair.before, pair.after, found)


def print_part(view: View, part: Part, output: Path | None) -> None:
    """Prints a diff, or a part of it: all changes, or an overview of a long diff; with a page, the verdict only. Raises
    Failure for a part that the diff does not have."""
    from vmapdbg.page.overview import is_long
    from vmapdbg.page.text.diff import print_diff, print_verdict
    from vmapdbg.page.view import Selected, select_kernels, select_line, select_schedules

    if output is not None:
        print_verdict(view.diff, make_console())
        return
    selected = None
    if part.kernel is not None:
        selected = select_kernels(view, part.kernel, part.number)
    elif part.line is not None:
        selected = select_line(view, part.line, part.number)
    elif part.number is not None:
        selected = [Selected(item, item) for item in select_schedules(view, part.number)]
    elif part.schedule is None and not part.show_all and is_long(view):
        from vmapdbg.page.text.overview import print_diff_overview

        print_diff_overview(view, make_console(), _SEE_MORE)
        return
    console = make_console()
    print_diff(view.diff, console, selected=selected, show_all=part.show_all, unified=part.unified)
