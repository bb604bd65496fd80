"""The command line: option types, the options that several commands have, and what the shell completes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from vmapdbg.commands.shared.work_folder import recall_names
from vmapdbg.install.patches import PATCHES, PatchError, Patches, parse_patches
from vmapdbg.install.targets import DEFAULT_TARGET, TARGETS
from vmapdbg.model.capture import Capture
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import load_capture

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    ParamType = click.ParamType[Any]
else:
    # before click 8.5 it takes no type argument
    ParamType = click.ParamType

_WORDS = "vmapdbg.words"
"""The words typed so far, in the `meta` of the context: click parses nothing while an option waits for its value."""
_ARGUMENTS = "vmapdbg.arguments"

# *** completion


def offer(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Returns the names that begin with what is typed."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def offer_files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Makes the shell offer files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def offer_last(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Completes the last name of a comma separated list."""
    before, comma, last = incomplete.rpartition(",")
    return offer([before + comma + name for name in names if name.startswith(last)], incomplete)


def offer_patches(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes a list of patches; a dash before a name switches it off."""
    names = [patch.name for patch in PATCHES]
    switchable = [patch.name for patch in PATCHES if patch.switchable]
    return offer_last(["all", "none", *names, *(f"-{name}" for name in switchable)], incomplete)


def offer_baselines(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes a baseline: patches, stock, or a file."""
    named = [*offer(["stock"], incomplete), *offer_patches(context, option, incomplete)]
    return named or offer_files(context, option, incomplete)


def offer_kernels(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes the name of a kernel: of the saved capture on the command line, or of the last run."""
    return offer(known_names(context)["kernels"], incomplete)


def offer_lines(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes a line that made kernels."""
    return offer(known_names(context)["lines"], incomplete)


def offer_subjects(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes the SUBJECT of `why`, or a file."""
    names = known_names(context)
    return offer([*names["kernels"], *names["lines"]], incomplete) or offer_files(context, option, incomplete)


def known_names(context: click.Context) -> dict[str, list[str]]:
    """Returns the kernels and lines of the capture on the command line, else of the last run."""
    saved = next((word for word in context.meta.get(_WORDS, ()) if word.endswith(".json")), None)
    if saved is None:
        return recall_names()
    try:
        return list_names(load_capture(saved))
    except Failure:
        return {"kernels": [], "lines": []}


def list_names(capture: Capture) -> dict[str, list[str]]:
    """Returns the names of the kernels of a capture, and the lines that made them."""
    return {
        "kernels": list(dict.fromkeys(kernel.name for kernel in capture.kernels)),
        "lines": sorted({line for kernel in capture.kernels for line in kernel.lines}),
    }


# *** types


class PatchesType(ParamType):
    """A `--patches` value."""

    name = "SPEC"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Patches:
        try:
            return parse_patches(str(value))
        except PatchError as error:
            self.fail(str(error), param, ctx)


class NamesType(ParamType):
    """A comma separated list of names, each in `known`. `noun` is what error messages call a name."""

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


class ScheduleType(ParamType):
    """The number of a schedule, or `all`."""

    name = "N|all"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | Literal["all"]:
        if value == "all":
            return "all"
        try:
            return int(str(value))
        except ValueError:
            self.fail(f"{value!r} is no schedule number and not 'all'", param, ctx)


class SecondsType(click.FloatRange):
    """A number of seconds greater than 0."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return seconds


# *** options that several commands have

snippet_argument = click.argument("snippet", required=False, shell_complete=offer_files)
arguments_argument = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)


def json_option(help_text: str) -> Callable[[Any], Any]:
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def baseline_option(help_text: str, **more: Any) -> Callable[[Any], Any]:
    return click.option("--baseline", shell_complete=offer_baselines, help=help_text, **more)


def output_option(help_text: str, *names: str, required: bool = False) -> Callable[[Any], Any]:
    """Makes the option for a file to write, -o unless it has other `names`."""
    kind = click.Path(path_type=Path)
    return click.option(*(names or ("-o", "--output")), type=kind, required=required, help=help_text)


def patches_option(help_text: str, default: str | None = None) -> Callable[[Any], Any]:
    return click.option("--patches", type=PatchesType(), default=default, shell_complete=offer_patches, help=help_text)


def target_option(help_text: str) -> Callable[[Any], Any]:
    return click.option("--target", type=click.Choice(list(TARGETS)), help=f"{help_text}  [default: {DEFAULT_TARGET}]")


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

# *** the options of a job


@dataclass(frozen=True)
class JobOptions:
    """The options of a job, as given. None: the value of the remembered job, or the default."""

    target: str | None
    patches: Patches | None
    timeout: float | None
    tree: str | None = None
    python: str | None = None
    arguments: tuple[str, ...] | None = None
    """The arguments for the snippet, after `--`."""
    code: str | None = None
    """Python code in place of a snippet."""


class SnippetCommand(click.Command):
    """A command that takes a snippet. What follows `--` are the snippet's arguments, not the command's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = tuple(args)
        if "--" in args:
            end = args.index("--")
            ctx.meta[_ARGUMENTS] = tuple(args[end + 1 :])
            args = args[:end]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        pieces = [piece for piece in super().collect_usage_pieces(ctx) if not piece.startswith("[ARGUMENTS]")]
        return [*pieces, "[-- ARGUMENTS]"]


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options of a job. It gets them as `options`, one JobOptions. Its class is SnippetCommand."""

    @click.option("-c", "code", metavar="CODE", help="Python code in the place of SNIPPET; - reads it from stdin.")
    @target_option("Render source for it.")
    @patches_option("Which patches are on: all, none, or a list such as all,-close-ranges.  [default: all]")
    @tinygrad_option
    @python_option
    @click.option("--timeout", type=SecondsType(), help="Stop the snippet after this many seconds.")
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
