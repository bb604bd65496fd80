"""One view of one run and of two: everything that `show`, `diff` and `report` draw is a pair (before, after).

A `ScheduleDiff` has pairs of nodes, BUFFERIZEs and kernels. `View.of_one` pairs each schedule of one run with itself,
so each part of a page is written once: it asks `is_pair` for the layout, and walks `schedules` or the overview's rows.

- A **section** shows one subject of a schedule, such as its kernels. It is registered in `sections.py`; `show`, `diff`
  and the selections (`--only`, `--kernel`, `--line`) then have it.
- A **row** of a section is a pair, or several pairs that look the same. One run: each pair has a row. Two: only
  changed pairs, with a mark (`~ - +`) in front.
- A **cell** of a row has a value before and a value after, drawn once if both are equal, else both marked.
- A **row of the overview** (`overview.py`) sums up a whole run, `before` and `after`."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from vmapdbg.diff import result
from vmapdbg.model.capture import Capture, Finding, Schedule
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import index_of, is_line, refuse_schedule
from vmapdbg.model.vocabulary import Sort
from vmapdbg.model.wording import join_first

_MOST_NAMED = 5


@dataclass(frozen=True)
class View:
    """One run (`before` is `after`), or two and their `comparison`. `sort` is for the kernels and functions of one
    run; None: the most important first."""

    before: Capture
    after: Capture
    schedules: tuple[result.ScheduleDiff, ...]
    comparison: result.CaptureDiff | None = None
    sort: Sort | None = None

    @classmethod
    def of_one(cls, capture: Capture) -> "View":
        """Returns one run as a view with equal sides."""
        return cls(capture, capture, tuple(map(pair_with_itself, capture.schedules)))

    @classmethod
    def of_two(cls, before: Capture, after: Capture, diff: result.CaptureDiff) -> "View":
        """Returns two runs as a view; `diff` is the result of `diff_captures`."""
        return cls(before, after, diff.schedules, diff)

    @property
    def is_pair(self) -> bool:
        """Whether the view has two runs."""
        return self.comparison is not None

    @property
    def diff(self) -> result.CaptureDiff:
        """The comparison of two runs."""
        assert self.comparison is not None, "one run has no diff"
        return self.comparison

    def name_line(self, line: str) -> str:
        """Returns the name after the edit for a line of before; a line that only before has keeps its name."""
        return line if self.comparison is None else self.comparison.same_lines.get(line, line)


def pair_with_itself(schedule: Schedule) -> result.ScheduleDiff:
    """Returns a schedule as a pair with equal sides: each node, BUFFERIZE and kernel is its own partner."""
    index = index_of(schedule)
    kernels = [(result.KernelSide(number, kernel),) for number, kernel in enumerate(schedule.kernels)]
    entries = ((entry, index.op(entry.node)) for entry in schedule.vmap_map)
    bufferizes: list[result.BufferizeChange] = []
    for made in schedule.bufferizes:
        op, ambient, lost = index.op(made.node), index.ambient_of(made.node), index.find_lost(made)
        bufferizes.append(result.BufferizeChange("unchanged", op, made, made, (), (), (), ambient, lost, lost))
    return result.ScheduleDiff(
        before=schedule.index,
        after=schedule.index,
        line_before=schedule.line,
        line_after=schedule.line,
        totals_before=None,
        totals_after=None,
        renamed={},
        removed_ranges=(),
        added_ranges=(),
        nodes=tuple(result.NodeChange(node, node, ()) for node in schedule.nodes),
        nodes_only_before=(),
        nodes_only_after=(),
        same_nodes=(),
        vmap_map=tuple(result.VmapChange(e.node, e.node, op, e.ranges, e.ranges) for e, op in entries),
        bufferizes=tuple(bufferizes),
        kernels=tuple(result.KernelChange("unchanged", "", sides, sides, ()) for sides in kernels),
        values="unknown",
        outputs=(),
        buffer_op_before=schedule.buffer_op,
        buffer_op_after=schedule.buffer_op,
    )


def select_schedules(view: View, schedule: int | None) -> list[result.ScheduleDiff]:
    """Returns the schedules with an index after, or before if only before has it; all for None. Raises Failure."""
    if schedule is None:
        return list(view.schedules)
    found = [item for item in view.schedules if item.after == schedule]
    found = found or [item for item in view.schedules if item.after is None and item.before == schedule]
    if not found:
        raise Failure(refuse_schedule(schedule, view.before, view.after))
    return found


def select_kernels(view: View, asked: str, schedule: int | None) -> list[result.ScheduleDiff]:
    """Returns for each schedule that has them the kernels with a name or a number, on either side, and their nodes. If
    no kernel has this name, `asked` is a part of what kernels compute: an op, a method, a shape, a phase, or a line.
    Raises Failure if there is no such kernel, and for a number that several schedules have."""
    chosen = select_schedules(view, schedule)
    found: list[result.ScheduleDiff] = []
    for is_named in (_has_name, _has_words):
        for item in chosen:
            kernels = [one for one in item.kernels if any(is_named(side, asked) for side in one.sides)]
            if kernels:
                before = _list_computed(side for one in kernels for side in one.before)
                after = _list_computed(side for one in kernels for side in one.after)
                found.append(_select(item, kernels, before, after))
        if found:
            break
    else:
        names = dict.fromkeys(side.kernel.name for item in chosen for change in item.kernels for side in change.sides)
        raise Failure(f"there is no kernel {asked}: {join_first([*names], _MOST_NAMED) or 'there is none'}")
    if asked.isdecimal() and len(found) > 1:
        raise Failure(f"{len(found)} schedules have a kernel {asked}: choose one with --schedule")
    return found


def _has_name(side: result.KernelSide, asked: str) -> bool:
    return asked in (side.kernel.name, str(side.number))


def _has_words(side: result.KernelSide, asked: str) -> bool:
    return asked.lower() in " ".join((side.kernel.title, side.kernel.phase or "", *side.kernel.lines)).lower()


def _list_computed(sides: Iterable[result.KernelSide]) -> set[int]:
    return {node for side in sides for node in (*side.kernel.nodes, *side.kernel.outputs)}


def select_line(view: View, asked: str, schedule: int | None) -> list[result.ScheduleDiff]:
    """Returns each schedule's nodes and kernels of a user's line, on either side. Raises Failure if there are none."""

    def has(*lines: str | None) -> bool:
        return any(line is not None and is_line(line, asked) for line in lines)

    def list_ids(item: result.ScheduleDiff, side: str) -> set[int]:
        nodes = [*(getattr(change, side) for change in item.nodes), *getattr(item, f"nodes_only_{side}")]
        same = {getattr(same, side) for same in item.same_nodes if has(same.line)}
        return same | {node.id for node in nodes if has(node.line)}

    found: list[result.ScheduleDiff] = []
    for item in select_schedules(view, schedule):
        before, after = list_ids(item, "before"), list_ids(item, "after")
        kernels = [change for change in item.kernels if any(has(*side.kernel.lines) for side in change.sides)]
        if before or after or kernels:
            found.append(_select(item, kernels, before, after))
    if not found:
        raise Failure(f"no node is made at {asked}: a line is asked for as FILE:N, as the report names it")
    return found


def _select(
    item: result.ScheduleDiff, kernels: Iterable[result.KernelChange], before: Collection[int], after: Collection[int]
) -> result.ScheduleDiff:
    """Returns a schedule with only some kernels, and only the nodes with some ids before or after."""

    def has(old: int | None, new: int | None) -> bool:
        return old in before or new in after

    made = (one for one in item.bufferizes if has(one.before and one.before.node, one.after and one.after.node))
    return replace(
        item,
        nodes=tuple(change for change in item.nodes if has(change.before.id, change.after.id)),
        nodes_only_before=tuple(node for node in item.nodes_only_before if node.id in before),
        nodes_only_after=tuple(node for node in item.nodes_only_after if node.id in after),
        same_nodes=tuple(same for same in item.same_nodes if has(same.before, same.after)),
        vmap_map=tuple(change for change in item.vmap_map if has(change.before, change.after)),
        bufferizes=tuple(made),
        kernels=tuple(kernels),
        outputs=(),
        folded_before=(),
        folded_after=(),
    )


class Findings:
    """The findings of a capture. `rest` are the findings that no kernel or node has printed; they are printed last."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._all = tuple(findings)
        self.rest = list(self._all)

    def about_kernel(self, schedule: int, numbers: Sequence[int]) -> list[Finding]:
        """Returns the findings about equal kernels of a schedule, given by their numbers."""
        return [found for found in self._all if found.schedule == schedule and found.number in numbers]

    def about_node(self, schedule: int, node: int) -> list[Finding]:
        """Returns the findings about a node of a schedule, given by its id, and no kernel."""
        about = (found for found in self._all if (found.schedule, found.node) == (schedule, node))
        return [found for found in about if found.kernel is None]
