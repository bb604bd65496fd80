"""The command line: parse, call, print."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import click

from vmapdbg import __version__
from vmapdbg.commands.bisect import bisect
from vmapdbg.commands.check import check
from vmapdbg.commands.jobs import (
    capture_job,
    check_snippet,
    find_capture,
    find_job,
    find_sides,
    on,
    read_capture,
    side_capture,
)
from vmapdbg.commands.last_job import remember_job
from vmapdbg.commands.launcher import TARGETS, Job
from vmapdbg.commands.lint import lint, run_linted
from vmapdbg.commands.options import (
    EXIT_CHILD,
    EXIT_SNIPPET,
    EXIT_USAGE,
    SECTIONS,
    Commands,
    Failure,
    ScheduleType,
    SectionsType,
    end_after,
    make_console,
    patches_option,
    target_option,
    tell_no_schedule,
    timeout_option,
)
from vmapdbg.data import to_data
from vmapdbg.model import Capture
from vmapdbg.overlay import child_environment
from vmapdbg.patches import PATCHES, format_patches, patch_states
from vmapdbg.store import StoreError, dump_capture, save_capture


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vmapdbg")
def main() -> None:
    """See what tinygrad's scheduler did to a program, and why."""


@main.command()
@click.argument("snippet")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@target_option
@click.option("--only", type=SectionsType(), default=SECTIONS, help=f"Print only these: {','.join(SECTIONS)}.")
@click.option("--schedule", type=ScheduleType(), help="Print only this schedule.")
@click.option("--all", "show_all", is_flag=True, help="Print every node of a long graph.")
@click.option("--json", "as_json", is_flag=True, help="Print the capture as one JSON document.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write the capture to a file, too.")
@patches_option
@timeout_option
def show(
    snippet: str,
    arguments: tuple[str, ...],
    target: str | None,
    only: tuple[str, ...],
    schedule: int | Literal["all"] | None,
    show_all: bool,
    as_json: bool,
    save: Path | None,
    patches: frozenset[str] | None,
    timeout: float | None,
) -> None:
    """Run SNIPPET and show what the scheduler did: ranges, vmap_map, BUFFERIZE, kernels, source.

    ARGUMENTS after -- are the snippet's own.

    \b
    Examples:
      vmapdbg show samples/lost_range.py
      vmapdbg show samples/lost_range.py --patches ambient-ranges,nested-ranges --only bufferize,source
      vmapdbg show train.py --target metal --save after.json -- --steps 1
    """
    check_snippet(snippet)
    job = Job(snippet, arguments, target or "c", on(patches), timeout)
    remember_job(job)
    capture = capture_job(job, as_json)
    try:
        if save is not None:
            save_capture(capture, save)
    except StoreError as error:
        raise Failure(str(error), EXIT_USAGE) from None
    if as_json:
        sys.stdout.write(dump_capture(capture))
    else:
        print_report(capture, only, schedule, show_all)
    end_after(capture)


def print_report(
    capture: Capture, only: tuple[str, ...], schedule: int | Literal["all"] | None, show_all: bool
) -> None:
    count = len(capture.schedules)
    if isinstance(schedule, int) and not 0 <= schedule < count:
        raise Failure(f"there is no schedule {schedule}: {capture.snippet} made {count}", EXIT_USAGE)
    if count == 0:
        tell_no_schedule(capture)
        return
    from vmapdbg.render.text.capture import print_capture

    print_capture(capture, make_console(), only=only, schedule=schedule, show_all=show_all)


@main.command()
@click.argument("subject", required=False)
@click.argument("snippet", required=False)
@click.option("--schedule", type=click.IntRange(min=0), help="Look only at this schedule.")
@target_option
@patches_option
@timeout_option
def why(
    subject: str | None,
    snippet: str | None,
    schedule: int | None,
    target: str | None,
    patches: frozenset[str] | None,
    timeout: float | None,
) -> None:
    """Explain every decision about SUBJECT: a node's number, a kernel's name, or a line such as model.py:12.

    Without SUBJECT: one line for each buffer between two kernels, and why they are not one. SNIPPET is a Python file
    or a saved capture; without it, the snippet of the last show.

    \b
    Examples:
      vmapdbg why 48
      vmapdbg why 28 samples/ffn_overfusion.py
      vmapdbg why samples/ffn_overfusion.py:19
      vmapdbg why
    """
    if snippet is None and subject is not None and subject.endswith((".py", ".json")):
        subject, snippet = None, subject
    capture = find_capture(snippet, target, patches, timeout)
    if not capture.schedules:
        tell_no_schedule(capture)
        end_after(capture)
        return
    from vmapdbg.render.text.why import print_explanations
    from vmapdbg.why import UnknownSubject, explain

    try:
        explanations = explain(capture, subject, schedule)
    except UnknownSubject as error:
        raise Failure(str(error), EXIT_USAGE) from None
    print_explanations(capture, explanations, make_console())
    end_after(capture)


@main.command()
@click.argument("inputs", nargs=-1)
@click.option(
    "--baseline",
    is_flag=False,
    flag_value="none",
    default="none",
    help="The before: none (every switchable patch off), stock (no overlay), a patch list, or a saved capture.",
)
@target_option
@patches_option
@timeout_option
@click.option("--all", "show_all", is_flag=True, help="Print what did not change, too.")
@click.option("--unified", is_flag=True, help="Print changed source in one column.")
@click.option("--json", "as_json", is_flag=True, help="Print the differences as one JSON document.")
@click.option("--exit-code", is_flag=True, help="End with 1 when there are differences.")
def diff(
    inputs: tuple[str, ...],
    baseline: str,
    target: str | None,
    patches: frozenset[str] | None,
    timeout: float | None,
    show_all: bool,
    unified: bool,
    as_json: bool,
    exit_code: bool,
) -> None:
    """Show what the patches change: INPUTS is a SNIPPET, or two saved captures, or nothing for the last snippet.

    Both sides run at the same time; what the snippet prints on them is compared, too.

    \b
    Examples:
      vmapdbg diff --baseline
      vmapdbg diff samples/ffn_overfusion.py --baseline=all,-fusion-guard
      vmapdbg diff samples/softmax.py --baseline=stock --exit-code
      vmapdbg diff before.json after.json --json
    """
    inputs, baseline = untangle_baseline(inputs, baseline)
    before, after, printed = find_pair(inputs, baseline, target, patches, timeout)
    from vmapdbg.diff import diff_captures

    found = diff_captures(before, after, printed)
    if as_json:
        sys.stdout.write(dump_diff(found))
    else:
        from vmapdbg.render import print_diff

        print_diff(found, make_console(), show_all=show_all, unified=unified)
    if after.error is not None:
        sys.exit(EXIT_CHILD if after.error.type == "ChildDied" else EXIT_SNIPPET)
    sys.exit(1 if exit_code and not found.is_empty else 0)


def dump_diff(found: Any) -> str:
    return json.dumps(to_data(found), indent=1, allow_nan=False) + "\n"


def untangle_baseline(inputs: tuple[str, ...], baseline: str) -> tuple[tuple[str, ...], str]:
    """`--baseline snippet.py` means `snippet.py --baseline`."""
    if baseline.endswith(".py"):
        return (baseline, *inputs), "none"
    return inputs, baseline


def find_pair(
    inputs: tuple[str, ...],
    baseline: str,
    target: str | None,
    patches: frozenset[str] | None,
    timeout: float | None,
) -> tuple[Capture, Capture, tuple[str, str] | None]:
    """Returns before, after, and what the snippet printed on both where it ran."""
    if len(inputs) > 2:
        raise Failure("diff takes one snippet or two saved captures", EXIT_USAGE)
    if len(inputs) == 2:
        return read_capture(inputs[0]), read_capture(inputs[1]), None
    if inputs and inputs[0].endswith(".json"):
        if not baseline.endswith(".json"):
            raise Failure(
                "a saved capture is compared with another one: vmapdbg diff before.json after.json", EXIT_USAGE
            )
        return read_capture(baseline), read_capture(inputs[0]), None
    job = replace(find_job(inputs[0] if inputs else None, target, patches, timeout), values=True)
    sides = find_sides(job, baseline)
    sys.stderr.buffer.write(sides[1].stdout + sides[1].stderr)
    sys.stderr.flush()
    printed = None if baseline.endswith(".json") else (decode(sides[0].stdout), decode(sides[1].stdout))
    return side_capture(sides[0], job), side_capture(sides[1], job), printed


def decode(output: bytes) -> str:
    return output.decode("utf-8", "backslashreplace")


@main.command()
@click.argument("snippet", required=False)
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="svg, png, pdf, dot or json.")
@click.option(
    "--stage",
    type=click.Choice(["tensor", "ranges", "kernels"]),
    default="tensor",
    show_default=True,
    help="What is drawn.",
)
@click.option("--schedule", type=click.IntRange(min=0), help="Draw this schedule; default: the last with kernels.")
@click.option("--around", type=click.IntRange(min=0), help="Draw only what is near this node.")
@click.option("--depth", type=click.IntRange(min=0), help="How far from --around, in edges.")
@click.option(
    "--fold", type=click.IntRange(0, 3), help="How much to fold: 0 nothing, 3 most; default: what the size asks for."
)
@click.option("--diff", "with_baseline", is_flag=True, help="Draw the baseline over it: removed red, added green.")
@click.option("--baseline", default="none", help="The before of --diff.", show_default=True)
@target_option
@patches_option
@timeout_option
def graph(
    snippet: str | None,
    output: Path,
    stage: Literal["tensor", "ranges", "kernels"],
    schedule: int | None,
    around: int | None,
    depth: int | None,
    fold: int | None,
    with_baseline: bool,
    baseline: str,
    target: str | None,
    patches: frozenset[str] | None,
    timeout: float | None,
) -> None:
    """Draw the schedule of SNIPPET (a Python file, a saved capture, or the last snippet) to a file.

    \b
    Examples:
      vmapdbg graph -o out.svg
      vmapdbg graph samples/lost_range.py -o kernels.svg --stage kernels
      vmapdbg graph -o change.svg --diff --around 48 --depth 3
    """
    from vmapdbg.render.graph.write import GraphError, write_graph

    other = None
    if with_baseline:
        inputs = () if snippet is None else (snippet,)
        other, capture, _ = find_pair(inputs, baseline, target, patches, timeout)
    else:
        capture = find_capture(snippet, target, patches, timeout)
    try:
        notes = write_graph(
            capture, output, stage=stage, schedule=schedule, around=around, depth=depth, other=other, fold=fold
        )
    except (GraphError, StoreError) as error:
        raise Failure(str(error), EXIT_USAGE) from None
    for note in (*notes, f"wrote {output}"):
        click.echo(f"vmapdbg: {note}", err=True)
    end_after(capture)


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@patches_option
@click.option("--lint", "with_lint", is_flag=True, help="Lint each kernel; findings at the end, on stderr, and exit 1.")
@click.option(
    "--target", type=click.Choice(TARGETS), default="c", help="What --lint renders kernels for.  [default: c]"
)
@click.option("--lint-output", type=click.Path(dir_okay=False, path_type=Path), help="Write them as JSON, too.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    patches: frozenset[str] | None,
    with_lint: bool,
    target: str,
    lint_output: Path | None,
    program: tuple[str, ...],
) -> None:
    """Run a program on patched tinygrad: SCRIPT [ARGS] or -m MODULE [ARGS].

    Python processes that it starts (pytest-xdist workers, spawn, BEAM) get the same overlay and patches.

    \b
    Examples:
      vmapdbg run --patches all,-close-ranges -m pytest -n 2 test_schedule.py
      vmapdbg run --lint train.py --steps 1
    """
    if program[0] == "-m":
        if len(program) == 1:
            raise Failure("-m needs the name of a module", EXIT_USAGE)
    else:
        check_snippet(program[0])
    environment = child_environment(format_patches(on(patches)), dict(os.environ))
    sys.stdout.flush()
    if with_lint or lint_output is not None:
        sys.exit(run_linted(program, environment, target, lint_output))
    os.execve(sys.executable, [sys.executable, *program], environment)


main.add_command(lint)
main.add_command(check)
main.add_command(bisect)


@main.command()
@patches_option
def patches(patches: frozenset[str] | None) -> None:
    """Show the patches, what each does, and its state.

    \b
    Example:
      vmapdbg patches --patches all,-nested-ranges
    """
    from vmapdbg.render.text.capture import print_patches

    print_patches(PATCHES, patch_states(on(patches)), make_console())
