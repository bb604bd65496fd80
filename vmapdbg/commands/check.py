"""`vmapdbg check` on the command line: parse, call, print."""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from vmapdbg.commands.jobs import check_job, find_job
from vmapdbg.commands.options import (
    end_after,
    make_console,
    patches_option,
    target_option,
    tell_no_schedule,
    timeout_option,
)


@click.command()
@click.argument("snippet", required=False)
@click.option("--paranoid", is_flag=True, help="Compare everything with the PYTHON device, too: slow.")
@click.option(
    "--elements",
    type=click.IntRange(min=1),
    default=2000,
    show_default=True,
    help="Run at most this many graphs for one output; of a larger batch some elements are checked.",
)
@target_option
@patches_option
@timeout_option
@click.option("--json", "as_json", is_flag=True, help="Print the findings and comparisons as one JSON document.")
def check(
    snippet: str | None,
    paranoid: bool,
    elements: int,
    target: str | None,
    patches: frozenset[str] | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Run SNIPPET and compare each value with stock tinygrad's for the same graph, vmap scopes unrolled.

    The snippet runs once. Its graphs and inputs then go to a process without the overlay, which computes each element
    of a vmap scope by itself. A wrong value is traced back to the first buffer that is wrong: its node, the kernel
    that wrote it, and the decision that made it. Without SNIPPET: the snippet of the last show.

    \b
    Exit codes: 0 all right, 1 a value is wrong, 2 usage, 3 the snippet failed, 4 a child hung or died.

    \b
    Examples:
      vmapdbg check samples/lost_range.py
      vmapdbg check samples/lost_range.py --patches all,-ambient-ranges
      vmapdbg check train.py --paranoid --elements 500 --json
    """
    capture, report = check_job(find_job(snippet, target, patches, timeout), elements, paranoid)
    from vmapdbg.check.blame import make_findings

    capture = replace(capture, findings=make_findings(capture, report))
    if as_json:
        from vmapdbg.render.documents import dump_document, make_check_document

        sys.stdout.write(dump_document(make_check_document(capture, report)))
    elif capture.schedules:
        from vmapdbg.render.text.check import print_check

        print_check(capture, report, make_console())
    else:
        tell_no_schedule(capture)
    end_after(capture)
    sys.exit(1 if capture.findings else 0)
