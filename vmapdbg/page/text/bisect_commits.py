"""Prints what `bisect --commits` found: the commit that changed the outcome, and what it changed."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from vmapdbg.model.wording import format_plural
from vmapdbg.page.documents import History
from vmapdbg.page.text.diff import print_diff
from vmapdbg.page.text.layout import Page


def print_history(history: History, console: Console) -> None:
    """Prints the outcomes, the commits that were tried, the one that was looked for, and its schedule diff."""
    page = Page(console)
    counts = f"{format_plural(len(history.tried), 'run')} of {format_plural(history.commits + 1, 'commit')}"
    lines = page.wrap((history.snippet, "bold"), f"  {counts}, by {history.by}", hang=2)
    for outcome in history.outcomes:
        lines += page.wrap((outcome.name, "bold"), f"  {outcome.summary}", indent=2, hang=3)
    lines += [Text(), page.text("tried, the oldest first", "dim")]
    for trial in history.tried:
        lines += page.wrap((trial.outcome or "-", "bold"), f"  {trial.commit}", indent=2, hang=3)
    if any(trial.outcome is None for trial in history.tried):
        lines.append(page.text("  - could not be run", "dim"))
    page.show([*lines, Text(), *_format_found(page, history)])
    if history.changes is not None:
        print_diff(history.changes, console)


def _format_found(page: Page, history: History) -> list[Text]:
    if not history.suspects:
        return page.wrap(("no commit changed the outcome", "bold"), hang=2)
    if len(history.suspects) == 1:
        return page.wrap("the first commit with another outcome: ", (history.suspects[0], "bold green"), hang=2)
    lines = page.wrap("one of these changed the outcome; those before the last cannot be run:", hang=2)
    for commit in history.suspects:
        lines += page.wrap((commit, "bold green"), indent=2, hang=2)
    return lines
