"""What changed between two long runs, on a page: which changes make up most of it, and where to look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from rich.console import Console
from rich.text import Text

from vmapdbg.diff import ScheduleDiff
from vmapdbg.model.capture import Reason
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import count_shown, format_plural, join_first
from vmapdbg.page.format import Places, format_bytes, format_count, format_seconds, round_count
from vmapdbg.page.overview.changes import (
    ChangeGroup,
    Comparison,
    Cost,
    LineChange,
    RuleChange,
    compare_lines,
    compare_realized,
    count_changed_nodes,
    group_changes,
)
from vmapdbg.page.sentences import Names, say_briefly
from vmapdbg.page.text.diff import collect_places, format_output, print_head
from vmapdbg.page.text.diff_head import describe_time, describe_totals
from vmapdbg.page.text.diff_view import AFTER, BEFORE, MARKS, DiffView, format_ratio
from vmapdbg.page.text.layout import Column, Page, Part, Row, lay_out_table

_MOST_KERNELS = 10
_MOST_LINES = 10
_MOST_RULES = 8
_MOST_PLACES = 3
_MOST_NAMES = 4
_MOST_OUTPUTS = 3

_KERNEL_COLUMNS = (
    Column("", comfort=1),
    Column("kernel", comfort=20, most=44),
    Column("times", right=True, comfort=6, most=12),
    Column("time", right=True, comfort=10, most=26),
    Column("ops", right=True, comfort=24, most=26, leaves=2),
    Column("moves", right=True, comfort=30, most=34, leaves=1),
    Column("lines", comfort=16, most=40, leaves=3),
)
_LINE_COLUMNS = (
    Column("", comfort=1),
    Column("line", comfort=16, most=40),
    Column("kernels", right=True, comfort=7, most=14),
    Column("ops", right=True, comfort=24, most=26),
    Column("moves", right=True, comfort=30, most=34, leaves=2),
    Column("realized", right=True, comfort=8, most=14, leaves=1),
)
_RULE_COLUMNS = (
    Column("nodes", right=True, comfort=9, most=16),
    Column("buffers kept", right=True, comfort=12, most=16),
    Column("hold", right=True, comfort=10, most=26),
    Column("why they are realized", comfort=32, most=100),
)


def print_diff_overview(comparison: Comparison, console: Console, hidden: str) -> None:
    """Prints the verdict, the sides, and what changed most; `hidden` says how to see the rest, and is printed last."""
    page, diff = Page(console), comparison.diff
    overview = _Overview(comparison, page)
    print_head(page, diff, overview.places)
    sections = (
        overview.format_totals(),
        overview.format_values(),
        overview.format_kernels(),
        overview.format_lines(),
        overview.format_rules(),
        page.wrap((hidden, "dim"), hang=2),
    )
    for section in filter(None, sections):
        page.show([Text(), *section])


class _Overview:
    def __init__(self, comparison: Comparison, page: Page) -> None:
        self.comparison, self.diff, self.page = comparison, comparison.diff, page
        self.places = Places(collect_places(comparison.diff), comparison.after.snippet)

    @cached_property
    def groups(self) -> list[ChangeGroup]:
        return group_changes(self.diff)

    def change(self, before: str, after: str, ratio: str = "") -> Text:
        """Returns `1 -> 2 (2.00x)`, or one of them where they are the same."""
        if before == after:
            return self.page.text(after)
        return self.page.join((before, BEFORE), " -> ", (after, AFTER), ratio)

    def compare(self, before: int, after: int, write: Callable[[int], str]) -> Text:
        return self.change(write(before), write(after), format_ratio(before, after))

    # *** the whole

    def format_totals(self) -> list[Text]:
        """What the verdict does not say: how much changed at all."""
        parts: list[Text] = []
        if self.diff.before.error != self.diff.after.error:
            # then the verdict is how they ended
            sides = self.diff.before.totals, self.diff.after.totals
            parts = describe_totals(self.page, *sides) + describe_time(self.page, *sides)
        lines = self.page.wrap(("Overview", "bold"), "  ", self.say_schedules(), hang=2)
        if parts:
            lines += self.page.wrap(Text(", ").join(parts), indent=2, hang=2)
        if nodes := self.say_nodes([item for item in self.diff.schedules if item.is_pair]):
            lines += self.page.wrap(("nodes: ", "dim"), nodes, indent=2, hang=2)
        return lines

    def compare_seconds(self, before: Cost, after: Cost) -> Text:
        written = format_seconds(before.seconds), format_seconds(after.seconds)
        return self.change(*written, format_ratio(before.seconds, after.seconds))

    def say_schedules(self) -> str:
        schedules = self.diff.schedules
        counts = [
            (sum(item.is_pair and not item.is_empty for item in schedules), "changed"),
            (sum(item.is_empty for item in schedules), "the same"),
            (sum(item.after is None for item in schedules), "only before"),
            (sum(item.before is None for item in schedules), "only after"),
        ]
        said = ", ".join(f"{count:,} {what}" for count, what in counts if count)
        return f"{format_plural(len(schedules), 'schedule')}: {said}"

    def say_nodes(self, pairs: Sequence[ScheduleDiff]) -> str:
        if not count_changed_nodes(pairs):
            return ""
        buffers = sum(made.status != "unchanged" for item in pairs for made in item.bufferizes)
        counts = [
            (sum(len(item.nodes) for item in pairs), "changed"),
            (sum(len(item.nodes_only_before) for item in pairs), "only before"),
            (sum(len(item.nodes_only_after) for item in pairs), "only after"),
            (sum(len(item.same_nodes) for item in pairs), "the same"),
        ]
        said = ", ".join(f"{count:,} {what}" for count, what in counts if count)
        return f"{said}; {buffers:,} {pairs[-1].buffer_op_after} changed"

    def format_values(self) -> list[Text]:
        """The first outputs that differ by more than rounding."""
        different = [
            (item, output) for item in self.diff.schedules for output in item.outputs if output.status == "different"
        ]
        if not different:
            return []
        lines = self.page.head("Values", f"{format_plural(len(different), 'output')} different")
        for item, output in different[:_MOST_OUTPUTS]:
            said = format_output(DiffView(self.diff, item, self.page, self.places), output)
            lines += self.page.wrap(f"schedule {item.index}, ", said, indent=2, hang=4)
        return lines

    # *** kernels

    def format_kernels(self) -> list[Text]:
        if not self.groups:
            return []
        shown = self.groups[:_MOST_KERNELS]
        is_timed = any(group.before.seconds and group.after.seconds for group in self.groups)
        what = "time" if is_timed else "work"
        count = count_shown(len(shown), len(self.groups), "change")
        title = f"{count}, the largest of {what} first; equal ones, the layers of a network, are one"
        return self.page.head("Kernels", title) + lay_out_table(
            self.page, _KERNEL_COLUMNS, [self.format_group(group) for group in shown]
        )

    def format_group(self, group: ChangeGroup) -> Row:
        before, after = group.before, group.after
        seconds: Part = ""
        if before.seconds and after.seconds:
            seconds = self.compare_seconds(before, after)
        cells = [
            MARKS[group.change.status],
            self.name_group(group),
            format_count(len(group.places)),
            seconds,
            self.compare_sides(group, before.ops, after.ops, round_count),
            self.compare_sides(group, before.bytes, after.bytes, format_bytes),
            (self.places.format_first(list(group.lines), _MOST_PLACES), "dim"),
        ]
        return Row(cells, notes=self.say_relation(group))

    def compare_sides(self, group: ChangeGroup, before: int, after: int, write: Callable[[int], str]) -> Text:
        """A kernel of one side has its own cost alone."""
        if not group.change.before or not group.change.after:
            return self.page.text(write(max(before, after)))
        return self.compare(before, after, write)

    def name_group(self, group: ChangeGroup) -> Text:
        before, after = group.change.before, group.change.after
        if len(before) == len(after) == 1:
            return self.change(before[0].kernel.name, after[0].kernel.name)
        # of several that became one, that one names the change
        alone = next(side for sides in (after, before) if len(sides) == 1 for side in sides)
        return self.page.text(alone.kernel.name, "bold")

    def say_relation(self, group: ChangeGroup) -> list[Text]:
        change = group.change
        if change.status == "fused-from":
            word, sides = "fused from ", change.before
        elif change.status == "split-into":
            word, sides = "split into ", change.after
        else:
            return []
        names = join_first([side.kernel.name for side in sides], _MOST_NAMES)
        return [self.page.join((word, "bold"), names)]

    # *** lines

    def format_lines(self) -> list[Text]:
        changes = compare_lines(self.comparison)
        if not changes:
            return []
        shown = changes[:_MOST_LINES]
        count = count_shown(len(shown), len(changes), "line")
        title = f"{count} changed, the largest change of work first; a kernel counts for each of its lines"
        rows = [self.format_line(change) for change in shown]
        return self.page.head("Lines", title) + lay_out_table(self.page, _LINE_COLUMNS, rows)

    def format_line(self, change: LineChange) -> Row:
        before, after = change.before, change.after
        realized: Part = ""
        if before.realized or after.realized:
            realized = self.change(str(before.realized), str(after.realized))
        cells = [
            MARKS["changed"],
            (self.places.format(change.line), "bold"),
            self.change(f"{before.kernels:,}", f"{after.kernels:,}"),
            self.compare(before.ops, after.ops, round_count),
            self.compare(before.bytes, after.bytes, format_bytes),
            realized,
        ]
        return Row(cells)

    # *** rules

    def format_rules(self) -> list[Text]:
        changes = compare_realized(self.comparison)
        if not changes:
            return []
        before, after = (sum(change.nodes[side] for change in changes) for side in (0, 1))
        title = self.page.join(self.change(f"{before:,}", format_plural(after, "node")))
        rows = [self.format_rule(change) for change in changes[:_MOST_RULES]]
        lines = self.page.wrap(("Realized", "bold"), "  ", title, hang=2)
        return lines + lay_out_table(self.page, _RULE_COLUMNS, rows)

    def format_rule(self, change: RuleChange) -> Row:
        kept = [0 if side is None else side.kept for side in (change.before, change.after)]
        held = [0 if side is None else side.bytes for side in (change.before, change.after)]
        cells: list[Part] = [
            self.change(*(f"{count:,}" for count in change.nodes)),
            self.change(*(f"{count:,}" for count in kept)),
            self.change(*map(format_bytes, held)),
            self.say_rule(change),
        ]
        return Row(cells)

    def say_rule(self, change: RuleChange) -> str:
        """Why, as the side after says it. Its numbers are those of one node: only the words are of all."""
        count, capture = change.after, self.comparison.after
        if count is None:
            count, capture = change.before, self.comparison.before
        assert count is not None, "a rule that neither side has is none"
        reason: Reason | None = count.reason
        return say_briefly(count.rule, reason, Names(index_of(capture.schedules[count.schedule]).op))
