"""What the shell offers for arguments and options: files, patches, kernels and lines of the last run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from vmapdbg.commands.last_job import recall_names
from vmapdbg.install.patches import PATCHES
from vmapdbg.model.capture import Capture
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import load_capture

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

WORDS = "vmapdbg.words"
"""What is typed already, in the `meta` of the context: of an option that waits for its value click parses nothing."""


def offer(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Returns those of some names that go on from what is typed."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def offer_files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Has the shell offer files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def offer_last(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Completes the last name of a comma separated list."""
    before, comma, last = incomplete.rpartition(",")
    return offer([before + comma + name for name in names if name.startswith(last)], incomplete)


def offer_patches(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes a list of patches: each may be on, or off with a dash."""
    names = [patch.name for patch in PATCHES]
    switchable = [patch.name for patch in PATCHES if patch.switchable]
    return offer_last(["all", "none", *names, *(f"-{name}" for name in switchable)], incomplete)


def offer_baselines(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes what --baseline takes: patches, stock, or a file."""
    named = [*offer(["stock"], incomplete), *offer_patches(context, option, incomplete)]
    return named or offer_files(context, option, incomplete)


def offer_kernels(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes the name of a kernel: of the saved capture on the command line, or of the last run."""
    return offer(find_names(context)["kernels"], incomplete)


def offer_lines(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes a line that made kernels."""
    return offer(find_names(context)["lines"], incomplete)


def offer_subjects(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes what `why` explains, or the file in its place."""
    names = find_names(context)
    return offer([*names["kernels"], *names["lines"]], incomplete) or offer_files(context, option, incomplete)


def find_names(context: click.Context) -> dict[str, list[str]]:
    """Returns the names of kernels and the lines of the capture that is typed already, else those of the last run."""
    saved = next((word for word in context.meta.get(WORDS, ()) if word.endswith(".json")), None)
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
