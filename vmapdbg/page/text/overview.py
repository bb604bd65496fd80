"""The overview of a long run, or of a long diff, on one page: what makes up most of it, and where to look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text

from vmapdbg.diff import KernelChange, ScheduleDiff
from vmapdbg.lint import RULES
from vmapdbg.model.schedule_index import find_distinct, group_equal
from vmapdbg.model.wording import count_shown, format_plural, join_first
from vmapdbg.page.format import (
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
from vmapdbg.page.text.kernels import MUCH_REDUNDANCY, list_parts
from vmapdbg.page.text.layout import ALERT, Cell, Page, Piece, Row
from vmapdbg.page.text.view import MARKS, describe_time, describe_totals, format_output
from vmapdbg.page.view import View

_MOST_ROWS = 10
_MOST_RULES = 8
_MOST_PLACES = 3
_MOST_NAMES = 4
_MOST_OUTPUTS = 3
_NEAR = 0.75
"""From this part of a limit on, a kernel gets a note."""


def add_overview(view: View, page: Page, hidden: str) -> None:
    """Adds the overview to the page; `hidden` says how to see the rest, and is added last."""
    overview = _Overview(view, page)
    if view.is_pair:
        overview.add_changed_schedules()
    else:
        overview.add_totals()
    overview.add_values()
    overview.add_kernels()
    overview.add_lines()
    overview.add_methods()
    overview.add_rules()
    overview.add_findings()
    page.add()
    page.add((hidden, "dim"))


class _Overview:
    def __init__(self, view: View, page: Page) -> None:
        self.view, self.page, self.places = view, page, page.places
        self.kernels = group_kernels(view)
        self.total = sum_kernels(view.after)

    # *** the whole

    def add_totals(self) -> None:
        schedules, total = self.view.after.schedules, self.total
        parts: list[str] = []
        for count, distinct, noun in (
            (len(schedules), len(find_distinct(self.view.after)), "schedule"),
            (total.kernels, len(self.kernels), "kernel"),
        ):
            parts.append(format_plural(count, noun) + ("" if count == distinct else f" ({distinct:,} distinct)"))
        parts += [f"{round_count(total.ops)} ops executed", f"{format_bytes(total.bytes)} moved"]
        if total.seconds:
            parts.append(f"{format_seconds(total.seconds)} in kernels")
        self.page.head("Overview", Text(", ".join(parts)))

    def add_changed_schedules(self) -> None:
        """Adds how much changed, which the verdict does not say."""
        page, diff = self.page, self.view.diff
        schedules = diff.schedules
        counts = _join_counts(
            (sum(item.is_pair and not item.is_empty for item in schedules), "changed"),
            (sum(item.is_empty for item in schedules), "the same"),
            (sum(item.after is None for item in schedules), "only before"),
            (sum(item.before is None for item in schedules), "only after"),
        )
        page.head("Overview", Text(f"{format_plural(len(schedules), 'schedule')}: {counts}"))
        if diff.before.error != diff.after.error:
            # the verdict says only how the sides ended
            sides = diff.before.totals, diff.after.totals
            if parts := describe_totals(page, *sides) + describe_time(page, *sides):
                page.add(Text(", ").join(parts), indent=2)
        if nodes := _count_nodes([item for item in schedules if item.is_pair]):
            page.add(("nodes: ", "dim"), nodes, indent=2)

    def add_values(self) -> None:
        """Adds the first outputs that differ by more than rounding."""
        outputs = [(item, output) for item in self.view.schedules for output in item.outputs]
        different = [(item, output) for item, output in outputs if output.status == "different"]
        if different:
            self.page.head("Values", f"{format_plural(len(different), 'output')} different")
        for item, output in different[:_MOST_OUTPUTS]:
            self.page.add(f"schedule {item.index}, ", format_output(self.page, output), indent=2, hang=4)

    # *** kernels

    def add_kernels(self) -> None:
        shown, is_pair = self.kernels[:_MOST_ROWS], self.view.is_pair
        count = count_shown(len(shown), len(self.kernels), "change" if is_pair else "kernel")
        if is_pair and not shown:
            return
        if is_pair:
            what = "time" if any(row.is_timed for row in self.kernels) else "work"
            about = f"{count}, the largest of {what} first; equal ones, the layers of a network, are one"
        else:
            about = f"{count}, {'longest first' if self.total.seconds else 'most work first'}"
        self.page.head("Kernels", about)
        format_row = self.format_changed_kernel if is_pair else self.format_kernel
        self.page.table([format_row(row) for row in shown])
        ranked = sorted(self.kernels, key=lambda row: -row.after.bytes)
        if not is_pair and ranked[:1] != self.kernels[:1] and self.total.bytes:
            # another kernel is first in the order by bytes
            names = [f"{row.kernel.name} {format_share(row.after.bytes, self.total.bytes)}" for row in ranked]
            self.page.add(("by bytes moved: ", "dim"), ", ".join(names[:_MOST_PLACES]), indent=2)

    def format_kernel(self, row: KernelRow) -> Row:
        kernel, cost, measured = row.kernel, row.after, row.kernel.measured
        launches, median = cost.launches, ""
        if measured is not None:
            launches, median = measured.launches, format_seconds(measured.median)
        predicted = "" if kernel.predicted is None else format_seconds(kernel.predicted)
        cells = [
            Cell("kernel", (kernel.name, "bold" if kernel.failed is None else ALERT), comfort=18, most=40),
            Cell("times", format_count(launches), right=True, comfort=5),
            Cell("median", median, right=True, comfort=7),
            Cell("predicted", predicted, right=True, comfort=9, leaves=4),
            Cell("of all", format_share(cost.seconds, self.total.seconds), right=True, comfort=6),
            *self.list_work(cost, cost),
            Cell("redundancy", format_redundancy(kernel.redundancy), right=True, comfort=10, leaves=2, optional=True),
            Cell("threads", format_count(kernel.threads), right=True, comfort=7, leaves=1, optional=True),
            Cell("lines", self.name_places(row.lines), comfort=18, most=40, leaves=3),
        ]
        return Row(cells, notes=[(note, "bold yellow") for note in list_limits(row)])

    def name_places(self, lines: Iterable[str]) -> Piece:
        return self.places.format_first(list(lines), _MOST_PLACES), "dim"

    def list_work(self, before: Cost, after: Cost, ops_leave: int | None = None, moves_leave: int = 0) -> list[Cell]:
        """Returns the cells of ops and bytes: of one run with their shares, of two runs as changes."""
        if self.view.is_pair:
            ops = self.page.compare(before.ops, after.ops, round_count)
            moves = self.page.compare(before.bytes, after.bytes, format_bytes)
            return [
                Cell("ops", ops, right=True, comfort=24, most=26, leaves=ops_leave),
                Cell("moves", moves, right=True, comfort=30, most=34, leaves=moves_leave),
            ]
        return [
            Cell("ops", round_count(after.ops), right=True, comfort=8),
            Cell("of all", format_share(after.ops, self.total.ops), right=True, comfort=6),
            Cell("moves", format_bytes(after.bytes), right=True, comfort=9),
            Cell("of all", format_share(after.bytes, self.total.bytes), right=True, comfort=6),
        ]

    def format_changed_kernel(self, row: KernelRow) -> Row:
        page, change = self.page, row.change
        seconds = Text()
        if row.is_timed:
            seconds = page.compare(row.before.seconds, row.after.seconds, format_seconds)
        # a kernel that is on one side has one amount
        before, after = row.before, row.after
        if not change.before:
            before = after
        elif not change.after:
            after = before
        cells = [
            Cell("", MARKS[change.status], comfort=1),
            Cell("kernel", self.name_change(change), comfort=20, most=44),
            Cell("times", format_count(len(row.places)), right=True, comfort=6, most=12),
            Cell("time", seconds, right=True, comfort=10, most=26),
            *self.list_work(before, after, ops_leave=2, moves_leave=1),
            Cell("lines", self.name_places(row.lines), comfort=16, most=40, leaves=3),
        ]
        notes: list[Text] = []
        words, parts = list_parts(change)
        if parts:
            names = join_first([side.kernel.name for side in parts], _MOST_NAMES)
            notes.append(page.join((words, "bold"), names))
        return Row(cells, notes=notes)

    def name_change(self, change: KernelChange) -> Text:
        before, after = change.before, change.after
        if len(before) == len(after) == 1:
            return self.page.change(before[0].kernel.name, after[0].kernel.name)
        # a kernel fused from several names the change
        alone = next(side for sides in (after, before) if len(sides) == 1 for side in sides)
        return self.page.text(alone.kernel.name, "bold")

    # *** lines and methods

    def add_lines(self) -> None:
        counted = count_lines(self.view)
        if not counted:
            return
        count = count_shown(len(counted[:_MOST_ROWS]), len(counted), "line")
        mark, change = "", ", "
        if self.view.is_pair:
            mark, change = MARKS["changed"], " changed, the largest change of work first; "
        self.page.head("Lines", f"{count}{change}a kernel counts for each of its lines")
        rows: list[Row] = []
        for row in counted[:_MOST_ROWS]:
            line = Cell("line", (self.places.format(row.name), "bold"), comfort=16, most=40)
            rows.append(Row([Cell("", mark, comfort=1), line, *self.list_cost(row)]))
        self.page.table(rows)

    def list_cost(self, row: CostRow) -> list[Cell]:
        before, after = row.before, row.after
        realized = Text()
        if before.realized or after.realized:
            realized = self.page.change(str(before.realized), str(after.realized))
        kernels = self.page.change(f"{before.kernels:,}", f"{after.kernels:,}")
        return [
            Cell("kernels", kernels, right=True, comfort=7, most=14),
            *self.list_work(before, after, moves_leave=2),
            Cell("realized", realized, right=True, comfort=8, most=14, leaves=1),
        ]

    def add_methods(self) -> None:
        """Adds the methods of one run."""
        counted = [] if self.view.is_pair else count_methods(self.view)
        if not counted:
            return
        count = count_shown(len(counted[:_MOST_ROWS]), len(counted), "method")
        self.page.head("Methods", f"{count}, a kernel counts for each of which it computes a value")
        rows: list[Row] = []
        for row in counted[:_MOST_ROWS]:
            name = Cell("method", (row.name, "bold"), comfort=28, most=40)
            lines = Cell("called at", self.name_places(row.after.lines), comfort=16, most=40, leaves=2)
            rows.append(Row([name, *self.list_cost(row), lines]))
        self.page.table(rows)

    # *** rules

    def add_rules(self) -> None:
        page, counted = self.page, count_rules(self.view)
        if not counted:
            return
        before, after = sum(row.before.nodes for row in counted), sum(row.after.nodes for row in counted)
        nodes: Piece = format_plural(after, "node")
        if self.view.is_pair:
            nodes = page.change(f"{before:,}", nodes)
        page.head("Realized", nodes)
        page.table([self.format_rule(row) for row in counted[:_MOST_RULES]])
        if self.view.is_pair:
            return
        outcomes = count_outcomes(self.view.after)
        for name in ("kept", "removed"):
            counts = [f"{count:,} {rule}" for (outcome, rule), count in outcomes.items() if outcome == name]
            if counts:
                page.add((f"buffers {name}: ", "dim"), ", ".join(counts), indent=2)
        for count in count_unsplit(self.view.after):
            example = f"  e.g. node {count.example} of schedule {count.schedule}"
            page.add(say_left_whole(count.rule, count.nodes), (example, "dim"), indent=2)

    def format_rule(self, row: RuleRow) -> Row:
        page, before, after = self.page, row.before, row.after
        nodes = page.change(format_count(before.nodes), format_count(after.nodes))
        kept = page.change(format_count(before.kept), format_count(after.kept))
        held = page.change(format_bytes(before.bytes), format_bytes(after.bytes))
        example = "" if self.view.is_pair else f"  e.g. node {after.example}"
        cells = [
            Cell("nodes", nodes, right=True, comfort=9, most=16),
            Cell("buffers kept", kept, right=True, comfort=12, most=16),
            Cell("hold", held, right=True, comfort=10, most=26),
            Cell("why they are realized", page.join(row.why, (example, "dim")), comfort=32, most=100),
        ]
        return Row(cells)

    # *** findings

    def add_findings(self) -> None:
        """Adds the findings of one run, by their codes."""
        findings = () if self.view.is_pair else self.view.after.findings
        if findings:
            self.page.head("Findings", f"{len(findings)}; vmapdbg lint has them all")
        names = {rule.code: rule.name for rule in RULES}
        for same in group_equal(findings, lambda finding: finding.code):
            first = same[0]
            place = self.places.format(first.line, " ({})")
            what = f" {names.get(first.code, '')}, {len(same)} times; first: {first.message}{place}"
            self.page.add((first.code, ALERT), what, indent=2)


def list_limits(row: KernelRow) -> Iterator[str]:
    """Yields notes about a kernel that wastes work, or is near a limit."""
    kernel = row.kernel
    if kernel.redundancy is not None and kernel.redundancy >= MUCH_REDUNDANCY:
        yield f"executes each op that the graph asks for {kernel.redundancy:,.1f} times"
    if kernel.local_limit and kernel.local_bytes >= _NEAR * kernel.local_limit:
        yield f"LOCAL memory: {kernel.local_bytes:,} of {kernel.local_limit:,} bytes"


def _join_counts(*counts: tuple[int, str]) -> str:
    return ", ".join(f"{count:,} {what}" for count, what in counts if count)


def _count_nodes(pairs: Sequence[ScheduleDiff]) -> str:
    if not count_changed_nodes(pairs):
        return ""
    buffers = sum(made.status != "unchanged" for item in pairs for made in item.bufferizes)
    counts = _join_counts(
        (sum(len(item.nodes) for item in pairs), "changed"),
        (sum(len(item.nodes_only_before) for item in pairs), "only before"),
        (sum(len(item.nodes_only_after) for item in pairs), "only after"),
        (sum(len(item.same_nodes) for item in pairs), "the same"),
    )
    return f"{counts}; {buffers:,} {pairs[-1].buffer_op_after} changed"
