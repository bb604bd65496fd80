"""Puts the report of two sides together: the same page, with before and after."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vmapdbg.diff import KernelChange, KernelSide, ScheduleDiff
from vmapdbg.lint import RULES
from vmapdbg.model.schedule_index import index_of
from vmapdbg.page.format import Places, format_bytes, format_seconds, label_patches, round_count
from vmapdbg.page.graph.dot import clean_text
from vmapdbg.page.html.diff_kernels import ChangeView, view_changes
from vmapdbg.page.html.diff_lines import DiffNotes, DiffSource, merge_remarks, number_lines, view_files
from vmapdbg.page.html.diff_pictures import draw_pairs
from vmapdbg.page.html.graph import Row, find_drawn_names
from vmapdbg.page.html.kernels import merge_findings
from vmapdbg.page.html.lines import collect_notes, list_lines
from vmapdbg.page.html.nodes import NodeKey, Steps, Texts, describe_node, name_node, say_steps
from vmapdbg.page.html.page import fill_template
from vmapdbg.page.html.sources import SourceFile
from vmapdbg.page.overview import Cost, CostRow, KernelRow, count_rules, group_kernels, pair_lines, sum_kernels
from vmapdbg.page.view import View
from vmapdbg.why import explain_kernel, explain_node

_MOST_CHARACTERS = 300_000
"""So much is said about nodes; then only nodes that changed are explained."""
_MARKS = {
    "changed": "changed",
    "fused-from": "changed",
    "split-into": "changed",
    "only-before": "gone",
    "only-after": "new",
}
"""The CSS class of a box whose kernel has a status."""


def render_diff_report(
    comparison: View, before: Sequence[SourceFile], after: Sequence[SourceFile], made: str = ""
) -> str:
    """Returns two captures as one HTML document that loads nothing: `before` and `after` are the user's files on both
    sides, `made` says when and from what the report is."""
    report = _DiffReport(comparison, before, after)
    return fill_template("diff.html.jinja", report, report.make_data(), made=made, diff=comparison.diff)


class _DiffReport:
    """What the template asks for."""

    def __init__(self, comparison: View, before: Sequence[SourceFile], after: Sequence[SourceFile]) -> None:
        self.comparison, self.diff = comparison, comparison.diff
        self.before, self.after = comparison.before, comparison.after
        # for each side its schedules by their indices
        self.schedules = {
            name: {schedule.index: schedule for schedule in capture.schedules}
            for name, capture in (("before", self.before), ("after", self.after))
        }
        every = group_kernels(comparison, unchanged=True)
        self.groups = sorted(every, key=lambda group: group.change.status == "unchanged")
        self.changed = sum(group.change.status != "unchanged" for group in self.groups)
        findings = {"before": self.before.findings, "after": self.after.findings}
        self.kernels: list[ChangeView] = view_changes(self.groups, findings)
        # for the ids of nodes of before, by the index of their schedule, what the page calls them
        self.names = {item.before: self._name_nodes(item) for item in self.diff.schedules if item.before is not None}
        self.rows = self._number_kernels()
        self.drawings = draw_pairs(comparison, self.groups, self.rows, self.name_before)
        self.nodes = self._find_nodes()
        self.lines = number_lines(list_lines(self.before), list_lines(self.after), self.diff.same_lines)
        self.notes = self._collect_notes()
        names = self.before.snippet, self.after.snippet
        self.sources: list[DiffSource] = view_files(before, after, self.notes, names)
        self.places = Places(self.lines, self.after.snippet)
        self.rule_names = {rule.code: rule.name for rule in RULES}
        self.undrawn = 0
        self.ratio, self.write_count, self.write_bytes = ratio, round_count, format_bytes
        self.write_seconds = format_seconds
        self.gone = merge_findings(self.diff.findings_gone)
        self.new = merge_findings(self.diff.findings_new)

    # *** links

    def _name_nodes(self, item: ScheduleDiff) -> dict[int, str]:
        """A node of both sides is called as after calls it."""
        if item.after is None:
            return {}
        return {node: name_node((item.after, twin)) for node, twin in item.pair_nodes().items()}

    def name_before(self, key: NodeKey) -> str:
        """Returns what the page calls a node of before."""
        return self.names.get(key[0], {}).get(key[1], f"b{name_node(key)}")

    def _number_kernels(self) -> dict[tuple[str, int], dict[int, Row]]:
        """For each side and schedule the kernels by their numbers, with the rows that they belong to."""
        found: dict[tuple[str, int], dict[int, list[int]]] = {}
        marks: dict[tuple[str, int], dict[int, str]] = {}
        for number, group in enumerate(self.groups):
            for place in group.places:
                change = place.pair.kernels[place.position]
                for name, index, sides in _list_sides(place.pair, change):
                    for side in sides:
                        found.setdefault((name, index), {}).setdefault(side.number, []).append(number)
                        marks.setdefault((name, index), {})[side.number] = _MARKS.get(change.status, "")
        return {
            key: {kernel: Row(tuple(numbers), marks[key][kernel]) for kernel, numbers in kernels.items()}
            for key, kernels in found.items()
        }

    # *** nodes and lines

    def _find_nodes(self) -> dict[str, tuple[str, NodeKey, list[int]]]:
        """Returns the nodes of the kernels, and those that changed, by what the page calls them: the side that each is
        of, and the numbers of the kernels that compute it."""
        found: dict[str, tuple[str, NodeKey, list[int]]] = {}

        def add(side: str, key: NodeKey, name: str, numbers: Iterable[int] = ()) -> None:
            if index_of(self.schedules[side][key[0]]).node(key[1]) is None:
                return
            known = found.setdefault(name, (side, key, []))[2]
            known += [number for number in numbers if number not in known]

        for item in self.diff.schedules:
            for node in _list_changed(item, "after"):
                add("after", (item.after or 0, node), name_node((item.after or 0, node)))
            for node in _list_changed(item, "before"):
                add("before", (item.before or 0, node), self.name_before((item.before or 0, node)))
        for number, group in enumerate(self.groups):
            # kernels of other layers are the same programs: the first stands for all of them
            schedule = group.places[0].pair
            for name, index, sides in reversed(_list_sides(schedule, group.change)):
                for side in sides:
                    for node in dict.fromkeys((*side.kernel.nodes, *side.kernel.outputs)):
                        key = index, node
                        add(name, key, name_node(key) if name == "after" else self.name_before(key), [number])
        pictures = [picture for drawing in self.drawings for picture in drawing.pictures]
        for picture in pictures:
            for name in find_drawn_names(picture.svg):
                add("before" if name.startswith("b") else "after", _read_name(name), name)
        return found

    def _collect_notes(self) -> dict[str, DiffNotes]:
        same = self.diff.same_lines
        costs = {row.name: row for row in pair_lines(self.comparison)}
        notes = [collect_notes(self.before, ()), collect_notes(self.after, ())]
        before = {same.get(line, line): note for line, note in notes[0].items()}
        merged: dict[str, DiffNotes] = {}
        for line, number in self.lines.items():
            change = costs.get(line) or CostRow(line, Cost(), Cost())
            remarks = merge_remarks(before.get(line), notes[1].get(line))
            merged[line] = DiffNotes(number, line, change, remarks)
        for found, is_gone in ((self.diff.findings_gone, True), (self.diff.findings_new, False)):
            for finding in found:
                line = same.get(finding.line or "", finding.line or "") if is_gone else finding.line
                if line in merged:
                    (merged[line].gone if is_gone else merged[line].new).append(finding)
        return merged

    # *** for the template

    def place(self, line: str | None) -> str:
        return self.places.format(line)

    def line_number(self, line: str | None) -> int | None:
        """The number of a line of either side in the page."""
        if line is None:
            return None
        return self.lines.get(line, self.lines.get(self.diff.same_lines.get(line, line)))

    def title(self) -> str:
        before, after = self.diff.before, self.diff.after
        if before.snippet != after.snippet:
            return f"{before.snippet} -> {after.snippet}"
        return after.snippet

    def side_words(self) -> list[tuple[str, str]]:
        """What each side is: its file, tinygrad and patches."""
        before, after = self.diff.before, self.diff.after
        words: list[tuple[str, str]] = []
        for name, one, other in (("before", before, after), ("after", after, before)):
            parts = [one.name] if one.name else []
            if one.snippet != other.snippet:
                parts.append(one.snippet)
            parts += [one.target, f"tinygrad {one.versions.tree or one.versions.tinygrad}"]
            parts += label_patches(one.patches, other.patches)
            words.append((name, ", ".join(parts)))
        return words

    def totals(self) -> list[tuple[str, str, str, str]]:
        """What both sides come to: a name, before, after, and the ratio."""
        one, other = sum_kernels(self.before), sum_kernels(self.after)
        held = self.diff.before.totals.buffer_bytes, self.diff.after.totals.buffer_bytes
        rows = [
            ("kernels", f"{one.kernels:,}", f"{other.kernels:,}", ""),
            ("ops", round_count(one.ops), round_count(other.ops), ratio(one.ops, other.ops)),
            ("moved", format_bytes(one.bytes), format_bytes(other.bytes), ratio(one.bytes, other.bytes)),
            ("in buffers", format_bytes(held[0]), format_bytes(held[1]), ratio(*held)),
        ]
        if one.seconds and other.seconds:
            times = format_seconds(one.seconds), format_seconds(other.seconds)
            rows.append(("in kernels", *times, ratio(one.seconds, other.seconds)))
        return rows

    def list_rules(self) -> list[tuple[int, int, str]]:
        return [(row.before.nodes, row.after.nodes, row.why) for row in count_rules(self.comparison)]

    def count_schedules(self) -> tuple[int, int]:
        changed = sum(not item.is_empty for item in self.diff.schedules)
        return changed, len(self.diff.schedules)

    def side_amount(self, group: KernelRow, what: str) -> str:
        """What the kernels of a change that is on one side alone come to: `ops`, `bytes` or `seconds`."""
        cost = group.after if group.change.after else group.before
        if what == "seconds":
            return format_seconds(cost.seconds) if cost.seconds else ""
        return round_count(cost.ops) if what == "ops" else format_bytes(cost.bytes)

    def is_timed(self) -> bool:
        """Whether a kernel was timed on both sides."""
        return any(group.before.seconds and group.after.seconds for group in self.groups)

    # *** for the script

    def make_data(self) -> dict[str, Any]:
        texts = Texts()
        kernels = [self._describe_kernel(view, texts) for view in self.kernels]
        nodes = self._describe_nodes(texts)
        lines = [[clean_text(self.place(line)), clean_text(line)] for line in self.lines]
        return {"lines": lines, "kernels": kernels, "nodes": nodes, "texts": texts.list_all()}

    def _describe_kernel(self, view: ChangeView, texts: Texts) -> list[Any]:
        change, place = view.group.change, view.group.places[0].pair
        lines = [number for line in view.group.lines if (number := self.line_number(line)) is not None]
        name, index, sides = next(item for item in reversed(_list_sides(place, change)) if item[2])
        side, schedule = sides[0], self.schedules[name][index]
        title, steps = say_steps(schedule, explain_kernel(schedule, side.number, side.kernel), texts)
        return [clean_text(view.name or "(failed)"), lines, title, steps]

    def _describe_nodes(self, texts: Texts) -> dict[str, list[object]]:
        twins = {name: (index, node) for index, names in self.names.items() for node, name in names.items()}
        described: dict[str, list[object]] = {}
        for name, (side, key, numbers) in self.nodes.items():
            schedule = self.schedules[side][key[0]]
            index = index_of(schedule)
            node = index.nodes[key[1]]
            made = index.bufferizes.get(node.id)
            outcome = "" if made is None else made.outcome
            title, steps = -1, None
            if outcome or node.realized is not None or texts.size < _MOST_CHARACTERS:
                title, steps = say_steps(schedule, explain_node(schedule, node), texts)
                steps = self._join_steps(steps, twins.get(name), texts)
            line = self.line_number(node.line)
            what = texts.number(describe_node(node))
            described[name] = [what, -1 if line is None else line, numbers, outcome, title, steps]
        return described

    def _join_steps(self, steps: Steps, twin: NodeKey | None, texts: Texts) -> Steps:
        """Has what was decided before stand above what was decided after, where they differ."""
        if twin is None:
            return steps
        schedule = self.schedules["before"][twin[0]]
        _, old = say_steps(schedule, explain_node(schedule, index_of(schedule).nodes[twin[1]]), texts)
        if old == steps:
            return steps
        before, after = texts.number("before"), texts.number("after")
        own = texts.number(f"node {twin[1]}, with the numbers that nodes had then")
        return [[before, own], *old, [after, texts.number("as it is now")], *steps]


def _list_sides(schedule: ScheduleDiff, change: KernelChange) -> list[tuple[str, int, tuple[KernelSide, ...]]]:
    sides: list[tuple[str, int, tuple[KernelSide, ...]]] = []
    if schedule.before is not None:
        sides.append(("before", schedule.before, change.before))
    if schedule.after is not None:
        sides.append(("after", schedule.after, change.after))
    return sides


def _list_changed(item: ScheduleDiff, side: str) -> list[int]:
    """The nodes of a pair of schedules that were treated differently, or are on one side alone."""
    if not item.is_pair:
        return []
    if side == "after":
        return [*(change.after.id for change in item.nodes), *(node.id for node in item.nodes_only_after)]
    return [node.id for node in item.nodes_only_before]


def _read_name(name: str) -> NodeKey:
    schedule, node = name.removeprefix("b").split(":")
    return int(schedule), int(node)


def ratio(before: float, after: float) -> str:
    """Returns `0.85x`, and nothing where there is none to speak of, or it is 1."""
    if before <= 0 or after <= 0 or before == after:
        return ""
    return f"{after / before:.2f}x"
