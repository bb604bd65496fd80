"""`vmapdbg run`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from vmapdbg.commands.run_check import run_and_check
from vmapdbg.commands.run_lint import run_and_lint
from vmapdbg.commands.run_save import run_and_save
from vmapdbg.commands.shared.children import Program
from vmapdbg.commands.shared.jobs import apply_options, apply_settings, check_snippet, choose_tinygrad
from vmapdbg.commands.shared.options import (
    JobOptions,
    json_option,
    offer_files,
    output_option,
    patches_option,
    python_option,
    target_option,
    tinygrad_option,
)
from vmapdbg.install.job import Job
from vmapdbg.install.patches import Patches
from vmapdbg.model.failure import Failure

_NO_FILES = ("-m", "-c", "-")
"""What Python accepts in place of a script's name."""


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@patches_option("Which patches are on: all, none, or a list.  [default: all, where they fit]")
@tinygrad_option
@python_option
@click.option("--lint", "with_lint", is_flag=True, help="Lint each kernel; findings at the end, on stderr, and exit 1.")
@target_option("What --lint and --save render kernels for.")
@output_option("Write them as JSON, too.", "--lint-output")
@output_option("Save what each test schedules into this folder.", "--save")
@click.option(
    "--check", "with_check", is_flag=True, help="Compare each value that is realized with the numpy reference."
)
@json_option("Print what --check found as one JSON document.")
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
    # for a program that is no file, the settings of the working directory count
    plain = apply_settings(Job(program[0], program[1:], tree=tree or "", python=python or ""))
    job = apply_options(plain, JobOptions(target, patches, None))
    asked = Program(program, choose_tinygrad(job, patches))
    # execvpe drops what is still in the buffer
    sys.stdout.flush()
    if save is not None:
        sys.exit(run_and_save(asked, save))
    if with_check:
        sys.exit(run_and_check(asked, as_json))
    if linting:
        sys.exit(run_and_lint(asked, lint_output))
    os.execvpe(asked.command[0], asked.command, asked.environment())
