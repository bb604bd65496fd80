"""The diff of two saved runs as Markdown, for a comment on a pull request."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from vmapdbg.model.wording import cut_end, format_plural
from vmapdbg.page.suite_words import (
    count_found,
    count_tests,
    describe_side,
    explain_causes,
    format_added,
    format_cost,
    list_troubles,
    name_change,
    say_verdict,
)
from vmapdbg.page.text.view import format_ratio
from vmapdbg.suite.result import SuiteDiff, SuiteGroup

_MOST_GROUPS = 20
_MOST_NAME = 200
_MOST_TESTS = (30, 8, 2)
"""So many tests are listed of a change; fewer, where there is no room."""
_MOST_CHARACTERS = 60_000
"""GitHub refuses a comment of more than 65,536."""


def dump_suite_github(diff: SuiteDiff) -> str:
    """Returns the diff as Markdown: a table with a line for each change, what costs most first, and the tests of each
    one folded away."""
    texts = (_dump(diff, most) for most in _MOST_TESTS)
    return next((text for text in texts if len(text) < _MOST_CHARACTERS), _dump(diff, 0))


def _dump(diff: SuiteDiff, most_tests: int) -> str:
    before, after = diff.before, diff.after
    totals = f"kernels {before.kernels:,} → {after.kernels:,}, estimated cost "
    totals += f"{format_cost(before.cost)} → {format_cost(after.cost)}{format_ratio(before.cost, after.cost)}"
    lines = [f"### Kernels: {say_verdict(diff)}", "", _escape(f"{count_tests(diff)}; {totals}"), ""]
    lines += [f"- before {_escape(describe_side(before, after))}", f"- after {_escape(describe_side(after, before))}"]
    lines += [f"- ⚠ {_escape(cut_end(trouble, _MOST_NAME))}" for trouble in list_troubles(diff)[:5]]
    shown = choose_groups(diff.groups, _MOST_GROUPS)
    if shown:
        lines += ["", "| cost | change | where | found |", "|---:|---|---|---|"]
        lines += map(_format_row, shown)
        if len(shown) < len(diff.groups):
            lines += ["", f"{len(diff.groups) - len(shown)} smaller changes are not shown."]
        listed = [line for group in shown for line in _list_tests(group, most_tests)]
        lines += ["", *_fold("Tests of each change", listed)]
    for tests, where in ((diff.only_before, "only before"), (diff.only_after, "only after")):
        if tests:
            lines += ["", *_fold(f"{format_plural(len(tests), 'test')} {where}", _list_names(tests, most_tests))]
    return "\n".join(lines) + "\n"


# a line below a word character on both sides is none
_MARKUP = re.compile(r"[\\`*|@#\[\]~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def choose_groups(groups: Sequence[SuiteGroup], most: int) -> list[SuiteGroup]:
    """Returns those that change the cost most, in the order that they have."""
    weighty = sorted(groups, key=lambda group: -abs(group.added))[:most]
    kept = {id(group) for group in weighty}
    return [group for group in groups if id(group) in kept]


def _format_row(group: SuiteGroup) -> str:
    cost = f"**{format_added(group)}**" if group.added > 0 else format_added(group)
    change = "<br>".join(map(_escape, [name_change(group), *explain_causes(group)]))
    where = _code(group.example.line) if group.example.line else ""
    return f"| {cost} | {change} | {where} | {count_found(group)} |"


def _list_tests(group: SuiteGroup, most: int) -> list[str]:
    return [f"- {_escape(name_change(group))}", *(f"  {line}" for line in _list_names(group.tests, most))]


def _list_names(tests: Sequence[str], most: int) -> list[str]:
    lines = [f"- {_code(test)}" for test in tests[:most]]
    if len(tests) > most:
        lines.append(f"- and {len(tests) - most:,} more")
    return lines


def _fold(title: str, lines: Sequence[str]) -> list[str]:
    return [f"<details><summary>{html.escape(title)}</summary>", "", *lines, "", "</details>"]


def _code(name: str) -> str:
    """An id may have anything in it: as HTML it is shown as it is."""
    return f"<code>{_escape(cut_end(name, _MOST_NAME))}</code>"


def _escape(text: str) -> str:
    """Returns text in which nothing is markup, on one line, for a cell of a table too."""
    one_line = " ".join(html.escape(text, quote=False).split())
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", one_line)
