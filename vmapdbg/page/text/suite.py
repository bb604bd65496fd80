"""Prints the diff of two saved runs: the verdict, then each change with its tests, what costs most first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from vmapdbg.model.wording import format_known, format_plural
from vmapdbg.page.suite_words import (
    count_found,
    count_tests,
    describe_side,
    explain_causes,
    format_added,
    format_cost,
    list_troubles,
    name_change,
    name_tests,
    say_verdict,
    shorten_program,
)
from vmapdbg.page.text.layout import Page, Part
from vmapdbg.page.text.view import AFTER, BEFORE, format_ratio
from vmapdbg.suite.result import SuiteDiff, SuiteGroup

_MOST_GROUPS = 12
_NOTE = "Costs are estimates that rank the changes: ops, bytes and launches on a made-up machine."


def print_suite(diff: SuiteDiff, console: Console, *, show_all: bool = False) -> None:
    """Prints a diff of two saved runs. `show_all` lists every test, and every change."""
    page = Page(console, show_all=show_all)
    page.show(_format_verdict(page, diff))
    page.show(_format_sides(page, diff))
    sections: tuple[tuple[str, str, list[SuiteGroup]], ...] = (
        ("Costs more", BEFORE, [group for group in diff.groups if group.added > 0]),
        ("Costs the same", "", [group for group in diff.groups if group.added == 0]),
        ("Costs less", AFTER, [group for group in reversed(diff.groups) if group.added < 0]),
    )
    for title, style, groups in sections:
        page.show(_format_section(page, title, style, groups))
    for tests, where in ((diff.only_before, "only before"), (diff.only_after, "only after")):
        page.show(_format_lone(page, tests, where))
    if diff.groups:
        example = diff.groups[0].example.test
        page.show([Text(), *page.wrap((_NOTE, "dim"), hang=2)])
        hint = f"One test in full: vmapdbg diff {diff.before.folder} {diff.after.folder} --test '{example}'"
        page.show(page.wrap((hint, "dim"), hang=2))


def _format_verdict(page: Page, diff: SuiteDiff) -> list[Text]:
    before, after = diff.before, diff.after
    style = "bold green" if diff.is_empty and diff.unchanged else "bold"
    parts: list[Part] = [(say_verdict(diff), style)]
    if before.kernels != after.kernels:
        parts += [", kernels ", (f"{before.kernels:,}", BEFORE), " -> ", (f"{after.kernels:,}", AFTER)]
    if before.cost != after.cost:
        costs = format_cost(before.cost), format_cost(after.cost)
        parts += [", cost ", (costs[0], BEFORE), " -> ", (costs[1], AFTER), format_ratio(before.cost, after.cost)]
    return page.wrap(*parts, hang=2)


def _format_sides(page: Page, diff: SuiteDiff) -> list[Text]:
    before, after = diff.before, diff.after
    both = [f"target {after.target}"]
    if before.program == after.program:
        both.append(shorten_program(after))
    lines = page.wrap(("before  ", BEFORE), describe_side(before, after), hang=8)
    lines += page.wrap(("after   ", AFTER), describe_side(after, before), hang=8)
    lines += page.wrap(("both    ", "dim"), ", ".join(both), hang=8)
    lines += page.wrap(("tests   ", "dim"), count_tests(diff), hang=8)
    for trouble in list_troubles(diff):
        lines += page.wrap(("!! " + trouble, "yellow"), hang=3)
    return lines


def _format_section(page: Page, title: str, style: str, groups: Sequence[SuiteGroup]) -> list[Text]:
    if not groups:
        return []
    lines = [Text(), *page.head(title, format_plural(len(groups), "change"))]
    shown = page.choose_first(groups, _MOST_GROUPS)
    for group in shown:
        lines += _format_group(page, group, style)
    if len(shown) < len(groups):
        more = format_plural(len(groups) - len(shown), "smaller change")
        lines += page.wrap((f"... {more} more: --all shows them", "dim"), indent=2)
    return lines


def _format_group(page: Page, group: SuiteGroup, style: str) -> Iterator[Text]:
    cost = format_added(group) if group.added else "same"
    yield from page.wrap((f"{cost:>9}", style), "  ", (name_change(group), "bold"), f"  {count_found(group)}", hang=13)
    for sentence in explain_causes(group):
        yield from page.wrap(sentence, indent=13, hang=2)
    tests = name_tests(page.choose_first(group.tests, 1), len(group.tests))
    yield from page.wrap(tests, indent=13, hang=2)
    example = group.example
    kernels = f"{', '.join(example.before) or 'none'} -> {', '.join(example.after) or 'none'}"
    if example.before == example.after:
        kernels = ", ".join(example.after)
    where = format_known("{}: ", example.line)
    yield from page.wrap((f"e.g. {where}{kernels}", "dim"), indent=13, hang=2)


def _format_lone(page: Page, tests: Sequence[str], where: str) -> list[Text]:
    if not tests:
        return []
    listed = name_tests(page.choose_first(tests, 3), len(tests))
    return [Text(), *page.wrap((f"Tests {where}", "bold"), f"  {listed}", hang=2)]
