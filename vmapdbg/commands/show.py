"""`vmapdbg show`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click

from vmapdbg.commands.jobs import capture_job, find_job
from vmapdbg.commands.options import (
    JobOptions,
    NamesType,
    ScheduleType,
    end_after,
    job_options,
    make_console,
    tell_no_schedule,
)
from vmapdbg.model.capture import Capture
from vmapdbg.model.data import dump_document
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import save_capture
from vmapdbg.render.sections import SECTIONS


@click.command()
@click.argument("snippet")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--only",
    type=NamesType("section", SECTIONS),
    default=",".join(SECTIONS),
    help=f"Print only these: {','.join(SECTIONS)}.",
)
@click.option("--schedule", type=ScheduleType(), help="Print only this schedule.")
@click.option("--all", "show_all", is_flag=True, help="Print every node of a long graph.")
@click.option("--json", "as_json", is_flag=True, help="Print the capture as one JSON document.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write the capture to a file, too.")
@job_options
def show(
    snippet: str,
    arguments: tuple[str, ...],
    only: tuple[str, ...],
    schedule: int | Literal["all"] | None,
    show_all: bool,
    as_json: bool,
    save: Path | None,
    options: JobOptions,
) -> None:
    """Run SNIPPET and show what the scheduler did: ranges, vmap_map, BUFFERIZE, kernels, source.

    ARGUMENTS after -- are the snippet's own.

    \b
    Examples:
      vmapdbg show samples/lost_range.py
      vmapdbg show samples/lost_range.py --patches ambient-ranges,nested-ranges --only bufferize,source
      vmapdbg show train.py --target metal --save after.json -- --steps 1
    """
    capture = capture_job(find_job(snippet, options, arguments), quiet_stdout=as_json)
    if save is not None:
        save_capture(capture, save)
    if as_json:
        sys.stdout.write(dump_document(capture))
    else:
        print_report(capture, only, schedule, show_all)
    end_after(capture)


def print_report(
    capture: Capture, only: tuple[str, ...], schedule: int | Literal["all"] | None, show_all: bool
) -> None:
    count = len(capture.schedules)
    if isinstance(schedule, int) and not 0 <= schedule < count:
        raise Failure(f"there is no schedule {schedule}: {capture.snippet} made {count}")
    if count == 0:
        tell_no_schedule(capture)
        return
    from vmapdbg.render.text.capture import print_capture

    print_capture(capture, make_console(), only=only, schedule=schedule, show_all=show_all)
