"""The command line: parse, call, print."""

from __future__ import annotations

import os
import sys

import click

from vmapdbg import __version__
from vmapdbg.overlay import child_environment
from vmapdbg.patches import PatchError, format_patches, parse_patches


class PatchesType(click.ParamType):
    """A `--patches` value."""

    name = "SPEC"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[str]:
        if isinstance(value, frozenset):
            return value
        try:
            return parse_patches(str(value))
        except PatchError as error:
            self.fail(str(error), param, ctx)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vmapdbg")
def main() -> None:
    """See what tinygrad's scheduler did to a program, and why."""


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--patches", type=PatchesType(), default="all", show_default=True, help="Which patches are on.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def run(patches: frozenset[str], program: tuple[str, ...]) -> None:
    """Run a program on patched tinygrad: SCRIPT [ARGS] or -m MODULE [ARGS].

    Python processes that it starts (pytest-xdist workers, spawn, BEAM) get the same overlay and patches.

    \b
    Example:
      vmapdbg run --patches all,-close-ranges -m pytest -n 2 test_schedule.py
    """
    environment = child_environment(format_patches(patches), dict(os.environ))
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *program], environment)
