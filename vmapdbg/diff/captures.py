"""Compares two captures."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from vmapdbg.diff.changes import choose_renaming, compare_bufferizes, compare_nodes, compare_vmap_map
from vmapdbg.diff.edits import match_edits
from vmapdbg.diff.kernels import compare_kernels
from vmapdbg.diff.neutral import Reading, read_neutrally, read_plainly
from vmapdbg.diff.nodes import have_same_graph, match_nodes, match_schedules
from vmapdbg.diff.result import DIFF_SCHEMA, CaptureDiff, ScheduleDiff, Side, Totals
from vmapdbg.diff.values import compare_outputs, compare_printed, find_worst
from vmapdbg.model.capture import Capture, Finding, Schedule, Versions
from vmapdbg.model.schedule_index import sum_programs

# Compared with a schedule that only one side has.
_NOTHING = Schedule(-1, None, 0, (), (), (), (), (), ())


def diff_captures(
    before: Capture,
    after: Capture,
    printed: tuple[str, str] | None = None,
    names: tuple[str, str] = ("", ""),
    same_lines: Mapping[str, str] | None = None,
) -> CaptureDiff:
    """Compares two captures.

    `printed` is what their snippets wrote to stdout, `names` are the files that they were read from. `same_lines` maps
    lines of before to lines of after if the snippets are two files. Captures of two tinygrads are compared by the
    meaning of their nodes. `diff_captures(c, c)` is empty.
    """
    read = read_plainly if have_same_tinygrad(before.versions, after.versions) else read_neutrally
    left, right = ([read(schedule) for schedule in side.schedules] for side in (before, after))
    lines = dict(same_lines or {})
    pairs = match_schedules([item.compared for item in left], [item.compared for item in right], lines)
    nothing = read_plainly(_NOTHING)
    schedules = tuple(
        _diff_schedules(nothing if i is None else left[i], nothing if j is None else right[j], lines) for i, j in pairs
    )
    return CaptureDiff(
        schema=DIFF_SCHEMA,
        kind="diff",
        before=_describe_side(before, left, names[0]),
        after=_describe_side(after, right, names[1]),
        same_snippet=before.snippet == after.snippet,
        values=find_worst(item.values for item in schedules),
        printed=printed and compare_printed(*printed),
        schedules=schedules,
        findings_gone=_subtract_findings(before.findings, after.findings, lines),
        findings_new=_subtract_findings(after.findings, before.findings, {new: old for old, new in lines.items()}),
        same_lines=lines,
    )


def _subtract_findings(
    some: tuple[Finding, ...], others: tuple[Finding, ...], lines: Mapping[str, str]
) -> tuple[Finding, ...]:
    """Returns the findings that the others do not have, by code and line; `lines` maps lines to lines of the others.

    Kernels and nodes may have other names on the other side.
    """
    known = {(found.code, found.line) for found in others}
    return tuple(found for found in some if (found.code, lines.get(found.line or "", found.line)) not in known)


def _describe_side(capture: Capture, readings: Iterable[Reading], name: str) -> Side:
    return Side(
        snippet=capture.snippet,
        target=capture.target,
        patches=capture.patches,
        versions=capture.versions,
        error=capture.error,
        schedules=len(capture.schedules),
        totals=replace(sum_totals(item.measured for item in readings), seconds=sum_programs(capture.kernels)),
        mode=capture.mode,
        name=name,
    )


def sum_totals(schedules: Iterable[Schedule]) -> Totals:
    """Returns the totals of some schedules."""
    every = list(schedules)
    kernels = [kernel for item in every for kernel in item.kernels]
    buffers = [buffer for item in every for buffer in item.bufferizes]
    return Totals(
        kernels=len(kernels),
        copies=sum(item.copies for item in every),
        executed_ops=sum(kernel.executed_ops for kernel in kernels),
        bytes=sum(kernel.bytes for kernel in kernels),
        local_bytes=max((kernel.local_bytes for kernel in kernels), default=0),
        threads=max((kernel.threads for kernel in kernels), default=0),
        buffer_bytes=sum(item.bytes for item in buffers if item.outcome == "kept" and item.addrspace == "GLOBAL"),
    )


def _diff_schedules(one: Reading, other: Reading, lines: Mapping[str, str]) -> ScheduleDiff:
    if have_same_graph(one.schedule, other.schedule):
        # the graphs are equal without the neutral form
        one, other = read_plainly(one.schedule), read_plainly(other.schedule)
    loosely = one.is_neutral and other.is_neutral
    nodes = match_nodes(one.compared, other.compared, loosely=loosely)
    if loosely:
        back = {partner: node for node, partner in nodes.items()}
        one, other = one.leave_out(other, nodes), other.leave_out(one, back)
    edited = {} if loosely else match_edits(one.compared, other.compared, nodes, lines)
    return _compare(one, other, nodes | edited, edited)


def _compare(before: Reading, after: Reading, nodes: Mapping[int, int], edited: Container[int]) -> ScheduleDiff:
    left, right = before.compared, after.compared
    renaming = choose_renaming(left, right, nodes)
    changes, same = compare_nodes(before, after, renaming, edited)
    matched = set(nodes.values())
    outputs = compare_outputs(left, right)
    index_before, totals_before = _identify(before)
    index_after, totals_after = _identify(after)
    return ScheduleDiff(
        before=index_before,
        after=index_after,
        line_before=left.line,
        line_after=right.line,
        totals_before=totals_before,
        totals_after=totals_after,
        renamed=renaming.ranges,
        removed_ranges=tuple(item for item in left.ranges if item.name not in renaming.ranges),
        added_ranges=tuple(item for item in right.ranges if item.name not in renaming.ranges.values()),
        nodes=changes,
        nodes_only_before=tuple(before.realized(node.id) for node in left.nodes if node.id not in nodes),
        nodes_only_after=tuple(after.realized(node.id) for node in right.nodes if node.id not in matched),
        same_nodes=same,
        vmap_map=compare_vmap_map(left, right, renaming),
        bufferizes=compare_bufferizes(before, after, renaming),
        kernels=compare_kernels(before, after, nodes),
        values=find_worst(item.status for item in outputs),
        outputs=outputs,
        folded_before=before.folded,
        folded_after=after.folded,
        buffer_op_before=left.buffer_op,
        buffer_op_after=right.buffer_op,
    )


def _identify(reading: Reading) -> tuple[int | None, Totals | None]:
    """Returns the index and the totals of a schedule, None and None if its side does not have it."""
    if reading.schedule is _NOTHING:
        return None, None
    return reading.schedule.index, sum_totals([reading.measured])


# *** without a diff: which nodes and kernels are the same


@dataclass(frozen=True)
class Pairs:
    """Node ids of before and their partners after. `kernels` has the numbers of equal kernels, None if their keys
    decide."""

    nodes: dict[int, int]
    kernels: dict[int, int] | None


def have_same_tinygrad(before: Versions, after: Versions) -> bool:
    """Returns whether both sides ran on the same tinygrad. A checkout with uncommitted changes never counts as same."""
    one, other = ((side.tinygrad, side.tree, side.commit) for side in (before, after))
    return one == other and not (before.commit or "").endswith("-dirty")


def pair_schedules(before: Schedule, after: Schedule, *, same_tinygrad: bool) -> Pairs:
    """Returns the equal nodes and kernels of two schedules; of two tinygrads those with the same meaning."""
    if same_tinygrad or have_same_graph(before, after):
        return Pairs(match_nodes(before, after), None)
    left, right = read_neutrally(before), read_neutrally(after)
    heads = match_nodes(left.compared, right.compared, loosely=True)
    kernels = compare_kernels(left, right, heads)
    same = {item.before[0].number: item.after[0].number for item in kernels if item.status == "unchanged"}
    return Pairs(_pair_nodes(left, right, heads), same)


def _pair_nodes(left: Reading, right: Reading, heads: dict[int, int]) -> dict[int, int]:
    pairs = dict(heads)
    for one, other in heads.items():
        stored_before, stored_after = left.shown.get(one, one), right.shown.get(other, other)
        if stored_before != one and stored_after != other:
            pairs[stored_before] = stored_after
    # nodes that only show a value may still be equal
    free_before, free_after = {node.id for node in left.folded}, {node.id for node in right.folded}
    alike = match_nodes(left.schedule, right.schedule).items()
    return pairs | {one: other for one, other in alike if one in free_before and other in free_after}
