"""Prints what `vmapdbg run --check` found: each wrong value with its tests, then how much was compared."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from vmapdbg.check.blame import LIVE_CHANGED, NOT_CHOSEN, OVERWRITTEN, STALE_READ
from vmapdbg.check.suite import EndlessCall, ProgramCheck, WrongValue
from vmapdbg.model.wording import format_plural
from vmapdbg.page.run_check import describe_endless
from vmapdbg.page.text.layout import Page

_MOST_TESTS = 3
_MOST_REASONS = 12
_NAMES = {
    OVERWRITTEN: "overwritten input",
    LIVE_CHANGED: "overwritten tensor",
    NOT_CHOSEN: "written outside of the index",
    STALE_READ: "read at the wrong time",
}


def print_run_check(document: ProgramCheck, console: Console) -> None:
    """Prints the findings of a program, and the summary."""
    page = Page(console)
    lines: list[Text] = []
    for wrong in document.findings:
        lines += format_wrong(page, wrong)
    for call in document.endless:
        lines += format_endless(page, call)
    lines += format_summary(page, document)
    page.show(lines)


def format_wrong(page: Page, wrong: WrongValue) -> list[Text]:
    name = f" {_NAMES.get(wrong.code, 'wrong value')}"
    lines = page.wrap((wrong.line or "?", "bold"), "  ", (wrong.code, "bold red"), name, hang=2)
    lines += page.wrap(wrong.message, indent=4, hang=2)
    return lines + format_tests(page, wrong.tests)


def format_endless(page: Page, call: EndlessCall) -> list[Text]:
    lines = page.wrap((call.line or "?", "bold"), "  ", (call.code, "bold red"), " rewriting without end", hang=2)
    for sentence in describe_endless(call):
        lines += page.wrap(sentence, indent=4, hang=2)
    return lines + format_tests(page, call.tests)


def format_tests(page: Page, tests: Sequence[str]) -> list[Text]:
    lines: list[Text] = []
    shown = tests[:_MOST_TESTS]
    for test in shown:
        lines += page.wrap(("in ", "dim"), test, indent=4, hang=5)
    if len(tests) > len(shown):
        lines += page.wrap((f"and {format_plural(len(tests) - len(shown), 'other test')}", "dim"), indent=4)
    return lines


def format_summary(page: Page, document: ProgramCheck) -> list[Text]:
    compared = f"{document.compared:,} of {format_plural(document.schedules, 'schedule')} compared"
    if document.replays:
        compared += f", {document.replays_compared:,} of {format_plural(document.replays, 'replay')}"
    verdict = (f"{format_plural(document.values, 'value')}, all right", "bold green")
    findings = (*document.findings, *document.endless)
    if findings:
        tests = {test for finding in findings for test in finding.tests}
        found = f"{format_plural(len(findings), 'finding')} in {format_plural(len(tests), 'test')}"
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
