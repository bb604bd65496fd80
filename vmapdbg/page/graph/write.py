"""Draws a capture as a graph into a file: `write_graph`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vmapdbg.model.capture import Capture, Schedule, SnippetError
from vmapdbg.model.data import dump_document
from vmapdbg.model.store import write_output
from vmapdbg.page.graph.dot import write_dot
from vmapdbg.page.graph.draw import PICTURES, check_format
from vmapdbg.page.graph.drawing import Drawing
from vmapdbg.page.graph.fold import LEVELS
from vmapdbg.page.graph.items import DrawnSchedule, pair_drawn
from vmapdbg.page.graph.model import Graph, GraphError
from vmapdbg.page.graph.stages import STAGES, load_stage

FORMATS = (*PICTURES, "dot", "json")
TIME_LIMIT = 12.0


def write_graph(
    capture: Capture,
    path: Path | str,
    *,
    stage: str = "tensor",
    schedule: int | None = None,
    around: int | None = None,
    depth: int | None = None,
    other: Capture | None = None,
    fold: int | None = None,
    time_limit: float = TIME_LIMIT,
) -> list[str]:
    """Draws one schedule of `capture` to `path` and returns notes for the user, one line each.

    The ending of `path` chooses the format (FORMATS). `other` is the baseline, laid under it. `around` keeps the nodes
    at most `depth` edges from a node, `depth` alone those near the outputs. `fold` is how far the graph is folded, from
    0 to 4; by default a picture is folded until one can look at it. No layout takes more than `time_limit` seconds:
    a graph that cannot be drawn in that is drawn in part. Raises GraphError, or StoreError where the file cannot be
    written, with one line; the file is then as it was before.
    """
    target = Path(path)
    kind = check_path(target)
    after, notes = _choose_schedule(capture, schedule)
    before = _choose_baseline(other, after, notes)
    _check_request(after, stage, around, depth, fold)
    drawing = Drawing(after, before, load_stage(stage), around, depth, fold, notes)
    if kind in PICTURES:
        write_output(target, drawing.draw(kind, time_limit))
    else:
        level = drawing.list_levels()[0]
        graph = drawing.build(level)
        notes += drawing.list_notes(graph, level)
        write_output(target, _write_text(graph, kind, notes))
    return notes


def _write_text(graph: Graph, kind: str, notes: list[str]) -> str:
    if kind == "dot":
        return write_dot(graph)
    return dump_document(replace(graph, notes=tuple(notes)))


def check_path(path: Path) -> str:
    """Returns the format of a file, which must be one that can be written: the endings are in FORMATS. Raises
    GraphError."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise GraphError(f"{path}: the ending must be one of {', '.join('.' + name for name in FORMATS)}")
    if path.is_dir():
        raise GraphError(f"cannot write {path}: is a folder")
    if not path.parent.is_dir():
        raise GraphError(f"cannot write {path}: there is no folder {path.parent}")
    if kind in PICTURES:
        check_format(kind)
    return kind


def _choose_schedule(capture: Capture, index: int | None) -> tuple[DrawnSchedule, list[str]]:
    if not capture.schedules:
        message = f"{capture.snippet} made no schedule to draw"
        if capture.error is not None:
            message += f": {_format_error(capture.error)}"
        raise GraphError(message)
    if index is not None:
        for schedule in capture.schedules:
            if schedule.index == index:
                return DrawnSchedule(capture, schedule), []
        last = capture.schedules[-1].index
        raise GraphError(f"there is no schedule {index}: the schedules are 0 to {last}")
    chosen = max(capture.schedules, key=_interest)
    notes: list[str] = []
    if len(capture.schedules) > 1:
        notes.append(f"schedule {chosen.index} of {len(capture.schedules)}: --schedule N draws another one")
    return DrawnSchedule(capture, chosen), notes


def _format_error(error: SnippetError) -> str:
    return f"{error.type}: {error.message.splitlines()[0]}"


def _interest(schedule: Schedule) -> tuple[bool, int, int]:
    """Of the schedules with kernels those with most vmap ranges, and of these the last."""
    scopes = sum(item.vmap for item in schedule.ranges)
    return (bool(schedule.kernels), scopes, schedule.index)


def _choose_baseline(other: Capture | None, after: DrawnSchedule, notes: list[str]) -> DrawnSchedule | None:
    if other is None:
        return None
    if not other.schedules:
        why = "" if other.error is None else f" ({_format_error(other.error)})"
        notes.append(f"the baseline made no schedule{why}: all is drawn as added")
        return DrawnSchedule(other, Schedule(after.schedule.index, None, 0, (), (), (), (), (), ()))
    index = after.schedule.index

    def likeness(each: Schedule) -> tuple[int, bool, int]:
        return len(pair_drawn(DrawnSchedule(other, each), after).nodes), each.index == index, -each.index

    best = max(other.schedules, key=likeness)
    if best.index != index:
        notes.append(f"laid over schedule {best.index} of the baseline, which is most like it")
    return DrawnSchedule(other, best)


def _check_request(after: DrawnSchedule, stage: str, around: int | None, depth: int | None, fold: int | None) -> None:
    if stage not in STAGES:
        raise GraphError(f"there is no stage {stage}: choose from {', '.join(STAGES)}")
    if fold is not None and fold not in LEVELS:
        raise GraphError(f"there is no folding {fold}: choose from 0 (all) to {LEVELS[-1]}")
    if depth is not None and depth < 0:
        raise GraphError(f"a depth of {depth} is too small: it counts edges from 0")
    if around is not None and around not in after.index.nodes:
        raise GraphError(f"there is no node {around} in schedule {after.schedule.index}")
