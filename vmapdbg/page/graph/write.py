"""Draws a capture as a graph into a file: which schedule, how far it is folded, and which part of it is drawn."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from vmapdbg.diff.captures import diff_schedules, have_same_tinygrad
from vmapdbg.diff.nodes import match_nodes
from vmapdbg.model.capture import Capture, Schedule
from vmapdbg.model.schedule_index import refuse_schedule
from vmapdbg.model.store import check_output, dump_document, write_output
from vmapdbg.model.vocabulary import StageName
from vmapdbg.model.wording import format_plural
from vmapdbg.page.graph import model
from vmapdbg.page.graph.dot import PICTURES, TooSlow, check_format, draw_dots, style_svg, write_dot
from vmapdbg.page.graph.items import DrawnPair, DrawnSchedule, Stage
from vmapdbg.page.graph.model import BUFFERIZES, Graph, GraphError, LegendEntry, keep_nodes, measure_steps
from vmapdbg.page.sentences import describe_error

ENDINGS = tuple(f".{name}" for name in (*PICTURES, "dot", "json"))
"""Of the files that a graph can be written to."""
_TIME_LIMIT = 12.0
_DEPTH = 3
_SMALL_PART = 40
"""So many nodes are drawn if more take too long."""


def write_graph(
    capture: Capture,
    path: Path | str,
    *,
    stage: StageName = "tensor",
    schedule: int | None = None,
    around: int | None = None,
    depth: int | None = None,
    other: Capture | None = None,
    fold: int | None = None,
) -> list[str]:
    """Draws one schedule of `capture` to `path`, in the format of its ending (ENDINGS). Returns notes for the user.
    `other` is the baseline, drawn under it. `around` keeps the nodes at most `depth` edges from a node; `depth` alone
    those near the outputs. `fold` is 0 to 4; None folds until a reader can look at the picture. A layout that takes
    over `_TIME_LIMIT` seconds shows only a part. Raises GraphError, or StoreError if the file cannot be written, which
    leaves it unchanged."""
    target = Path(path)
    check_output(target, endings=ENDINGS)
    kind = find_format(target)
    after, notes = _choose_schedule(capture, schedule)
    if around is not None and around not in after.index.nodes:
        raise GraphError(f"there is no node {around} in schedule {after.schedule.index}")
    pair = DrawnPair.of_one(after) if other is None else _pair_with_baseline(other, after, notes)
    drawing = Drawing(pair, import_module(f"vmapdbg.page.graph.{stage}").STAGE, around, depth, fold, notes)
    if kind in PICTURES:
        write_output(target, drawing.draw(kind))
        return notes
    level = drawing.list_levels()[0]
    graph = drawing.build(level)
    notes += drawing.list_notes(graph, level)
    write_output(target, write_dot(graph) if kind == "dot" else dump_document(replace(graph, notes=tuple(notes))))
    return notes


def find_format(path: Path) -> str:
    """Returns the format of a file with one of ENDINGS. Raises GraphError if nothing here can draw it."""
    kind = path.suffix.lower().removeprefix(".")
    if kind in PICTURES:
        check_format(kind)
    return kind


def _choose_schedule(capture: Capture, index: int | None) -> tuple[DrawnSchedule, list[str]]:
    if not capture.schedules:
        why = "" if capture.error is None else f": {describe_error(capture.error).splitlines()[0]}"
        raise GraphError(f"{capture.snippet} made no schedule to draw{why}")
    if index is not None:
        if not 0 <= index < len(capture.schedules):
            raise GraphError(refuse_schedule(index, capture))
        return DrawnSchedule(capture, capture.schedules[index]), []

    def interest(schedule: Schedule) -> tuple[bool, int, int, int]:
        """Orders schedules: with kernels, then by the number of vmap ranges, by their work, then the later one."""
        scopes = sum(item.vmap for item in schedule.ranges)
        return bool(schedule.kernels), scopes, sum(k.executed_ops for k in schedule.kernels), schedule.index

    chosen, count = max(capture.schedules, key=interest), len(capture.schedules)
    note = f"schedule {chosen.index} of {count}: --schedule N draws another one"
    return DrawnSchedule(capture, chosen), [note] * (count > 1)


def _pair_with_baseline(other: Capture, after: DrawnSchedule, notes: list[str]) -> DrawnPair:
    """Returns the schedule and the schedule of the baseline that is most like it."""
    index = after.schedule.index
    if not other.schedules:
        why = "" if other.error is None else f" ({describe_error(other.error).splitlines()[0]})"
        notes.append(f"the baseline made no schedule{why}: all is drawn as added")
        return DrawnPair(DrawnSchedule(other, Schedule(index, None, 0, (), (), (), (), (), ())), after, {}, {})

    def likeness(before: Schedule) -> tuple[int, bool, int]:
        return len(match_nodes(before, after.schedule)), before.index == index, -before.index

    best = max(other.schedules, key=likeness)
    if best.index != index:
        notes.append(f"laid over schedule {best.index} of the baseline, which is most like it")
    same_tinygrad = have_same_tinygrad(other.versions, after.capture.versions)
    diff = diff_schedules(best, after.schedule, same_tinygrad=same_tinygrad)
    return DrawnPair.of_two(DrawnSchedule(other, best), after, diff)


@dataclass
class Drawing:
    """A graph at every level of folding. `drawn` and `left_out` count the nodes of the last graph that was built."""

    pair: DrawnPair
    stage: Stage
    around: int | None
    depth: int | None
    fold: int | None
    notes: list[str]
    drawn: int = 0
    left_out: int = 0

    def build(self, level: int) -> Graph:
        """Returns the graph at a level of folding, cut to the part that was asked for."""
        after = self.pair.after
        capture, number = after.capture, after.schedule.index
        title = f"{capture.snippet}   {self.stage.title} of schedule {number}, target {capture.target}"
        sides = "   - before, + after" * (self.pair.before is not after)
        graph = self.stage.build(self.pair, level, title + sides)
        self.drawn = graph.count_drawn()
        # a table has no outputs
        if self.around is None and (self.depth is None or graph.is_table):
            return self._add_legend(graph)
        steps = self._measure_steps(graph)
        if not steps:
            raise GraphError(f"node {self.around} is not drawn: it is a constant, named by what reads it")
        depth = _DEPTH if self.depth is None else self.depth
        part = _keep_near(graph, [name for name, count in steps.items() if count <= depth])
        self.left_out = self.drawn - part.count_drawn()
        return self._add_legend(part)

    def _measure_steps(self, graph: Graph) -> dict[str, int]:
        """The steps from the asked node, or without one from the outputs."""
        if self.around is not None:
            shown = [node.id for node in graph.nodes if self.around in node.members and node.kind not in BUFFERIZES]
            return measure_steps(graph, shown)
        if graph.is_table:
            return measure_steps(graph, [graph.nodes[-1].id])
        tails = {edge.tail for edge in graph.edges}
        return measure_steps(graph, [node.id for node in graph.nodes if node.id not in tails])

    def _add_legend(self, graph: Graph) -> Graph:
        sample, seen = self.stage.sample, {node.kind for node in graph.nodes}
        marks = {part.mark for part in (*graph.nodes, *graph.edges)}
        entries = [LegendEntry(kind, text) for kind, text in self.stage.legend.items() if kind in seen]
        if any(node.realized for node in graph.nodes):
            entries.append(LegendEntry(sample, "realized, with the reason", realized=True))
        if any(node.alert for node in graph.nodes if node.kind == "kept"):
            entries.append(LegendEntry("kept", "loses a batch range", alert=True))
        sides = LegendEntry(sample, "- only before", model.REMOVED), LegendEntry(sample, "+ only after", model.ADDED)
        entries += [entry for entry in sides if entry.mark in marks]
        return replace(graph, legend=tuple(entries) if self.stage.legend else ())

    def draw(self, kind: str) -> bytes:
        """Returns the first picture that is small and quick to lay out; notes and picture say what is left out."""
        left = _TIME_LIMIT
        for graph, level, least_seconds, note in self._list_attempts():
            notes = [*self.list_notes(graph, level), *filter(None, [note])]
            if level or note or self.left_out:
                graph = replace(graph, notes=tuple(notes))
            begun = time.monotonic()
            try:
                # leave time for the next attempt
                picture = draw_dots([write_dot(graph)], kind, max(left * 0.6, least_seconds))[0]
            except TooSlow:
                left -= time.monotonic() - begun
                continue
            self.notes += notes
            return style_svg(picture.decode("utf-8"), graph).encode("utf-8") if kind == "svg" else picture
        raise GraphError("the graph is too large to draw: use --around NODE with --depth N, or write .dot or .json")

    def _list_attempts(self) -> Iterator[tuple[Graph, int, float, str]]:
        """Yields graphs with level, least seconds and a note: each level of folding, then parts near the outputs."""
        *levels, last = self.list_levels()
        for level in levels:
            graph = self.build(level)
            if not self.is_too_much(graph) and len(graph.nodes) <= self.stage.pleasant:
                yield graph, level, 0.0, ""
        graph = self.build(last)
        why, where = "be too much to look at", "the outputs" if self.around is None else f"node {self.around}"
        if not self.is_too_much(graph):
            yield graph, last, 0.0, ""
            why = "take too long"
        nearest = list(self._measure_steps(graph))
        # wait longer for the smallest: on a busy machine the start of the layout alone takes seconds
        for most, least_seconds in ((self.stage.most, 2.0), (_SMALL_PART, 15.0)):
            part = self._add_legend(_keep_near(graph, nearest[:most]))
            note = ""
            # a busy machine may be too slow for a small graph, too
            if part.count_drawn() < graph.count_drawn():
                drawn = f"only {part.count_drawn():,} of {graph.count_drawn():,} drawn, those near {where}"
                note = f"{drawn}: all would {why} (--around NODE --depth N draws others)"
            yield part, last, least_seconds, note

    def is_too_much(self, graph: Graph) -> bool:
        """Whether a graph is too large to look at. A folding that the user asked for never is."""
        return self.fold is None and graph.count_drawn() > self.stage.most

    def list_levels(self) -> tuple[int, ...]:
        """Returns the levels of folding to try: the asked level, or all."""
        levels = range(self.stage.levels)
        return tuple(levels) if self.fold is None else (min(self.fold, levels[-1]),)

    def list_notes(self, graph: Graph, level: int) -> Iterator[str]:
        """Yields notes on what is folded or left out, and how to draw it."""
        if folded := +Counter(graph.folded):
            parts = ", ".join(f"{count:,} {why}" for why, count in folded.most_common())
            yield f"folded {folded.total():,} of {folded.total() + self.drawn:,} nodes: {parts}"
        if level and self.fold is None and graph.folded:
            yield "folded to stay readable: --around NODE --depth N draws a part as it is, --fold 0 all"
        if self.left_out:
            yield f"{format_plural(self.left_out, 'node')} further away not drawn"


def _keep_near(graph: Graph, names: list[str]) -> Graph:
    """Returns the part of a graph that has these nodes, of a table also the head."""
    return keep_nodes(graph, [graph.nodes[0].id, *names] if graph.is_table else names)
