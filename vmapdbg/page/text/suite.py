"""The diff of two saved runs as text, and as Markdown for a comment on a pull request: what costs most first."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from rich.console import Console

from vmapdbg.model.vocabulary import SuiteChangeKind
from vmapdbg.model.wording import cut_end, format_known, format_plural, shorten_commit
from vmapdbg.page.format import format_ratio, label_patches
from vmapdbg.page.text.layout import AFTER, BEFORE, Page, Piece
from vmapdbg.suite.compare import SuiteDiff, SuiteGroup, SuiteSide

_MOST_PROGRAM = 60
_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))
_NAMES: dict[SuiteChangeKind, str] = {
    "fused": "{before} fused into {group.kernels_after} ({group.form})",
    "split": "{before} split into {group.kernels_after} ({group.form})",
    "regrouped": "{before} regrouped into {group.kernels_after} ({group.form})",
    "kernel-gone": "a kernel is gone ({gone})",
    "kernel-new": "a new kernel ({new})",
    "schedule-gone": "a schedule of {before} is gone",
    "schedule-new": "a new schedule of {after}",
    "more-launches": "more launches",
    "fewer-launches": "fewer launches",
    "more-ops": "more ops",
    "fewer-ops": "fewer ops",
    "more-bytes": "more bytes moved",
    "fewer-bytes": "fewer bytes moved",
    "fewer-threads": "fewer threads",
    "more-threads": "more threads",
    "more-local-memory": "more LOCAL memory",
    "less-local-memory": "less LOCAL memory",
    "other-launch-dimensions": "same work, other launch dimensions",
    "other-source": "source changed, same work",
    "other-order": "the same kernels in another order",
    "fewer-copies": "fewer copies",
    "more-copies": "more copies",
}


def name_change(group: SuiteGroup) -> str:
    """Returns what a change is: `3 kernels fused into 1 (2 r, E -> r)`, `more ops (x1.8)`."""
    gone, _, new = group.form.partition(" -> ")
    before, after = format_plural(group.kernels_before, "kernel"), format_plural(group.kernels_after, "kernel")
    # a kind of a newer vmapdbg is printed as it is
    form = _NAMES.get(group.kind, "{group.kind}")
    name = form.format(group=group, gone=gone, new=new, before=before, after=after)
    ratios = dict.fromkeys(f"x{ratio:.3g}" for ratio in group.ratios)
    return name + format_known(" ({})", " to ".join(ratios))


def explain_causes(group: SuiteGroup) -> list[str]:
    """Returns sentences about the realize points that are gone or new, with their rules."""
    sentences: list[str] = []
    for sign, what in (("-", "no longer realized"), ("+", "realized now")):
        causes: list[str] = []
        for cause in group.causes:
            if cause.startswith(sign):
                # `-MUL: ending-ranges` becomes `MUL (ending-ranges)`
                op, _, reason = cause[1:].partition(": ")
                causes.append(op + format_known(" ({})", reason))
        if causes:
            sentences.append(f"{what}: {', '.join(causes)}")
    return sentences


def format_cost(nanoseconds: int) -> str:
    """Returns a cost: `480 ns`, `15.2 us`, `3.65 ms`."""
    for size, unit in _UNITS:
        if abs(nanoseconds) >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds} ns"


def format_added(group: SuiteGroup) -> str:
    """Returns the added cost of a change: `+15.2 us`."""
    return "+" * (group.added > 0) + format_cost(group.added)


def count_found(group: SuiteGroup) -> str:
    """Returns `once`, `15 times in 4 tests`."""
    if group.count == 1:
        return "once"
    return f"{group.count:,} times in {format_plural(len(group.tests), 'test')}"


def name_tests(shown: Sequence[str], count: int) -> str:
    """Returns `test_ops.py::TestOps::test_softmax and 39 others`: the shown tests, and how many more there are."""
    names = ", ".join(shown)
    if len(shown) == count:
        return names
    return f"{names} and {format_plural(count - len(shown), 'other')}"


def say_verdict(diff: SuiteDiff) -> str:
    """Returns the verdict in one line."""
    both = diff.unchanged + len(diff.changed)
    if not both:
        return "no test is in both runs"
    if diff.is_empty:
        return f"no kernel changed in {format_plural(both, 'test')}"
    return f"{len(diff.changed):,} of {format_plural(both, 'test')} changed"


def count_tests(diff: SuiteDiff) -> str:
    """Returns the numbers of tests in both runs, in one run, and left out."""
    both = diff.unchanged + len(diff.changed)
    parts = [f"{both:,} in both: {diff.unchanged:,} unchanged, {len(diff.changed):,} changed"]
    for tests, where in (*_list_lone(diff), (diff.left_out, "left out (damaged files)")):
        if tests:
            parts.append(f"{len(tests):,} {where}")
    return ", ".join(parts)


def _list_lone(diff: SuiteDiff) -> list[tuple[Sequence[str], str]]:
    """Returns the tests that one run has, with the words for it; only runs that have such tests."""
    sides = ((diff.only_before, "only before"), (diff.only_after, "only after"))
    return [side for side in sides if side[0]]


def describe_side(side: SuiteSide, other: SuiteSide) -> str:
    """Returns the folder, tinygrad and patches of a run; its program only if the other run has another."""
    versions = side.versions
    tinygrad = f"tinygrad {versions.tree or versions.tinygrad}"
    if versions.commit:
        tinygrad += f" ({shorten_commit(versions.commit)})"
    parts = [tinygrad, *label_patches(side.patches, other.patches)]
    if side.program != other.program:
        parts.append(shorten_program(side))
    return f"{side.folder}: {', '.join(parts)}"


def shorten_program(side: SuiteSide) -> str:
    """Returns the first 60 characters of the command that was run."""
    return cut_end(" ".join(side.program), _MOST_PROGRAM)


def list_troubles(diff: SuiteDiff) -> list[str]:
    """Returns warnings: runs that did not end, schedules that were left out, damaged files."""
    troubles: list[str] = []
    for side in (diff.before, diff.after):
        if side.status is None:
            troubles.append(f"{side.folder}: its run did not end, tests may be missing or have too few schedules")
        if side.failed:
            failed = format_plural(side.failed, "schedule")
            troubles.append(f"{side.folder}: {failed} could not be rendered for {side.target}, and were left out")
    return troubles + [f"damaged: {line}" for line in diff.damaged]


# *** text

_MOST_GROUPS = 12
_NOTE = "Costs are estimates that rank the changes: ops, bytes and launches on a made-up machine."


def print_suite(diff: SuiteDiff, console: Console, *, show_all: bool = False) -> None:
    """Prints the verdict, then each change with its tests. `show_all` lists every test, and every change."""
    page = Page(console, show_all=show_all)
    _print_head(page, diff)
    _print_section(page, "Costs more", BEFORE, [group for group in diff.groups if group.added > 0])
    _print_section(page, "Costs the same", "", [group for group in diff.groups if group.added == 0])
    _print_section(page, "Costs less", AFTER, [group for group in reversed(diff.groups) if group.added < 0])
    for tests, where in _list_lone(diff):
        shown = tests if show_all else tests[:3]
        page.head(f"Tests {where}", page.text(name_tests(shown, len(tests))))
    if diff.groups:
        page.add()
        page.add((_NOTE, "dim"))
        command = f"vmapdbg diff {diff.before.folder} {diff.after.folder} --test '{diff.groups[0].example.test}'"
        page.add((f"One test in full: {command}", "dim"))
    page.print()


def _print_head(page: Page, diff: SuiteDiff) -> None:
    before, after = diff.before, diff.after
    style = "bold green" if diff.is_empty and diff.unchanged else "bold"
    verdict: list[Piece] = [(say_verdict(diff), style)]
    if before.kernels != after.kernels:
        verdict += [", kernels ", page.change(f"{before.kernels:,}", f"{after.kernels:,}")]
    if before.cost != after.cost:
        costs = format_cost(before.cost), format_cost(after.cost)
        verdict += [", cost ", (costs[0], BEFORE), " -> ", (costs[1], AFTER), format_ratio(before.cost, after.cost)]
    page.add(*verdict)
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
    if groups:
        page.head(title, format_plural(len(groups), "change"))
    for group in page.first(groups, _MOST_GROUPS, "... {} more: --all shows them", noun="smaller change"):
        cost, example = "same", group.example
        if group.added:
            cost = format_added(group)
        page.add((f"{cost:>9}", style), "  ", (name_change(group), "bold"), f"  {count_found(group)}", hang=13)
        tests = group.tests if page.show_all else group.tests[:1]
        for sentence in (*explain_causes(group), name_tests(tests, len(group.tests))):
            page.add(sentence, indent=13)
        kernels = f"{', '.join(example.before) or 'none'} -> {', '.join(example.after) or 'none'}"
        if example.before == example.after:
            kernels = ", ".join(example.after)
        page.add((f"e.g. {format_known('{}: ', example.line)}{kernels}", "dim"), indent=13)


# *** Markdown

_MOST_ROWS = 20
_MOST_NAME = 200
_MOST_TESTS = (30, 8, 2, 0)
"""How many tests of a change are listed; fewer if the text is too long."""
_MOST_CHARACTERS = 60_000
"""GitHub refuses a comment of more than 65,536."""
# an underscore between two word characters is no markup
_MARKUP = re.compile(r"[\\`*|@#\[\]~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def dump_suite_github(diff: SuiteDiff) -> str:
    """Returns the diff as Markdown: a table with a row for each change, the largest added cost first, and the tests of
    each change in a folded list."""
    text = ""
    for most in _MOST_TESTS:
        text = _dump(diff, most)
        if len(text) < _MOST_CHARACTERS:
            break
    return text


def _dump(diff: SuiteDiff, most_tests: int) -> str:
    before, after = diff.before, diff.after
    totals = f"kernels {before.kernels:,} → {after.kernels:,}, estimated cost "
    totals += f"{format_cost(before.cost)} → {format_cost(after.cost)}{format_ratio(before.cost, after.cost)}"
    lines = [f"### Kernels: {say_verdict(diff)}", "", _escape(f"{count_tests(diff)}; {totals}"), ""]
    lines += [f"- before {_escape(describe_side(before, after))}", f"- after {_escape(describe_side(after, before))}"]
    for trouble in list_troubles(diff)[:5]:
        lines.append(f"- ⚠ {_escape(cut_end(trouble, _MOST_NAME))}")
    # the largest changes of cost, in the order of the diff
    largest = sorted(diff.groups, key=lambda group: -abs(group.added))[:_MOST_ROWS]
    shown = [group for group in diff.groups if group in largest]
    rows, tests_of_changes = list[str](), list[str]()
    for group in shown:
        cost, where = format_added(group), ""
        if group.added > 0:
            cost = f"**{cost}**"
        if group.example.line:
            where = _code(group.example.line)
        change = "<br>".join(map(_escape, [name_change(group), *explain_causes(group)]))
        rows.append(f"| {cost} | {change} | {where} | {count_found(group)} |")
        tests_of_changes.append(f"- {_escape(name_change(group))}")
        tests_of_changes += _list_tests(group.tests, most_tests, indent="  ")
    if shown:
        lines += ["", "| cost | change | where | found |", "|---:|---|---|---|", *rows]
        if len(shown) < len(diff.groups):
            lines += ["", f"{len(diff.groups) - len(shown)} smaller changes are not shown."]
        lines += _fold("Tests of each change", tests_of_changes)
    for tests, where in _list_lone(diff):
        lines += _fold(f"{format_plural(len(tests), 'test')} {where}", _list_tests(tests, most_tests))
    return "\n".join(lines) + "\n"


def _list_tests(tests: Sequence[str], most: int, indent: str = "") -> list[str]:
    lines = [f"{indent}- {_code(test)}" for test in tests[:most]]
    if len(tests) > most:
        lines.append(f"{indent}- and {len(tests) - most:,} more")
    return lines


def _fold(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"<details><summary>{html.escape(title)}</summary>", "", *lines, "", "</details>"]


def _code(name: str) -> str:
    """Returns a name as code. It is written in HTML, because an id may contain anything."""
    return f"<code>{_escape(cut_end(name, _MOST_NAME))}</code>"


def _escape(text: str) -> str:
    """Returns a text on one line without markup, for a cell of a table."""
    one_line = " ".join(html.escape(text, quote=False).split())
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", one_line)
