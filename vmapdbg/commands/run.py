"""`vmapdbg run`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from vmapdbg.commands.completion import offer_files, offer_patches
from vmapdbg.commands.jobs import apply_options, apply_settings, check_snippet
from vmapdbg.commands.options import JobOptions, PatchesType, python_option, tinygrad_option
from vmapdbg.commands.programs import Program
from vmapdbg.commands.run_check import run_and_check
from vmapdbg.commands.run_lint import run_and_print
from vmapdbg.commands.run_save import run_and_save
from vmapdbg.commands.tinygrad import settle_job
from vmapdbg.install.job import Job
from vmapdbg.install.patches import Patches
from vmapdbg.install.targets import DEFAULT_TARGET, TARGETS
from vmapdbg.model.failure import Failure

_NO_FILES = ("-m", "-c", "-")
"""What Python takes in the place of a script's name."""


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--patches",
    type=PatchesType(),
    shell_complete=offer_patches,
    help="Which patches are on: all, none, or a list.  [default: all, where they fit]",
)
@tinygrad_option
@python_option
@click.option("--lint", "with_lint", is_flag=True, help="Lint each kernel; findings at the end, on stderr, and exit 1.")
@click.option(
    "--target",
    type=click.Choice(list(TARGETS)),
    help=f"What --lint and --save render kernels for.  [default: {DEFAULT_TARGET}]",
)
@click.option("--lint-output", type=click.Path(dir_okay=False, path_type=Path), help="Write them as JSON, too.")
@click.option("--save", type=click.Path(path_type=Path), help="Save what each test schedules into this folder.")
@click.option(
    "--check", "with_check", is_flag=True, help="Compare each value that is realized with the numpy reference."
)
@click.option("--json", "as_json", is_flag=True, help="Print what --check found as one JSON document.")
@click.argument("program", nargs=-1, shell_complete=offer_files, required=True, type=click.UNPROCESSED)
def run(
    patches: Patches | None,
    tree: str | None,
    python: str | None,
    with_lint: bool,
    target: str | None,
    lint_output: Path | None,
    save: Path | None,
    with_check: bool,
    as_json: bool,
    program: tuple[str, ...],
) -> None:
    """Run a program on patched tinygrad, or on another one: SCRIPT [ARGS], -m MODULE [ARGS], -c CODE [ARGS], or - for
    stdin.

    Python processes that it starts (pytest-xdist workers, spawn, BEAM) get the same tinygrad and the same patches.

    \b
    Examples:
      vmapdbg run --patches all,-close-ranges -m pytest -n 2 test_schedule.py
      vmapdbg run --lint train.py --steps 1
      vmapdbg run --save before -m pytest -n 2 test_ops.py   # then vmapdbg diff before after
      vmapdbg run --check -m pytest -n 2 test_ops.py
    """
    linting = with_lint or lint_output is not None
    if linting and save is not None:
        raise Failure("--lint and --save are for two runs: give one of them")
    if with_check and (linting or save is not None):
        raise Failure("--check is for a run of its own: without --lint and --save")
    if as_json and not with_check:
        raise Failure("--json prints what --check found: give both, or --lint-output FILE")
    if program in (("-m",), ("-c",)):
        raise Failure({"-m": "-m needs the name of a module", "-c": "-c needs code"}[program[0]])
    if program[0] not in _NO_FILES:
        check_snippet(program[0])
    # what is no file is looked for in the working directory first
    plain = apply_settings(Job(program[0], program[1:], tree=tree or "", python=python or ""))
    job = apply_options(plain, JobOptions(target, patches, None))
    asked = Program(program, settle_job(job, patches))
    # what is buffered would be lost when the program takes the place of this process
    sys.stdout.flush()
    if save is not None:
        sys.exit(run_and_save(asked, save))
    if with_check:
        sys.exit(run_and_check(asked, as_json))
    if linting:
        sys.exit(run_and_print(asked, lint_output))
    os.execvpe(asked.command[0], asked.command, asked.find_environment())
