"""`vmapdbg diff`."""

from __future__ import annotations

import sys

import click

from vmapdbg.commands.baseline import find_pair
from vmapdbg.commands.completion import offer_baselines, offer_files
from vmapdbg.commands.console import make_console
from vmapdbg.commands.diff_suite import SuiteFormat, SuiteOptions, diff_folders, find_folders
from vmapdbg.commands.options import JobOptions, SnippetCommand, end_if_failed, job_options
from vmapdbg.model.data import dump_document
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import load_capture


@click.command(cls=SnippetCommand)
@click.argument("inputs", nargs=-1, shell_complete=offer_files)
@click.option(
    "--baseline",
    shell_complete=offer_baselines,
    is_flag=False,
    flag_value="",
    help="The before: none (every switchable patch off), stock (no overlay), a patch list, another tinygrad (VERSION,"
    " @REV or PATH), or a saved capture.  [default: none; @HEAD for a changed checkout]",
)
@click.option("--all", "show_all", is_flag=True, help="Print what did not change, too.")
@click.option("--unified", is_flag=True, help="Print changed source in one column.")
@click.option("--json", "as_json", is_flag=True, help="Print the differences as one JSON document.")
@click.option("--exit-code", is_flag=True, help="End with 1 when there are differences.")
@click.option("--test", help="Of two saved runs: print this test in full (its id, or a part that no other has).")
@click.option("--format", "form", type=click.Choice(("text", "github")), help="Of two saved runs: github is Markdown.")
@job_options
def diff(
    inputs: tuple[str, ...],
    baseline: str | None,
    show_all: bool,
    unified: bool,
    as_json: bool,
    exit_code: bool,
    test: str | None,
    form: SuiteFormat | None,
    options: JobOptions,
) -> None:
    """Show what the patches change: INPUTS is a SNIPPET, or two saved captures, or two runs that `run --save` saved, or
    nothing for the last snippet.

    Both sides run at the same time; what the snippet prints on them is compared, too.

    \b
    Examples:
      vmapdbg diff --baseline
      vmapdbg diff samples/ffn_overfusion.py --baseline=all,-fusion-guard
      vmapdbg diff samples/softmax.py --baseline=stock --exit-code
      vmapdbg diff model.py --tinygrad 0.14.0 --baseline=0.13.0
      vmapdbg diff model.py --baseline=@master
      vmapdbg diff before.json after.json --json
      vmapdbg diff before_dir after_dir --exit-code
    """
    # `--baseline snippet.py` means `snippet.py --baseline`
    if baseline is not None and baseline.endswith(".py"):
        inputs, baseline = (baseline, *inputs), None
    if len(inputs) > 2:
        raise Failure("diff takes one snippet, two saved captures or two saved runs")
    if folders := find_folders(inputs):
        asked = SuiteOptions(test, form, as_json=as_json, show_all=show_all, unified=unified, exit_code=exit_code)
        diff_folders(*folders, asked)
        return
    if test is not None or form is not None:
        raise Failure("--test and --format are for two saved runs: vmapdbg diff BEFORE_DIR AFTER_DIR")
    if len(inputs) == 2:
        before, after, printed = load_capture(inputs[0]), load_capture(inputs[1]), None
    else:
        before, after, printed = find_pair(next(iter(inputs), None), baseline or None, options)
    from vmapdbg.diff import diff_captures

    found = diff_captures(before, after, printed)
    if as_json:
        sys.stdout.write(dump_document(found))
    else:
        from vmapdbg.render.text.diff import print_diff

        print_diff(found, make_console(), show_all=show_all, unified=unified)
    end_if_failed(after)
    if exit_code and not found.is_empty:
        sys.exit(1)
