"""`vmapdbg show`."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import click

from vmapdbg.commands.shared import console, jobs, options
from vmapdbg.commands.shared.work_folder import check_target
from vmapdbg.model.capture import Capture
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import add_beam_times, add_optimizations, list_longest
from vmapdbg.model.store import StoreError, check_output, dump_document, write_output
from vmapdbg.model.vocabulary import Sort
from vmapdbg.page.claims import account_of_shown
from vmapdbg.page.sections import SECTIONS

_SEE_MORE = (
    "A part of the report: --kernel NAME, --line FILE:N, --schedule N, --only SECTIONS. The whole: --all. "
    "Save a run with --save run.json, and give that in the place of the snippet."
)
_SEE_PART = "Why: vmapdbg why {}. Its nodes, ranges, buffers and source: --all, or --only SECTIONS."


@click.command(cls=options.SnippetCommand)
@options.snippet
@click.option("--only", type=options.names("section", SECTIONS), help=f"Print only these: {','.join(SECTIONS)}.")
@options.of_part
@options.times
@click.option("--beam", type=click.IntRange(1), help="Time the longest kernels with BEAM of this width, too.")
@options.flag("--optimizations", help="Time the longest kernel without each of its optimizations, too.")
@click.option("--sort", type=click.Choice(get_args(Sort)), help="The order of kernels and functions in the overview.")
@options.memory
@options.json(help="Print the capture as one JSON document.")
@options.strict
@options.output("Write the capture to a file, too.", "--save")
@options.output("Write the lifetimes of --memory as a picture, too: an SVG file.")
@options.of_job
@console.display_options
def show(
    snippet: str | None,
    only: tuple[str, ...] | None,
    part: options.Part,
    beam: int | None,
    optimizations: bool,
    sort: Sort | None,
    as_json: bool,
    strict: bool,
    save: Path | None,
    output: Path | None,
    given: options.JobOptions,
) -> None:
    """Run SNIPPET and show what the scheduler did: ranges, vmap_map, BUFFERIZE, kernels, source.

    A long run is shown as an overview: the kernels and lines that make up most of it, and why buffers are asked for.
    SNIPPET may be a saved capture. ARGUMENTS after -- are the snippet's own.

    \b
    Examples:
      vmapdbg show samples/rotary.py --patches none
      vmapdbg show samples/softmax.py --only bufferize,source
      vmapdbg show train.py --target metal --save after.json -- --steps 1
      vmapdbg show train.py --memory -o lifetimes.svg
      vmapdbg show after.json --kernel r_32_64_4
      vmapdbg show train.py --time --beam 2 --kernel backward
      vmapdbg show train.py --optimizations
      vmapdbg show after.json --line train.py:12 --only kernels,source"""
    if snippet is None and given.code is None:
        raise click.UsageError("Missing argument 'SNIPPET'")
    check_files(snippet, save, output, given)
    if beam is not None or optimizations:
        given = replace(given, times=True)
    capture = jobs.load_or_run(snippet, given, quiet_stdout=as_json)
    if (beam is not None or optimizations) and capture.error is None:
        capture = time_again(capture, snippet, given, part, beam, optimizations)
    failed = None
    if save is not None:
        try:
            write_output(save, dump_document(capture))
        except StoreError as error:
            failed = error
    if output is not None:
        draw_lifetimes(capture, output)
    if as_json:
        console.print_json(capture)
    else:
        print_report(capture, only, part, bool(given.memory), sort)
        is_whole = only is None and part.is_whole and not given.memory
        if is_whole and capture.schedules and capture.error is None and not jobs.is_saved(snippet):
            from vmapdbg.page.text.run import print_next_steps

            print_next_steps(capture, console.make_console())
    if failed is not None:
        raise failed  # the report is printed even if the file cannot be written
    console.end_after(capture)
    if strict and not account_of_shown(capture).is_balanced:
        sys.exit(1)


def time_again(
    capture: Capture,
    snippet: str | None,
    given: options.JobOptions,
    part: options.Part,
    beam: int | None,
    optimizations: bool,
) -> Capture:
    """Returns a timed capture with the times of a part's longest kernels with BEAM, and of the longest one with other
    optimizations. The snippet runs once more for each. Raises Failure for a missing part."""
    from vmapdbg.page.view import View

    selected = part.select(View.of_one(capture))
    changes = None if selected is None else (change for pair in selected for change in pair.kernels)
    searched = list_longest(capture.kernels if changes is None else [change.after[0].kernel for change in changes])
    if beam is not None:
        capture = add_beam_times(capture, jobs.run_optimized(snippet, given, beam, searched), searched)
    if optimizations:
        capture = add_optimizations(capture, jobs.run_optimized(snippet, given, 0, searched[:1]))
        if not any(kernel.optimizations for kernel in capture.kernels):
            name = next((kernel.name for kernel in capture.kernels if kernel.key in searched), "no kernel")
            why = "it writes to what it reads, or did not run again"
            console.say(f"{name} was not timed with other optimizations: {why}")
    return capture


def check_files(snippet: str | None, save: Path | None, output: Path | None, given: options.JobOptions) -> None:
    """Raises Failure, before anything runs, for a file that cannot be written."""
    if save is not None:
        check_output(save, snippet)
    if output is not None and not given.memory:
        raise Failure("-o is for the lifetimes of --memory; for other pictures there is vmapdbg graph")
    check_target(output, snippet, (".svg",))


def draw_lifetimes(capture: Capture, output: Path) -> None:
    """Writes the lifetime picture. Raises Failure if the capture has no memory to draw."""
    from vmapdbg.page.format import Places
    from vmapdbg.page.lifetimes import Picture

    if capture.memory is None:
        raise Failure(f"nothing to draw to {output}: the memory of the run is not known")
    write_output(output, Picture(capture.memory, Places.of(capture)).draw_svg())
    console.say(f"wrote {output}")


def print_report(
    capture: Capture, only: tuple[str, ...] | None, part: options.Part, of_memory: bool, sort: Sort | None
) -> None:
    """Prints a capture, a part, or the page `of_memory`; an overview if it is long, timed or sorted. Raises Failure if
    it lacks the part, or times to sort by."""
    if not capture.schedules:
        console.report_no_schedule(capture)
        return
    from vmapdbg.page.overview import group_kernels, is_long, is_long_part
    from vmapdbg.page.text.run import print_capture, print_memory, print_overview, print_part
    from vmapdbg.page.view import View

    if sort in ("time", "median") and capture.timing is None:
        raise Failure(f"--sort {sort} needs the times of the kernels: --time")
    view = replace(View.of_one(capture), sort=sort)
    is_whole = only is None and part.is_whole
    if is_whole and of_memory:
        print_memory(capture, console.make_console())
        return
    # a timed run is about its times
    if is_whole and (capture.timing is not None or sort is not None or is_long(view)):
        print_overview(view, console.make_console(), _SEE_MORE)
        return
    selected = part.select(view)
    if selected is not None and only is None and not part.show_all:
        chosen = replace(view, schedules=tuple(selected))
        named = part.line or next((row.kernel.name for row in group_kernels(chosen)), None)
        if named is not None and is_long_part(chosen):
            asked = part.line or (f"schedule {part.number}" if part.kernel is None else f"kernel {part.kernel}")
            print_part(chosen, console.make_console(), asked, _SEE_PART.format(named))
            return
    print_capture(
        capture,
        console.make_console(),
        only=only or tuple(SECTIONS),
        schedule=part.schedule,
        show_all=part.show_all,
        selected=None if part.kernel is None and part.line is None else selected,
    )
