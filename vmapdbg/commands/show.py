"""`vmapdbg show`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from vmapdbg.commands.shared.console import display_options, end_after, make_console, print_json, report_no_schedule
from vmapdbg.commands.shared.jobs import add_arguments, load_or_run
from vmapdbg.commands.shared.options import (
    JobOptions,
    NamesType,
    ScheduleType,
    SnippetCommand,
    arguments_argument,
    job_options,
    json_option,
    offer_kernels,
    offer_lines,
    output_option,
    snippet_argument,
)
from vmapdbg.model.capture import Capture
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import StoreError, check_output, save_capture
from vmapdbg.page.sections import SECTIONS

if TYPE_CHECKING:
    from vmapdbg.page.view import Selected, View

_SEE_MORE = (
    "A part of the report: --kernel NAME, --line FILE:N, --schedule N, --only SECTIONS. The whole: --all. "
    "Save a run with --save run.json, and give that in the place of the snippet."
)


@click.command(cls=SnippetCommand)
@snippet_argument
@arguments_argument
@click.option(
    "--only",
    type=NamesType("section", SECTIONS),
    help=f"Print only these: {','.join(SECTIONS)}.",
)
@click.option("--schedule", type=ScheduleType(), help="Print only this schedule.")
@click.option(
    "--kernel", shell_complete=offer_kernels, metavar="NAME|N", help="Print only this kernel, its source as it is."
)
@click.option(
    "--line", shell_complete=offer_lines, metavar="FILE:N", help="Print only what this line of the snippet made."
)
@click.option("--time", "times", is_flag=True, help="Run what stays lazy, too, and time every launch.")
@click.option("--all", "show_all", is_flag=True, help="Print the whole report of a long run, with every node.")
@json_option("Print the capture as one JSON document.")
@output_option("Write the capture to a file, too.", "--save")
@job_options
@display_options
def show(
    snippet: str | None,
    arguments: tuple[str, ...],
    only: tuple[str, ...] | None,
    schedule: int | Literal["all"] | None,
    kernel: str | None,
    line: str | None,
    times: bool,
    show_all: bool,
    as_json: bool,
    save: Path | None,
    options: JobOptions,
) -> None:
    """Run SNIPPET and show what the scheduler did: ranges, vmap_map, BUFFERIZE, kernels, source.

    Of a long run an overview is shown: the kernels and lines that make up most of it, and why nodes are realized.
    SNIPPET may be a saved capture. ARGUMENTS after -- are the snippet's own.

    \b
    Examples:
      vmapdbg show samples/lost_range.py
      vmapdbg show samples/lost_range.py --patches ambient-ranges,nested-ranges --only bufferize,source
      vmapdbg show train.py --target metal --save after.json -- --steps 1
      vmapdbg show after.json --kernel r_32_64_4
      vmapdbg show after.json --line train.py:12 --only kernels,source
    """
    if snippet is None and options.code is None:
        raise click.UsageError("Missing argument 'SNIPPET'")
    if kernel is not None and line is not None:
        raise Failure("--kernel and --line: choose one")
    if save is not None:
        check_output(save, snippet)
    capture = load_or_run(snippet, add_arguments(options, arguments), times, quiet_stdout=as_json)
    failed = None if save is None else try_to_save(capture, save)
    if as_json:
        print_json(capture)
    else:
        print_report(capture, Asked(only, schedule, kernel, line, show_all))
    if failed is not None:
        # the report is printed even if the file cannot be written
        raise failed
    end_after(capture)


def try_to_save(capture: Capture, file: Path) -> StoreError | None:
    """Saves a capture. Returns the error if that fails."""
    try:
        save_capture(capture, file)
    except StoreError as error:
        return error
    return None


@dataclass(frozen=True)
class Asked:
    """The part of the report to print; None for options that are not given."""

    only: tuple[str, ...] | None
    schedule: int | Literal["all"] | None
    kernel: str | None
    line: str | None
    show_all: bool

    @property
    def is_open(self) -> bool:
        """Whether no part is selected."""
        return not self.show_all and all(part is None for part in (self.only, self.schedule, self.kernel, self.line))


def print_report(capture: Capture, asked: Asked) -> None:
    count = len(capture.schedules)
    if isinstance(asked.schedule, int) and not 0 <= asked.schedule < count:
        raise Failure(f"there is no schedule {asked.schedule}: {capture.snippet} made {count}")
    if count == 0:
        report_no_schedule(capture)
        return
    from vmapdbg.page.overview import is_long
    from vmapdbg.page.text.capture import print_capture, print_overview
    from vmapdbg.page.view import View

    view = View.of_one(capture)
    if asked.is_open and is_long(view):
        print_overview(view, make_console(), _SEE_MORE)
        return
    print_capture(
        capture,
        make_console(),
        only=asked.only or tuple(SECTIONS),
        schedule=asked.schedule,
        show_all=asked.show_all,
        selected=find_selected(view, asked),
    )


def find_selected(view: View, asked: Asked) -> list[Selected] | None:
    """Returns what --kernel or --line selects, None without these options. Raises Failure."""
    from vmapdbg.page.view import select_kernels, select_line

    schedule = asked.schedule if isinstance(asked.schedule, int) else None
    if asked.kernel is not None:
        return select_kernels(view, asked.kernel, schedule)
    if asked.line is not None:
        return select_line(view, asked.line, schedule)
    return None
