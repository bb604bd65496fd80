"""Prints the diff of two saved runs: the verdict, then each change with its tests, what costs most first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from vmapdbg.model.wording import format_known, format_plural
from vmapdbg.page.format import format_ratio
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
from vmapdbg.page.text.layout import AFTER, BEFORE, Page, Piece
from vmapdbg.suite.result import SuiteDiff, SuiteGroup

_MOST_GROUPS = 12
_NOTE = "Costs are estimates that rank the changes: ops, bytes and launches on a made-up machine."


def print_suite(diff: SuiteDiff, console: Console, *, show_all: bool = False) -> None:
    """Prints a diff of two saved runs. `show_all` lists every test, and every change."""
    page = Page(console, show_all=show_all)
    _print_verdict(page, diff)
    _print_sides(page, diff)
    _print_section(page, "Costs more", BEFORE, [group for group in diff.groups if group.added > 0])
    _print_section(page, "Costs the same", "", [group for group in diff.groups if group.added == 0])
    _print_section(page, "Costs less", AFTER, [group for group in reversed(diff.groups) if group.added < 0])
    for tests, where in ((diff.only_before, "only before"), (diff.only_after, "only after")):
        if tests:
            page.head(f"Tests {where}", page.text(name_tests(tests if show_all else tests[:3], len(tests))))
    if diff.groups:
        page.add()
        page.add((_NOTE, "dim"))
        command = f"vmapdbg diff {diff.before.folder} {diff.after.folder} --test '{diff.groups[0].example.test}'"
        page.add((f"One test in full: {command}", "dim"))
    page.print()


def _print_verdict(page: Page, diff: SuiteDiff) -> None:
    before, after = diff.before, diff.after
    style = "bold green" if diff.is_empty and diff.unchanged else "bold"
    parts: list[Piece] = [(say_verdict(diff), style)]
    if before.kernels != after.kernels:
        parts += [", kernels ", page.change(f"{before.kernels:,}", f"{after.kernels:,}")]
    if before.cost != after.cost:
        costs = format_cost(before.cost), format_cost(after.cost)
        parts += [", cost ", (costs[0], BEFORE), " -> ", (costs[1], AFTER), format_ratio(before.cost, after.cost)]
    page.add(*parts)


def _print_sides(page: Page, diff: SuiteDiff) -> None:
    before, after = diff.before, diff.after
    both = [f"target {after.target}"]
    if before.program == after.program:
        both.append(shorten_program(after))
    page.add(("before  ", BEFORE), describe_side(before, after), hang=8)
    page.add(("after   ", AFTER), describe_side(after, before), hang=8)
    page.add(("both    ", "dim"), ", ".join(both), hang=8)
    page.add(("tests   ", "dim"), count_tests(diff), hang=8)
    for trouble in list_troubles(diff):
        page.add(("!! " + trouble, "yellow"), hang=3)


def _print_section(page: Page, title: str, style: str, groups: Sequence[SuiteGroup]) -> None:
    if not groups:
        return
    page.head(title, format_plural(len(groups), "change"))
    shown = groups if page.show_all else groups[:_MOST_GROUPS]
    for group in shown:
        _print_group(page, group, style)
    if len(shown) < len(groups):
        more = format_plural(len(groups) - len(shown), "smaller change")
        page.add((f"... {more} more: --all shows them", "dim"), indent=2)


def _print_group(page: Page, group: SuiteGroup, style: str) -> None:
    cost = format_added(group) if group.added else "same"
    page.add((f"{cost:>9}", style), "  ", (name_change(group), "bold"), f"  {count_found(group)}", hang=13)
    tests = group.tests if page.show_all else group.tests[:1]
    for sentence in (*explain_causes(group), name_tests(tests, len(group.tests))):
        page.add(sentence, indent=13)
    example = group.example
    kernels = f"{', '.join(example.before) or 'none'} -> {', '.join(example.after) or 'none'}"
    if example.before == example.after:
        kernels = ", ".join(example.after)
    page.add((f"e.g. {format_known('{}: ', example.line)}{kernels}", "dim"), indent=13)
