"""The command line: option types, and the options that several commands have."""

import contextlib
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from vmapdbg.install.patches import Patches, parse_patches
from vmapdbg.install.targets import DEFAULT_TARGET, TARGETS
from vmapdbg.model.failure import Failure

if TYPE_CHECKING:
    from vmapdbg.diff.result import ScheduleDiff
    from vmapdbg.page.view import View

_ARGUMENTS = "vmapdbg.arguments"  # the words after `--`, in the `meta` of the context

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[Any], Any]

# *** types


class FileName(click.Path):
    """A name that the shell completes. Commands check the file themselves."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("it is empty", param, ctx)
        return super().convert(value, param, ctx)


FILE = FileName()


class TextType(click.ParamType[Any]):
    """A value that `read` makes of a text. It raises ValueError with the message for the user."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self.read = name, read

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.read(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def names(noun: str, known: Collection[str], convert_name: Callable[[str], str] = str) -> TextType:
    """Returns the type of a comma separated list of names, each in `known`: a tuple. Messages call a name `noun`."""

    def read_names(text: str) -> tuple[str, ...]:
        given = tuple(convert_name(name.strip()) for name in text.split(","))
        for name in given:
            if name not in known:
                raise ValueError(f"unknown {noun} {name!r}: choose from {', '.join(known)}")
        return given

    return TextType(f"{noun.upper()}S", read_names)


def _read_node(text: str) -> tuple[int | None, int]:
    if (match := re.fullmatch(r"(?:(\d+)/)?(\d+)", text)) is None:
        raise ValueError(f"{text!r} is not the number of a node, such as 36, or 55/36 of schedule 55")
    return None if match[1] is None else int(match[1]), int(match[2])


def _read_schedule(text: str) -> int | str:
    try:
        return text if text == "all" else int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a schedule number and not 'all'") from None


def _read_seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if (seconds := float(text)) > 0:
            return seconds
    raise ValueError(f"{text!r} is not a number of seconds over 0")


PATCHES = TextType("SPEC", parse_patches)
NODE = TextType("node", _read_node)
"""A node: its number, alone or after its schedule's (`55/36`). The value is a pair, with None for no schedule."""
SCHEDULE = TextType("N|all", _read_schedule)  # the number of a schedule, or `all`
SECONDS = TextType("SECONDS", _read_seconds)  # a number of seconds over 0


# *** options that several commands have

snippet = click.argument("snippet", required=False, type=FILE)
flag = partial(click.option, is_flag=True)
times = flag("--time", "times", default=None, help="Also run what stays lazy, and time every launch.")
memory = flag("--memory", default=None, help="Watch the memory: its peak, and what it is made of.")
strict = flag("--strict", help="Exit with 1 if anything that happened is left over.")
json = partial(flag, "--json", "as_json")
baseline = partial(click.option, "--baseline")


def output(help_text: str, *names: str, required: bool = False) -> Decorator:
    """Makes the option for a file to write, -o unless it has other `names`."""
    kind = click.Path(path_type=Path)
    return click.option(*(names or ("-o", "--output")), type=kind, required=required, help=help_text)


def patches(help_text: str, default: str | None = None) -> Decorator:
    return click.option("--patches", type=PATCHES, default=default, help=help_text)


def target(help_text: str) -> Decorator:
    return click.option("--target", type=click.Choice(list(TARGETS)), help=f"{help_text}  [default: {DEFAULT_TARGET}]")


def tinygrad(command: F) -> F:
    """Gives a command the options --tinygrad and --python."""
    about_tree = "Use this tinygrad: a release, a checkout, or a commit.  [default: what Python imports here]"
    about_python = "Run the snippet with this interpreter. It needs tinygrad, but not vmapdbg."
    tree = click.option("--tinygrad", "tree", metavar="VERSION|PATH|PATH@REV", type=FILE, help=about_tree)
    python = click.option("--python", metavar="PATH", type=FILE, help=about_python)
    return tree(python(command))


# *** the options of a job


@dataclass(frozen=True)
class JobOptions:
    """The options of a job. None: the value of the remembered job, or the default."""

    target: str | None = None
    patches: Patches | None = None
    timeout: float | None = None
    tree: str | None = None
    python: str | None = None
    code: str | None = None  # Python code in place of a snippet
    arguments: tuple[str, ...] | None = None  # the arguments for the snippet
    times: bool | None = None
    memory: bool | None = None

    @property
    def values(self) -> dict[str, Any]:
        """The options that the user gave, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


class SnippetCommand(click.Command):
    """A command with a snippet, its arguments after `--`, and the options `of_job` as one JobOptions, `given`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            end = args.index("--")
            ctx.meta[_ARGUMENTS], args = tuple(args[end + 1 :]), args[:end]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        ctx.params["arguments"] = ctx.meta.get(_ARGUMENTS)
        ctx.params["given"] = _take_fields(JobOptions, ctx.params)
        if "show_all" in ctx.params:
            ctx.params["part"] = _take_fields(Part, ctx.params)
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS]"]


def of_job(command: F) -> F:
    """Gives a SnippetCommand the options of a job."""
    code = click.option("-c", "code", metavar="CODE", help="Python code in place of SNIPPET; - reads it from stdin.")
    spec = patches("Which patches are on: all, none, or a list such as all,-close-ranges.  [default: all]")
    timeout = click.option("--timeout", type=SECONDS, help="Stop the snippet after this many seconds.")
    return code(target("Render source for this target.")(spec(tinygrad(timeout(command)))))


# *** the part of a report


@dataclass(frozen=True)
class Part:
    """The part of a report or a diff to print; None: not given. Raises Failure for both a kernel and a line."""

    schedule: int | Literal["all"] | None
    kernel: str | None
    line: str | None
    show_all: bool

    def __post_init__(self) -> None:
        if self.kernel is not None and self.line is not None:
            raise Failure("--kernel and --line: choose one")

    @property
    def number(self) -> int | None:
        """The index of the schedule, if the user names one."""
        return self.schedule if isinstance(self.schedule, int) else None

    @property
    def is_selected(self) -> bool:
        """Whether an option selects a part."""
        return any(option is not None for option in (self.schedule, self.kernel, self.line))

    @property
    def is_whole(self) -> bool:
        """Whether no option selects a part, or all."""
        return not self.show_all and not self.is_selected

    def select(self, view: "View") -> "list[ScheduleDiff] | None":
        """Returns the chosen kernel, line or schedule; None if none is given. Raises Failure if the view lacks it."""
        from vmapdbg.page.view import select_kernels, select_line, select_schedules

        if self.kernel is not None:
            return select_kernels(view, self.kernel, self.number)
        if self.line is not None:
            return select_line(view, self.line, self.number)
        return None if self.number is None else select_schedules(view, self.number)


def of_part(command: F) -> F:
    """Gives a SnippetCommand the options of a Part, which it gets as `part`."""
    number = click.option("--schedule", type=SCHEDULE, help="Print only this schedule, or all of them.")
    kernel = click.option("--kernel", metavar="NAME|N", help="Print only this kernel.")
    line = click.option("--line", metavar="FILE:N", help="Print only what this line of the snippet made.")
    whole = flag("--all", "show_all", help="Print all: every node, and what is the same in a diff.")
    return number(kernel(line(whole(command))))


R = TypeVar("R", JobOptions, Part)


def _take_fields(record: type[R], values: dict[str, Any]) -> R:
    """Takes the fields of a record out of `values`, and returns the record."""
    return record(**{field.name: values.pop(field.name, None) for field in fields(record)})
