"""What the commands have in common on the command line: option types, shared options, how a command ends."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from vmapdbg.bisect import KERNEL_COUNT, KINDS
from vmapdbg.commands.completion import WORDS, offer, offer_files, offer_last, offer_patches
from vmapdbg.commands.console import close_pager
from vmapdbg.install.patches import PatchError, Patches, parse_patches
from vmapdbg.install.targets import DEFAULT_TARGET, TARGETS
from vmapdbg.model.capture import Capture
from vmapdbg.model.failure import EXIT_CHILD, EXIT_SNIPPET

# *** types

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    # before click 8.5 it takes no type argument
    _ParamType = click.ParamType


class PatchesType(_ParamType):
    """A `--patches` value."""

    name = "SPEC"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Patches:
        try:
            return parse_patches(str(value))
        except PatchError as error:
            self.fail(str(error), param, ctx)


class NamesType(_ParamType):
    """A comma separated list of names, each one of `known`. `noun` is what an unknown one is called."""

    def __init__(self, noun: str, known: Collection[str], convert_name: Callable[[str], str] = str):
        self.name, self.noun, self.known = f"{noun.upper()}S", noun, known
        self.convert_name = convert_name

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        names = tuple(self.convert_name(name.strip()) for name in str(value).split(","))
        for name in names:
            if name not in self.known:
                self.fail(f"unknown {self.noun} {name!r}: choose from {', '.join(self.known)}", param, ctx)
        return names

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        return offer_last(self.known, incomplete)


class OutcomeType(_ParamType):
    """A kind of outcome, or a number of kernels: `12 kernels` tells runs with that many from all others."""

    name = "KIND"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = " ".join(str(value).split())
        if text not in KINDS and KERNEL_COUNT.fullmatch(text) is None:
            self.fail(f"{text!r} is none of {', '.join(KINDS)} and no count such as '12 kernels'", param, ctx)
        return text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        return offer(KINDS, incomplete)


class ScheduleType(_ParamType):
    """The number of a schedule, or `all`."""

    name = "N|all"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | Literal["all"]:
        if value == "all":
            return "all"
        try:
            return int(str(value))
        except ValueError:
            self.fail(f"{value!r} is no schedule number and not 'all'", param, ctx)


# *** how the job is run


@dataclass(frozen=True)
class JobOptions:
    """The options of a job, as given. None: that of the remembered job, or the default."""

    target: str | None
    patches: Patches | None
    timeout: float | None
    tree: str | None = None
    python: str | None = None
    arguments: tuple[str, ...] | None = None
    """The snippet's own, after `--`."""
    code: str | None = None
    """Python code in the place of a snippet."""


def make_patches_option(default: str | None) -> Callable[[Any], Any]:
    return click.option(
        "--patches",
        type=PatchesType(),
        default=default,
        shell_complete=offer_patches,
        help="Which patches are on: all, none, or a list such as all,-close-ranges.  [default: all]",
    )


patches_option = make_patches_option("all")
_job_patches_option = make_patches_option(None)
_target_option = click.option(
    "--target", type=click.Choice(list(TARGETS)), help=f"Render source for it.  [default: {DEFAULT_TARGET}]"
)


class SecondsType(click.FloatRange):
    """A number of seconds, more than none."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return seconds


_timeout_option = click.option("--timeout", type=SecondsType(), help="Stop the snippet after this many seconds.")

_code_option = click.option(
    "-c", "code", metavar="CODE", help="Python code in the place of SNIPPET; - reads it from stdin."
)

tinygrad_option = click.option(
    "--tinygrad",
    "tree",
    metavar="VERSION|PATH|PATH@REV",
    shell_complete=offer_files,
    help="Look at this tinygrad: a release, a checkout, or a revision of one.  [default: what Python imports here]",
)
python_option = click.option(
    "--python",
    metavar="PATH",
    shell_complete=offer_files,
    help="Run the snippet with this interpreter, which needs tinygrad and nothing of ours.",
)


_ARGUMENTS = "vmapdbg.arguments"


class SnippetCommand(click.Command):
    """A command that takes a snippet. What follows `--` are the snippet's own arguments, and none of the command's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = tuple(args)
        if "--" in args:
            end = args.index("--")
            ctx.meta[_ARGUMENTS] = tuple(args[end + 1 :])
            args = args[:end]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        pieces = [piece for piece in super().collect_usage_pieces(ctx) if not piece.startswith("[ARGUMENTS]")]
        return [*pieces, "[-- ARGUMENTS]"]


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options of a job; it gets them as `options`, one JobOptions. Its class is SnippetCommand."""

    @_code_option
    @_target_option
    @_job_patches_option
    @tinygrad_option
    @python_option
    @_timeout_option
    @functools.wraps(command)
    def take_options(
        *args: Any,
        target: str | None,
        patches: Patches | None,
        timeout: float | None,
        tree: str | None,
        python: str | None,
        code: str | None,
        **more: Any,
    ) -> Any:
        arguments = click.get_current_context().meta.get(_ARGUMENTS)
        options = JobOptions(target, patches, timeout, tree, python, arguments, code)
        return command(*args, options=options, **more)

    return take_options


# *** what is printed, and how a command ends


def tell_no_schedule(capture: Capture) -> None:
    """Says why there is nothing to see, unless the snippet failed: that is told already."""
    if capture.error is None:
        click.echo(
            f"vmapdbg: {capture.snippet} made no schedule: it realized nothing and left no lazy Tensor in a global",
            err=True,
        )


# the errors of a snippet that did not end by itself
_HUNG = frozenset({"ChildDied", "EndlessRewrite"})


def end_after(capture: Capture) -> None:
    """Ends with the code of the snippet's failure, if it failed. Its traceback is on stderr already."""
    close_pager()
    if capture.error is not None and capture.error.type == "SystemExit":
        click.echo(f"vmapdbg: {capture.snippet} exited with status {capture.error.message}", err=True)
    end_if_failed(capture)


def end_if_failed(capture: Capture) -> None:
    """Does the same where the snippet's exit status is printed already, or its child may have died."""
    close_pager()
    status = find_exit_code(capture)
    if status:
        sys.exit(status)


def find_exit_code(capture: Capture) -> int:
    """Returns the code of a snippet's failure, 0 where it did not fail."""
    if capture.error is not None:
        return EXIT_CHILD if capture.error.type in _HUNG else EXIT_SNIPPET
    if any(kernel.failed is not None for kernel in capture.kernels):
        # the snippet did not need its program: nothing is known of it
        return EXIT_CHILD
    return 0
