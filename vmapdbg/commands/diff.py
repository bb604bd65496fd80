"""`vmapdbg diff`: compares two runs of a snippet, two saved captures, or two runs that `vmapdbg run --save` wrote."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vmapdbg.commands.report import ENDINGS, write_report
from vmapdbg.commands.shared import console, jobs, options
from vmapdbg.commands.shared.runs import compare_sides, make_sides
from vmapdbg.commands.shared.work_folder import check_target
from vmapdbg.model.failure import EXIT_USAGE, Failure
from vmapdbg.model.wording import join_first

if TYPE_CHECKING:
    from vmapdbg.page.view import View
    from vmapdbg.suite.saved import LoadedRun

_SEE_MORE = (
    "A part of the changes: --kernel NAME, --line FILE:N, --schedule N. All changes: --schedule all; with what is the"
    " same: --all. As a page: -o report.html. Save runs with vmapdbg show --save run.json, and compare two such files."
)


@click.command(cls=options.SnippetCommand)
@click.argument("inputs", nargs=-1, type=options.FILE)
@options.baseline(
    help="The before: none (every switchable patch off), stock (no overlay), a patch list, another tinygrad (VERSION,"
    " @REV or PATH), or a saved capture.  [default: none; @HEAD for a changed checkout]",
    is_flag=False,
    flag_value="",
)
@options.of_part
@options.output("Write an HTML page, and print only the verdict.")
@options.times
@options.memory
@options.json(help="Print the differences as one JSON document.")
@options.strict
@options.flag("--exit-code", help="End with 1 when there are differences.")
@click.option("--test", help="Of two saved runs: print this test in full (its id, or a unique part of it).")
@options.of_job
@console.display_options
def diff(
    inputs: tuple[str, ...],
    baseline: str | None,
    part: options.Part,
    output: Path | None,
    as_json: bool,
    strict: bool,
    exit_code: bool,
    test: str | None,
    given: options.JobOptions,
) -> None:
    """Show what patches or an edit change. INPUTS is a SNIPPET, two snippets, two saved captures, or two folders of
    `run --save`; without INPUTS, the last snippet.

    Both sides run at the same time, with --time in turns; what the snippet prints is compared, too. A long diff
    is shown as an overview: the kernels and lines that changed most.

    \b
    Examples:
      vmapdbg diff --baseline
      vmapdbg diff samples/ffn_overfusion.py --baseline=all,-fusion-guard
      vmapdbg diff samples/softmax.py --baseline=stock --exit-code
      vmapdbg diff old.py new.py --time
      vmapdbg diff model.py --tinygrad 0.14.0 --baseline=0.13.0
      vmapdbg diff model.py --baseline=@master
      vmapdbg diff before.json after.json --line model.py:12
      vmapdbg diff before_dir after_dir --exit-code"""
    # `--baseline snippet.py` means `snippet.py --baseline`
    if baseline is not None and baseline.endswith(".py"):
        inputs, baseline = (baseline, *inputs), None
    if len(inputs) > 2:
        raise Failure("diff takes one snippet, two saved captures or two saved runs, or two snippets")
    if any(Path(item).is_dir() for item in inputs):
        if part.is_selected or output is not None or baseline is not None or given.values or strict:
            raise Failure("two saved runs take only --test, --all, --json and --exit-code")
        is_empty = diff_folders(inputs, test, part.show_all, as_json, exit_code)
    else:
        if test is not None:
            raise Failure("--test is for two saved runs: vmapdbg diff BEFORE_DIR AFTER_DIR")
        if part.is_selected and (as_json or output is not None):
            raise Failure("--schedule, --kernel and --line are for a diff as text, not for --json and the page of -o")
        view = compare_inputs(inputs, baseline, output, given)
        if as_json:
            console.print_json(view.diff)
        else:
            print_part(view, part, output)
        console.end_after(view.after, names_status=False)
        is_empty, account = view.diff.is_empty, view.diff.account
        if strict and (account is None or not account.is_balanced):
            sys.exit(1)
    if exit_code and not is_empty:
        sys.exit(1)


def compare_inputs(
    inputs: Sequence[str], baseline: str | None, output: Path | None, given: options.JobOptions
) -> "View":
    """Runs or reads both sides, compares them, and writes the page to `output`. Raises Failure."""
    old, snippet = None, next(iter(inputs), None)
    if len(inputs) == 2:
        if baseline:
            raise Failure(f"{inputs[0]} is compared with {inputs[1]}: with two of them there is no --baseline")
        old, snippet = inputs
        if jobs.is_saved(old):
            old, baseline = None, old
    for name in inputs or (None,):
        check_target(output, name, ENDINGS)
    sides = make_sides(snippet, baseline or None, given, old)
    if given.times:
        console.report_untimed(sides.before, sides.after)
    from vmapdbg.page.view import View

    found = compare_sides(sides)
    view = View.of_two(sides.before, sides.after, found)
    if output is not None:
        write_report(view, output, [found.before.name, found.after.name])
    return view


def print_part(view: "View", part: options.Part, output: Path | None) -> None:
    """Prints a diff, a part, or an overview if it is long; with a page, the verdict. Raises Failure (no such part)."""
    from vmapdbg.page.overview import is_long
    from vmapdbg.page.text.run import print_diff, print_head, print_overview, print_peaks

    page = console.make_console()
    if output is not None:
        print_head(view.diff, page)
    elif part.is_whole and is_long(view):
        print_overview(view, page, _SEE_MORE)
    else:
        print_diff(view.diff, page, selected=part.select(view), show_all=part.show_all)
        print_peaks(view, page)


def diff_folders(folders: tuple[str, ...], test: str | None, show_all: bool, as_json: bool, exit_code: bool) -> bool:
    """Prints how two saved runs differ, or a `test` of them, like two captures. Returns whether they are equal. With
    `exit_code`, damaged files end the tool with 2: the comparison is not complete. Raises Failure."""
    from vmapdbg.page.text.run import print_diff
    from vmapdbg.page.text.suite import print_suite
    from vmapdbg.suite.compare import compare_runs, diff_test
    from vmapdbg.suite.saved import load_run

    if len(folders) != 2:
        raise Failure("a saved run is compared with another one: vmapdbg diff BEFORE_DIR AFTER_DIR")
    runs = load_run(Path(folders[0])), load_run(Path(folders[1]))
    if test is not None:
        diff = diff_test(*runs, find_test(runs, test))
        console.print_result(diff, as_json, partial(print_diff, show_all=show_all))
        return diff.is_empty
    found = compare_runs(*runs)
    console.print_result(found, as_json, partial(print_suite, show_all=show_all))
    if exit_code and found.damaged:
        sys.exit(EXIT_USAGE)
    return found.is_empty


def find_test(runs: "tuple[LoadedRun, LoadedRun]", asked: str) -> str:
    """Returns the id of a test: `asked` itself, or the only id that contains it. Raises Failure."""
    every = list(dict.fromkeys(test for run in runs for test in run.tests))
    if asked in every:
        return asked
    # `test_add` means `test_add`, not `test_add_3`
    found = [test for test in every if test.endswith(f"::{asked}")] or [test for test in every if asked in test]
    if not found:
        raise Failure(f"no test of the runs has {asked!r} in its id")
    if len(found) > 1:
        raise Failure(f"{asked!r} is in the ids of {len(found)} tests: {join_first(found, 3)}")
    return found[0]
