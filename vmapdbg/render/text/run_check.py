"""Prints what `vmapdbg run --check` found: each wrong value with its tests, then how much was compared."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from vmapdbg.check.blame import LIVE_CHANGED, OVERWRITTEN, STALE_READ
from vmapdbg.check.suite import WrongValue
from vmapdbg.model.wording import format_plural
from vmapdbg.render.run_check import RunCheckDocument
from vmapdbg.render.text.layout import Page

_MOST_TESTS = 3
_MOST_REASONS = 12
_NAMES = {
    OVERWRITTEN: "overwritten input",
    LIVE_CHANGED: "overwritten tensor",
    STALE_READ: "read at the wrong time",
}


def print_run_check(document: RunCheckDocument, console: Console) -> None:
    """Prints the findings of a program, and the summary."""
    page = Page(console)
    lines: list[Text] = []
    for wrong in document.findings:
        lines += format_wrong(page, wrong)
    lines += format_summary(page, document)
    page.show(lines)


def format_wrong(page: Page, wrong: WrongValue) -> list[Text]:
    name = f" {_NAMES.get(wrong.code, 'wrong value')}"
    lines = page.wrap((wrong.line or "?", "bold"), "  ", (wrong.code, "bold red"), name, hang=2)
    lines += page.wrap(wrong.message, indent=4, hang=2)
    shown = wrong.tests[:_MOST_TESTS]
    for test in shown:
        lines += page.wrap(("in ", "dim"), test, indent=4, hang=5)
    if len(wrong.tests) > len(shown):
        lines += page.wrap((f"and {format_plural(len(wrong.tests) - len(shown), 'other test')}", "dim"), indent=4)
    return lines


def format_summary(page: Page, document: RunCheckDocument) -> list[Text]:
    compared = f"{document.compared:,} of {format_plural(document.schedules, 'schedule')} compared"
    if document.replays:
        compared += f", {document.replays_compared:,} of {format_plural(document.replays, 'replay')}"
    verdict = (f"{format_plural(document.values, 'value')}, all right", "bold green")
    if document.findings:
        tests = {test for wrong in document.findings for test in wrong.tests}
        found = f"{format_plural(len(document.findings), 'finding')} in {format_plural(len(tests), 'test')}"
        verdict = (f"{found} ({format_plural(document.values, 'value')})", "bold red")
    elif not document.values:
        verdict = ("nothing was compared", "bold yellow")
    lines = page.wrap("vmapdbg check: ", verdict, f"; {compared}", hang=2)
    reasons = list(document.unchecked.items())
    for reason, count in reasons[:_MOST_REASONS]:
        lines += page.wrap((f"not compared, {count:,} times: ", "yellow"), reason, indent=2, hang=2)
    if len(reasons) > _MOST_REASONS:
        rest = sum(count for _, count in reasons[_MOST_REASONS:])
        lines += page.wrap((f"not compared for other reasons: {rest:,} times (--json has them)", "yellow"), indent=2)
    return lines
