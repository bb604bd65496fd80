"""Prints what `vmapdbg run --check` found: each wrong value with its tests, then how much was compared."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from vmapdbg.check.blame import LIVE_CHANGED, NOT_CHOSEN, OVERWRITTEN, STALE_READ
from vmapdbg.model.wording import format_plural
from vmapdbg.page.run_check import RunCheckDocument, describe_endless
from vmapdbg.page.text.layout import ALERT, Page

_MOST_TESTS = 3
_MOST_REASONS = 12
_NAMES = {
    OVERWRITTEN: "overwritten input",
    LIVE_CHANGED: "overwritten tensor",
    NOT_CHOSEN: "written outside of the index",
    STALE_READ: "read at the wrong time",
}


def print_run_check(document: RunCheckDocument, console: Console) -> None:
    """Prints the findings of a program, and the summary."""
    page = Page(console)
    for wrong in document.findings:
        name = _NAMES.get(wrong.code, "wrong value")
        _print_finding(page, wrong.line, wrong.code, name, [wrong.message], wrong.tests)
    for call in document.endless:
        _print_finding(page, call.line, call.code, "rewriting without end", describe_endless(call), call.tests)
    _print_summary(page, document)
    page.print()


def _print_finding(
    page: Page, line: str | None, code: str, name: str, sentences: Sequence[str], tests: Sequence[str]
) -> None:
    page.add((line or "?", "bold"), "  ", (code, ALERT), f" {name}")
    for sentence in sentences:
        page.add(sentence, indent=4)
    for test in tests[:_MOST_TESTS]:
        page.add(("in ", "dim"), test, indent=4, hang=5)
    if len(tests) > _MOST_TESTS:
        page.add((f"and {format_plural(len(tests) - _MOST_TESTS, 'other test')}", "dim"), indent=4)


def _print_summary(page: Page, document: RunCheckDocument) -> None:
    compared = f"{document.compared:,} of {format_plural(document.schedules, 'schedule')} compared"
    if document.replays:
        compared += f", {document.replays_compared:,} of {format_plural(document.replays, 'replay')}"
    values = format_plural(document.values, "value")
    verdict = (f"{values}, all right", "bold green")
    findings = (*document.findings, *document.endless)
    if findings:
        tests = {test for finding in findings for test in finding.tests}
        found = f"{format_plural(len(findings), 'finding')} in {format_plural(len(tests), 'test')}"
        verdict = (f"{found} ({values})", ALERT)
    elif not document.values:
        verdict = ("nothing was compared", "bold yellow")
    page.add("vmapdbg check: ", verdict, f"; {compared}")
    reasons = list(document.unchecked.items())
    for reason, count in reasons[:_MOST_REASONS]:
        page.add((f"not compared, {count:,} times: ", "yellow"), reason, indent=2)
    if rest := sum(count for _, count in reasons[_MOST_REASONS:]):
        page.add((f"not compared for other reasons: {rest:,} times (--json has them)", "yellow"), indent=2)
