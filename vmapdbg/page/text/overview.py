"""A whole run on a page: what makes up most of it, and where to look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from rich.text import Text

from vmapdbg.lint import RULES
from vmapdbg.model.capture import Finding
from vmapdbg.model.schedule_index import find_distinct, index_of
from vmapdbg.model.wording import count_shown, format_known, format_plural
from vmapdbg.page.format import (
    format_bytes,
    format_count,
    format_redundancy,
    format_seconds,
    format_share,
    round_count,
)
from vmapdbg.page.overview.decisions import RealizedCount, count_outcomes, count_realized, count_unsplit
from vmapdbg.page.overview.kernels import KernelGroup, Totals, group_kernels, sum_groups
from vmapdbg.page.overview.lines import LineCost, count_lines
from vmapdbg.page.overview.methods import MethodCost, count_methods
from vmapdbg.page.sentences import Names, say_briefly, say_left_whole
from vmapdbg.page.text.kernels import MUCH_REDUNDANCY
from vmapdbg.page.text.layout import Column, Row, lay_out_table
from vmapdbg.page.text.view import ALERT, CaptureView

_MOST_KERNELS = 10
_MOST_LINES = 10
_MOST_METHODS = 10
_MOST_RULES = 8
_MOST_PLACES = 3
_NEARLY = 0.75
"""From this part of a limit on it is said."""

_KERNEL_COLUMNS = (
    Column("kernel", comfort=18, most=40),
    Column("times", right=True, comfort=5),
    Column("median", right=True, comfort=7),
    Column("predicted", right=True, comfort=9, leaves=4),
    Column("of all", right=True, comfort=6),
    Column("ops", right=True, comfort=8),
    Column("of all", right=True, comfort=6),
    Column("moves", right=True, comfort=9),
    Column("of all", right=True, comfort=6),
    Column("redundancy", right=True, comfort=10, leaves=2, optional=True),
    Column("threads", right=True, comfort=7, leaves=1, optional=True),
    Column("lines", comfort=18, most=40, leaves=3),
)
_LINE_COLUMNS = (
    Column("line", comfort=16, most=40),
    Column("kernels", right=True, comfort=7),
    Column("ops", right=True, comfort=8),
    Column("of all", right=True, comfort=6),
    Column("moves", right=True, comfort=9),
    Column("of all", right=True, comfort=6),
    Column("realized", right=True, comfort=8, leaves=1),
)
_METHOD_COLUMNS = (
    Column("method", comfort=28, most=40),
    *_LINE_COLUMNS[1:],
    Column("called at", comfort=16, most=40, leaves=2),
)
_RULE_COLUMNS = (
    Column("nodes", right=True, comfort=6),
    Column("buffers kept", right=True, comfort=12),
    Column("hold", right=True, comfort=9),
    Column("why they are realized", comfort=40, most=100),
)


def format_overview(whole: CaptureView, hidden: str) -> list[Text]:
    """Returns the page as lines; `hidden` says how to see the rest, and is printed last."""
    overview = _Overview(whole)
    sections = (
        overview.format_totals(),
        overview.format_kernels(),
        overview.format_lines(),
        overview.format_methods(),
        overview.format_decisions(),
        overview.format_findings(),
        whole.page.wrap((hidden, "dim"), hang=2),
    )
    lines: list[Text] = []
    for section in filter(None, sections):
        lines += [Text(), *section]
    return lines


class _Overview:
    def __init__(self, whole: CaptureView) -> None:
        self.whole, self.capture, self.page, self.places = whole, whole.capture, whole.page, whole.places

    @cached_property
    def groups(self) -> list[KernelGroup]:
        return group_kernels(self.capture)

    @cached_property
    def totals(self) -> Totals:
        return sum_groups(self.groups)

    def format_totals(self) -> list[Text]:
        schedules, distinct = self.capture.schedules, find_distinct(self.capture)
        kernels = self.totals.kernels
        parts = [
            format_plural(len(schedules), "schedule") + _format_distinct(len(schedules), len(distinct)),
            format_plural(kernels, "kernel") + _format_distinct(kernels, len(self.groups)),
            f"{round_count(self.totals.ops)} ops executed",
            f"{format_bytes(self.totals.bytes)} moved",
        ]
        if self.totals.seconds:
            parts.append(f"{format_seconds(self.totals.seconds)} in kernels")
        return self.page.wrap(("Overview", "bold"), f"  {', '.join(parts)}", hang=2)

    # *** kernels

    def format_kernels(self) -> list[Text]:
        shown = self.groups[:_MOST_KERNELS]
        how = "longest first" if self.totals.seconds else "most work first"
        title = f"{count_shown(len(shown), len(self.groups), 'kernel')}, {how}"
        rows = [self.format_kernel(group) for group in shown]
        return self.page.head("Kernels", title) + lay_out_table(self.page, _KERNEL_COLUMNS, rows) + self.rank_by_bytes()

    def format_kernel(self, group: KernelGroup) -> Row:
        kernel = group.kernel
        cells = [
            (kernel.name, "bold" if kernel.failed is None else ALERT),
            format_count(group.launches if kernel.measured is None else kernel.measured.launches),
            "" if kernel.measured is None else format_seconds(kernel.measured.median),
            "" if kernel.predicted is None else format_seconds(kernel.predicted),
            format_share(group.seconds, self.totals.seconds),
            round_count(group.ops),
            format_share(group.ops, self.totals.ops),
            format_bytes(group.bytes),
            format_share(group.bytes, self.totals.bytes),
            format_redundancy(kernel.redundancy),
            format_count(kernel.threads),
            (self.places.format_first(group.lines, _MOST_PLACES), "dim"),
        ]
        return Row(cells, notes=[(note, "bold yellow") for note in find_limits(group)])

    def rank_by_bytes(self) -> list[Text]:
        """The order by bytes, where another kernel is first in it."""
        ranked = sorted(self.groups, key=lambda group: -group.bytes)
        if ranked[:1] == self.groups[:1] or not self.totals.bytes:
            return []
        names = [
            f"{group.kernel.name} {format_share(group.bytes, self.totals.bytes)}" for group in ranked[:_MOST_PLACES]
        ]
        return self.page.wrap(("by bytes moved: ", "dim"), ", ".join(names), indent=2, hang=2)

    # *** lines

    def format_lines(self) -> list[Text]:
        counted = count_lines(self.capture)
        if not counted:
            return []
        shown = counted[:_MOST_LINES]
        title = f"{count_shown(len(shown), len(counted), 'line')}, a kernel counts for each of its lines"
        rows = [self.format_line(line) for line in shown]
        return self.page.head("Lines", title) + lay_out_table(self.page, _LINE_COLUMNS, rows)

    def format_line(self, line: LineCost) -> Row:
        return Row([(self.places.format(line.line), "bold"), *self.format_cost(line)])

    def format_cost(self, cost: LineCost | MethodCost) -> list[str]:
        return [
            format_count(cost.kernels),
            round_count(cost.ops),
            format_share(cost.ops, self.totals.ops),
            format_bytes(cost.bytes),
            format_share(cost.bytes, self.totals.bytes),
            str(cost.realized or ""),
        ]

    # *** methods

    def format_methods(self) -> list[Text]:
        counted = count_methods(self.capture)
        if not counted:
            return []
        shown = counted[:_MOST_METHODS]
        count = count_shown(len(shown), len(counted), "method")
        title = f"{count}, a kernel counts for each of which it computes a value"
        rows = [self.format_method(cost) for cost in shown]
        return self.page.head("Methods", title) + lay_out_table(self.page, _METHOD_COLUMNS, rows)

    def format_method(self, cost: MethodCost) -> Row:
        places = self.places.format_first(list(cost.lines), _MOST_PLACES)
        return Row([(cost.method, "bold"), *self.format_cost(cost), (places, "dim")])

    # *** decisions

    def format_decisions(self) -> list[Text]:
        counted = count_realized(self.capture)
        if not counted:
            return []
        nodes = format_plural(sum(count.nodes for count in counted), "node")
        rows = [self.format_rule(count) for count in counted[:_MOST_RULES]]
        lines = self.page.head("Realized", nodes) + lay_out_table(self.page, _RULE_COLUMNS, rows)
        for outcome in ("kept", "removed"):
            counts = [f"{c.buffers:,} {c.rule}" for c in count_outcomes(self.capture) if c.outcome == outcome]
            if counts:
                lines += self.page.wrap((f"buffers {outcome}: ", "dim"), ", ".join(counts), indent=2, hang=2)
        return lines + self.format_unsplit()

    def format_unsplit(self) -> list[Text]:
        lines: list[Text] = []
        for count in count_unsplit(self.capture):
            said = say_left_whole(count.rule, count.nodes)
            example = f"  e.g. node {count.example} of schedule {count.schedule}"
            lines += self.page.wrap(said, (example, "dim"), indent=2, hang=2)
        return lines

    def format_rule(self, count: RealizedCount) -> Row:
        why = say_briefly(count.rule, count.reason, Names(index_of(self.capture.schedules[count.schedule]).op))
        example = format_known("  e.g. node {}", count.example)
        cells = [
            format_count(count.nodes),
            format_count(count.kept),
            format_bytes(count.bytes),
            self.page.join(why, (example, "dim")),
        ]
        return Row(cells)

    # *** findings

    def format_findings(self) -> list[Text]:
        findings = self.capture.findings
        if not findings:
            return []
        names = {rule.code: rule.name for rule in RULES}
        first: dict[str, Finding] = {}
        for finding in findings:
            first.setdefault(finding.code, finding)
        counts = Counter(finding.code for finding in findings)
        lines = self.page.head("Findings", f"{len(findings)}; vmapdbg lint has them all")
        for code, finding in first.items():
            place = self.places.format(finding.line, " ({})")
            what = f" {names.get(code, '')}, {counts[code]} times; first: {finding.message}{place}"
            lines += self.page.wrap((code, ALERT), what, indent=2, hang=2)
        return lines


def find_limits(group: KernelGroup) -> Iterable[str]:
    """Yields what a kernel does too often, and what it is near to."""
    kernel = group.kernel
    if kernel.redundancy is not None and kernel.redundancy >= MUCH_REDUNDANCY:
        yield f"executes each op that the graph asks for {kernel.redundancy:,.1f} times"
    if kernel.local_limit and kernel.local_bytes >= _NEARLY * kernel.local_limit:
        yield f"LOCAL memory: {kernel.local_bytes:,} of {kernel.local_limit:,} bytes"


def _format_distinct(count: int, distinct: int) -> str:
    return "" if count == distinct else f" ({distinct:,} distinct)"
