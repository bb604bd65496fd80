"""The overview of a long run, or of a long diff, on one page: what makes up most of it, and where to look."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from vmapdbg.diff import ScheduleDiff
from vmapdbg.lint import RULES
from vmapdbg.model.grouping import group_equal
from vmapdbg.model.schedule_index import find_distinct
from vmapdbg.model.wording import count_shown, format_plural, join_first
from vmapdbg.page.format import (
    Places,
    format_bytes,
    format_count,
    format_redundancy,
    format_seconds,
    format_share,
    round_count,
)
from vmapdbg.page.overview import (
    Cost,
    CostRow,
    KernelRow,
    RuleRow,
    count_changed_nodes,
    count_lines,
    count_methods,
    count_outcomes,
    count_rules,
    count_unsplit,
    group_kernels,
    sum_kernels,
)
from vmapdbg.page.sentences import say_left_whole
from vmapdbg.page.text.diff import print_head
from vmapdbg.page.text.kernels import MUCH_REDUNDANCY
from vmapdbg.page.text.layout import Column, Page, Part, Row, lay_out_table
from vmapdbg.page.text.schedule import describe_time, describe_totals, format_output
from vmapdbg.page.text.view import ALERT, MARKS, compare_amounts, join_change_text
from vmapdbg.page.view import View

_MOST_ROWS = 10
_MOST_RULES = 8
_MOST_PLACES = 3
_MOST_NAMES = 4
_MOST_OUTPUTS = 3
_NEAR = 0.75
"""From this part of a limit on, a kernel gets a note."""

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
_KERNEL_CHANGE_COLUMNS = (
    Column("", comfort=1),
    Column("kernel", comfort=20, most=44),
    Column("times", right=True, comfort=6, most=12),
    Column("time", right=True, comfort=10, most=26),
    Column("ops", right=True, comfort=24, most=26, leaves=2),
    Column("moves", right=True, comfort=30, most=34, leaves=1),
    Column("lines", comfort=16, most=40, leaves=3),
)
_COST_COLUMNS = (
    Column("kernels", right=True, comfort=7),
    Column("ops", right=True, comfort=8),
    Column("of all", right=True, comfort=6),
    Column("moves", right=True, comfort=9),
    Column("of all", right=True, comfort=6),
    Column("realized", right=True, comfort=8, leaves=1),
)
_LINE_COLUMNS = (Column("line", comfort=16, most=40), *_COST_COLUMNS)
_METHOD_COLUMNS = (
    Column("method", comfort=28, most=40),
    *_COST_COLUMNS,
    Column("called at", comfort=16, most=40, leaves=2),
)
_LINE_CHANGE_COLUMNS = (
    Column("", comfort=1),
    Column("line", comfort=16, most=40),
    Column("kernels", right=True, comfort=7, most=14),
    Column("ops", right=True, comfort=24, most=26),
    Column("moves", right=True, comfort=30, most=34, leaves=2),
    Column("realized", right=True, comfort=8, most=14, leaves=1),
)
_RULE_COLUMNS = (
    Column("nodes", right=True, comfort=6),
    Column("buffers kept", right=True, comfort=12),
    Column("hold", right=True, comfort=9),
    Column("why they are realized", comfort=40, most=100),
)
_RULE_CHANGE_COLUMNS = (
    Column("nodes", right=True, comfort=9, most=16),
    Column("buffers kept", right=True, comfort=12, most=16),
    Column("hold", right=True, comfort=10, most=26),
    Column("why they are realized", comfort=32, most=100),
)


def format_overview(view: View, page: Page, places: Places, hidden: str) -> list[Text]:
    """Returns the page as lines; `hidden` says how to see the rest, and is printed last."""
    overview = _Overview(view, page, places)
    sections = (
        overview.format_changed_schedules() if view.is_pair else overview.format_totals(),
        overview.format_values(),
        overview.format_kernels(),
        overview.format_lines(),
        overview.format_methods(),
        overview.format_rules(),
        overview.format_findings(),
        page.wrap((hidden, "dim"), hang=2),
    )
    lines: list[Text] = []
    for section in filter(None, sections):
        lines += [Text(), *section]
    return lines


def print_diff_overview(view: View, console: Console, hidden: str) -> None:
    """Prints the verdict, the sides, and what changed most; `hidden` says how to see the rest."""
    page = Page(console)
    places = print_head(page, view.diff)
    page.show(format_overview(view, page, places, hidden))


class _Overview:
    def __init__(self, view: View, page: Page, places: Places) -> None:
        self.view, self.page, self.places = view, page, places
        self.kernels = group_kernels(view)
        self.total = sum_kernels(view.after)

    # *** the whole

    def format_totals(self) -> list[Text]:
        schedules, total = self.view.after.schedules, self.total
        distinct = find_distinct(self.view.after)
        parts = [
            format_plural(len(schedules), "schedule") + _count_distinct(len(schedules), len(distinct)),
            format_plural(total.kernels, "kernel") + _count_distinct(total.kernels, len(self.kernels)),
            f"{round_count(total.ops)} ops executed",
            f"{format_bytes(total.bytes)} moved",
        ]
        if total.seconds:
            parts.append(f"{format_seconds(total.seconds)} in kernels")
        return self.page.wrap(("Overview", "bold"), f"  {', '.join(parts)}", hang=2)

    def format_changed_schedules(self) -> list[Text]:
        """Returns how much changed, which the verdict does not say."""
        page, diff = self.page, self.view.diff
        schedules = diff.schedules
        said = _join_counts(
            (sum(item.is_pair and not item.is_empty for item in schedules), "changed"),
            (sum(item.is_empty for item in schedules), "the same"),
            (sum(item.after is None for item in schedules), "only before"),
            (sum(item.before is None for item in schedules), "only after"),
        )
        lines = page.wrap(("Overview", "bold"), f"  {format_plural(len(schedules), 'schedule')}: {said}", hang=2)
        if diff.before.error != diff.after.error:
            # the verdict says only how the sides ended
            sides = diff.before.totals, diff.after.totals
            if parts := describe_totals(page, *sides) + describe_time(page, *sides):
                lines += page.wrap(Text(", ").join(parts), indent=2, hang=2)
        if nodes := _count_nodes([item for item in schedules if item.is_pair]):
            lines += page.wrap(("nodes: ", "dim"), nodes, indent=2, hang=2)
        return lines

    def format_values(self) -> list[Text]:
        """Returns the first outputs that differ by more than rounding."""
        different = [
            (item, output) for item in self.view.schedules for output in item.outputs if output.status == "different"
        ]
        if not different:
            return []
        lines = self.page.head("Values", f"{format_plural(len(different), 'output')} different")
        for item, output in different[:_MOST_OUTPUTS]:
            lines += self.page.wrap(f"schedule {item.index}, ", format_output(self.page, output), indent=2, hang=4)
        return lines

    # *** kernels

    def format_kernels(self) -> list[Text]:
        if self.view.is_pair:
            return self.format_changed_kernels()
        shown = self.kernels[:_MOST_ROWS]
        how = "longest first" if self.total.seconds else "most work first"
        title = f"{count_shown(len(shown), len(self.kernels), 'kernel')}, {how}"
        rows = [self.format_kernel(row) for row in shown]
        return [
            *self.page.head("Kernels", title),
            *lay_out_table(self.page, _KERNEL_COLUMNS, rows),
            *self.rank_by_bytes(),
        ]

    def format_kernel(self, row: KernelRow) -> Row:
        kernel, cost = row.kernel, row.after
        cells = [
            (kernel.name, "bold" if kernel.failed is None else ALERT),
            format_count(cost.launches if kernel.measured is None else kernel.measured.launches),
            "" if kernel.measured is None else format_seconds(kernel.measured.median),
            "" if kernel.predicted is None else format_seconds(kernel.predicted),
            format_share(cost.seconds, self.total.seconds),
            *self.format_work(cost),
            format_redundancy(kernel.redundancy),
            format_count(kernel.threads),
            (self.places.format_first(list(row.lines), _MOST_PLACES), "dim"),
        ]
        return Row(cells, notes=[(note, "bold yellow") for note in list_limits(row)])

    def format_work(self, cost: Cost) -> list[str]:
        return [
            round_count(cost.ops),
            format_share(cost.ops, self.total.ops),
            format_bytes(cost.bytes),
            format_share(cost.bytes, self.total.bytes),
        ]

    def rank_by_bytes(self) -> list[Text]:
        """Returns the order by bytes, if another kernel is first in it."""
        ranked = sorted(self.kernels, key=lambda row: -row.after.bytes)
        if ranked[:1] == self.kernels[:1] or not self.total.bytes:
            return []
        names = [f"{row.kernel.name} {format_share(row.after.bytes, self.total.bytes)}" for row in ranked]
        return self.page.wrap(("by bytes moved: ", "dim"), ", ".join(names[:_MOST_PLACES]), indent=2, hang=2)

    def format_changed_kernels(self) -> list[Text]:
        if not self.kernels:
            return []
        shown = self.kernels[:_MOST_ROWS]
        what = "time" if any(row.is_timed for row in self.kernels) else "work"
        count = count_shown(len(shown), len(self.kernels), "change")
        title = f"{count}, the largest of {what} first; equal ones, the layers of a network, are one"
        rows = [self.format_changed_kernel(row) for row in shown]
        return self.page.head("Kernels", title) + lay_out_table(self.page, _KERNEL_CHANGE_COLUMNS, rows)

    def format_changed_kernel(self, row: KernelRow) -> Row:
        before, after = row.before, row.after
        seconds: Part = ""
        if row.is_timed:
            seconds = compare_amounts(self.page, before.seconds, after.seconds, format_seconds)
        cells = [
            MARKS[row.change.status],
            self.name_change(row),
            format_count(len(row.places)),
            seconds,
            self.compare(row, before.ops, after.ops, round_count),
            self.compare(row, before.bytes, after.bytes, format_bytes),
            (self.places.format_first(list(row.lines), _MOST_PLACES), "dim"),
        ]
        return Row(cells, notes=self.format_relation(row))

    def compare(self, row: KernelRow, before: int, after: int, write: Callable[[int], str]) -> Text:
        """A kernel that is on one side has one amount."""
        if not row.change.before or not row.change.after:
            return self.page.text(write(max(before, after)))
        return compare_amounts(self.page, before, after, write)

    def name_change(self, row: KernelRow) -> Text:
        before, after = row.change.before, row.change.after
        if len(before) == len(after) == 1:
            return join_change_text(self.page, before[0].kernel.name, after[0].kernel.name)
        # a kernel fused from several names the change
        alone = next(side for sides in (after, before) if len(sides) == 1 for side in sides)
        return self.page.text(alone.kernel.name, "bold")

    def format_relation(self, row: KernelRow) -> list[Text]:
        change = row.change
        if change.status == "fused-from":
            word, sides = "fused from ", change.before
        elif change.status == "split-into":
            word, sides = "split into ", change.after
        else:
            return []
        names = join_first([side.kernel.name for side in sides], _MOST_NAMES)
        return [self.page.join((word, "bold"), names)]

    # *** lines and methods

    def format_lines(self) -> list[Text]:
        counted = count_lines(self.view)
        if not counted:
            return []
        shown = counted[:_MOST_ROWS]
        count = count_shown(len(shown), len(counted), "line")
        if self.view.is_pair:
            title = f"{count} changed, the largest change of work first; a kernel counts for each of its lines"
            columns, rows = _LINE_CHANGE_COLUMNS, [self.format_changed_line(row) for row in shown]
        else:
            title = f"{count}, a kernel counts for each of its lines"
            columns = _LINE_COLUMNS
            rows = [Row([(self.places.format(row.name), "bold"), *self.format_cost(row)]) for row in shown]
        return self.page.head("Lines", title) + lay_out_table(self.page, columns, rows)

    def format_cost(self, row: CostRow) -> list[str]:
        cost = row.after
        return [format_count(cost.kernels), *self.format_work(cost), str(cost.realized or "")]

    def format_changed_line(self, row: CostRow) -> Row:
        before, after = row.before, row.after
        realized: Part = ""
        if before.realized or after.realized:
            realized = join_change_text(self.page, str(before.realized), str(after.realized))
        cells = [
            MARKS["changed"],
            (self.places.format(row.name), "bold"),
            join_change_text(self.page, f"{before.kernels:,}", f"{after.kernels:,}"),
            compare_amounts(self.page, before.ops, after.ops, round_count),
            compare_amounts(self.page, before.bytes, after.bytes, format_bytes),
            realized,
        ]
        return Row(cells)

    def format_methods(self) -> list[Text]:
        """Returns the methods of one run."""
        counted = [] if self.view.is_pair else count_methods(self.view)
        if not counted:
            return []
        shown = counted[:_MOST_ROWS]
        count = count_shown(len(shown), len(counted), "method")
        rows: list[Row] = []
        for row in shown:
            places = self.places.format_first(list(row.after.lines), _MOST_PLACES)
            rows.append(Row([(row.name, "bold"), *self.format_cost(row), (places, "dim")]))
        head = self.page.head("Methods", f"{count}, a kernel counts for each of which it computes a value")
        return head + lay_out_table(self.page, _METHOD_COLUMNS, rows)

    # *** rules

    def format_rules(self) -> list[Text]:
        counted = count_rules(self.view)
        if not counted:
            return []
        before, after = sum(row.before.nodes for row in counted), sum(row.after.nodes for row in counted)
        shown = counted[:_MOST_RULES]
        if self.view.is_pair:
            title = join_change_text(self.page, f"{before:,}", format_plural(after, "node"))
            lines = self.page.wrap(("Realized", "bold"), "  ", title, hang=2)
            return lines + lay_out_table(self.page, _RULE_CHANGE_COLUMNS, [self.format_rule(row) for row in shown])
        lines = self.page.head("Realized", format_plural(after, "node"))
        lines += lay_out_table(self.page, _RULE_COLUMNS, [self.format_rule(row) for row in shown])
        return lines + self.format_outcomes() + self.format_unsplit()

    def format_rule(self, row: RuleRow) -> Row:
        before, after = row.before, row.after
        example = "" if self.view.is_pair else f"  e.g. node {after.example}"
        cells = [
            join_change_text(self.page, format_count(before.nodes), format_count(after.nodes)),
            join_change_text(self.page, format_count(before.kept), format_count(after.kept)),
            join_change_text(self.page, format_bytes(before.bytes), format_bytes(after.bytes)),
            self.page.join(row.why, (example, "dim")),
        ]
        return Row(cells)

    def format_outcomes(self) -> list[Text]:
        outcomes = count_outcomes(self.view.after)
        lines: list[Text] = []
        for name in ("kept", "removed"):
            counts = [f"{count:,} {rule}" for (outcome, rule), count in outcomes.items() if outcome == name]
            if counts:
                lines += self.page.wrap((f"buffers {name}: ", "dim"), ", ".join(counts), indent=2, hang=2)
        return lines

    def format_unsplit(self) -> list[Text]:
        lines: list[Text] = []
        for count in count_unsplit(self.view.after):
            said = say_left_whole(count.rule, count.nodes)
            example = f"  e.g. node {count.example} of schedule {count.schedule}"
            lines += self.page.wrap(said, (example, "dim"), indent=2, hang=2)
        return lines

    # *** findings

    def format_findings(self) -> list[Text]:
        """Returns the findings of one run, by their codes."""
        findings = () if self.view.is_pair else self.view.after.findings
        if not findings:
            return []
        names = {rule.code: rule.name for rule in RULES}
        lines = self.page.head("Findings", f"{len(findings)}; vmapdbg lint has them all")
        for same in group_equal(findings, lambda finding: finding.code):
            first = same[0]
            place = self.places.format(first.line, " ({})")
            what = f" {names.get(first.code, '')}, {len(same)} times; first: {first.message}{place}"
            lines += self.page.wrap((first.code, ALERT), what, indent=2, hang=2)
        return lines


def list_limits(row: KernelRow) -> Iterator[str]:
    """Yields notes about a kernel that wastes work, or is near a limit."""
    kernel = row.kernel
    if kernel.redundancy is not None and kernel.redundancy >= MUCH_REDUNDANCY:
        yield f"executes each op that the graph asks for {kernel.redundancy:,.1f} times"
    if kernel.local_limit and kernel.local_bytes >= _NEAR * kernel.local_limit:
        yield f"LOCAL memory: {kernel.local_bytes:,} of {kernel.local_limit:,} bytes"


def _count_distinct(count: int, distinct: int) -> str:
    return "" if count == distinct else f" ({distinct:,} distinct)"


def _join_counts(*counts: tuple[int, str]) -> str:
    return ", ".join(f"{count:,} {what}" for count, what in counts if count)


def _count_nodes(pairs: Sequence[ScheduleDiff]) -> str:
    if not count_changed_nodes(pairs):
        return ""
    buffers = sum(made.status != "unchanged" for item in pairs for made in item.bufferizes)
    said = _join_counts(
        (sum(len(item.nodes) for item in pairs), "changed"),
        (sum(len(item.nodes_only_before) for item in pairs), "only before"),
        (sum(len(item.nodes_only_after) for item in pairs), "only after"),
        (sum(len(item.same_nodes) for item in pairs), "the same"),
    )
    return f"{said}; {buffers:,} {pairs[-1].buffer_op_after} changed"
