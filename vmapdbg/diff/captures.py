"""Compares two captures: the decisions of the rangeify pass (nodes, `vmap_map`, BUFFERIZE), kernels and values."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from vmapdbg.diff import result
from vmapdbg.diff.kernels import compare_kernels
from vmapdbg.diff.neutral import Reading, read_neutrally, read_plainly
from vmapdbg.diff.nodes import have_same_graph, match_nodes, match_rest, match_schedules
from vmapdbg.diff.pairing import Renaming, choose_ranges, find_opcodes, find_ranges
from vmapdbg.diff.values import compare_outputs, compare_printed, estimate_terms, find_worst
from vmapdbg.model.account import UNKNOWN, Account, Left, add_accounts, settle
from vmapdbg.model.capture import Bufferize, Capture, Finding, Node, Realized, Schedule, Versions
from vmapdbg.model.schedule_index import index_of, sum_programs
from vmapdbg.model.vocabulary import BufferizeField, ChangeStatus, NodeField, PairedBy, ValueLeft

_NOTHING = Schedule(-1, None, 0, (), (), (), (), (), ())  # compared with a schedule that only one side has
# Why the outputs of two schedules are not compared, by how they were paired.
_LEFT: Mapping[PairedBy, ValueLeft] = {"": "one-side", "graph": "not-paired", "alike": "not-paired"}
_FIELDS: tuple[BufferizeField, ...] = get_args(BufferizeField)
_NO_REASON = "stock"  # unknown: the capture is of stock tinygrad
_BUFFER_WEIGHT = 100_000  # other nodes inherit a buffer's range: its vote outweighs theirs


def diff_captures(
    before: Capture,
    after: Capture,
    printed: tuple[str, str] | None = None,
    names: tuple[str, str] = ("", ""),
    same_lines: Mapping[str, str] | None = None,
) -> result.CaptureDiff:
    """Compares two captures, of two tinygrads by the meaning of their nodes. `printed` is what their snippets wrote to
    stdout, `names` their files. `same_lines` maps lines of before to lines of after if the snippets are two files."""
    read = read_plainly if have_same_tinygrad(before.versions, after.versions) else read_neutrally
    left, right = list(map(read, before.schedules)), list(map(read, after.schedules))
    lines = dict(same_lines or {})
    sides = [item.compared for item in left], [item.compared for item in right]
    terms = list(map(estimate_terms, sides))
    unread = any(name and not any(item.outputs for item in side) for name, side in zip(names, sides, strict=True))
    schedules: list[result.ScheduleDiff] = []
    for pair in match_schedules(*sides, lines, edited=any(names) and _may_be_edited(before, after)):
        one = other = read_plainly(_NOTHING)
        summed = 0
        if pair.before is not None:
            one, summed = left[pair.before], terms[0][pair.before]
        if pair.after is not None:
            other, summed = right[pair.after], max(summed, terms[1][pair.after])
        reason = "not-read" if unread else _LEFT.get(pair.by, "")
        outputs = compare_outputs(one.schedule, other.schedule, summed, reason)
        found = replace(_diff_schedules(one, other, lines), paired_by=pair.by, outputs=outputs)
        schedules.append(replace(found, values=find_worst(item.status for item in outputs)))
    return result.CaptureDiff(
        schema=result.DIFF_SCHEMA,
        kind="diff",
        before=_describe_side(before, left, names[0]),
        after=_describe_side(after, right, names[1]),
        same_snippet=before.snippet == after.snippet,
        values=find_worst(item.values for item in schedules),
        printed=printed and compare_printed(*printed),
        schedules=tuple(schedules),
        findings_gone=_subtract_findings(before.findings, after.findings, lines),
        findings_new=_subtract_findings(after.findings, before.findings, {new: old for old, new in lines.items()}),
        same_lines=lines,
        account=_settle(schedules, [side.account for side in (before, after) if side.account is not None]),
    )


def _settle(schedules: Sequence[result.ScheduleDiff], counted: Sequence[Account]) -> Account | None:
    """Returns what was compared of what both runs did, None if that was not counted on both sides."""
    if len(counted) < 2:
        return None
    values = [item for one in schedules for item in one.outputs]
    # one side may have more
    seen = {what: max(one.seen.get(what, 0) for one in counted) for what in ("outputs", "replays")}
    seen["outputs"] = max(seen["outputs"], len(values))
    left = [Left("outputs", 1, item.left or UNKNOWN) for item in values if item.status == "unknown"]
    left += [Left("outputs", seen["outputs"], "no-values"), Left("replays", seen["replays"], "replays")]
    compared = {"outputs": sum(item.status != "unknown" for item in values)}
    return add_accounts([settle(seen, compared, left), *(one.of_launches for one in counted)])


def leave_unstable(
    diff: result.CaptureDiff, repeated: result.CaptureDiff, printed: tuple[str, str, str]
) -> result.CaptureDiff:
    """Returns a diff without what two runs of before, compared in `repeated`, did differently: that is no change.
    `printed` is what before, after, and before in its second run printed."""
    outputs = ((item.before, found) for item in repeated.schedules for found in item.outputs)
    unstable = {(index, found.number) for index, found in outputs if found.status in ("different", "unknown")}
    moved = {item.before for item in repeated.schedules if not item.is_same}
    schedules: list[result.ScheduleDiff] = []
    for item in diff.schedules:
        outputs = tuple(
            replace(found, status="unknown", left="not-deterministic")
            if (item.before, found.number) in unstable and not found.left
            else found
            for found in item.outputs
        )
        values = find_worst(found.status for found in outputs)
        schedules.append(replace(item, outputs=outputs, values=values, not_deterministic=item.before in moved))
    values = find_worst(item.values for item in schedules)
    account = diff.account
    if account is not None:
        # the counts are those of both sides already
        account = _settle(schedules, [replace(account.part("outputs", "replays"), left=()), account])
    return replace(diff, schedules=tuple(schedules), values=values, printed=compare_printed(*printed), account=account)


def _may_be_edited(before: Capture, after: Capture) -> bool:
    """Whether a saved capture's lines may have moved: schedules are at other lines, though no side ended early."""
    lines = [{schedule.line for schedule in side.schedules} for side in (before, after)]
    ended = [side.error is not None for side in (before, after)]
    return not all(ended[i] or lines[1 - i] <= lines[i] for i in range(2))


def diff_schedules(before: Schedule, after: Schedule, *, same_tinygrad: bool) -> result.ScheduleDiff:
    """Compares two schedules, of two tinygrads by the meaning of their nodes."""
    read = read_plainly if same_tinygrad else read_neutrally
    return _diff_schedules(read(before), read(after), {})


def _subtract_findings(
    some: tuple[Finding, ...], others: tuple[Finding, ...], lines: Mapping[str, str]
) -> tuple[Finding, ...]:
    """Returns findings that the others lack, by code and line (`lines` maps them): kernels and nodes may differ."""
    known = {(found.code, found.line) for found in others}
    return tuple(found for found in some if (found.code, lines.get(found.line or "", found.line)) not in known)


def _describe_side(capture: Capture, readings: Iterable[Reading], name: str) -> result.Side:
    return result.Side(
        snippet=capture.snippet,
        target=capture.target,
        patches=capture.patches,
        versions=capture.versions,
        error=capture.error,
        schedules=len(capture.schedules),
        totals=replace(_sum_totals([item.measured for item in readings]), seconds=sum_programs(capture.kernels)),
        mode=capture.mode,
        name=name,
    )


def _sum_totals(schedules: Sequence[Schedule]) -> result.Totals:
    kernels = [kernel for item in schedules for kernel in item.kernels]
    return result.Totals(
        kernels=len(kernels),
        copies=sum(item.copies for item in schedules),
        executed_ops=sum(kernel.executed_ops for kernel in kernels),
        bytes=sum(kernel.bytes for kernel in kernels),
        local_bytes=max((kernel.local_bytes for kernel in kernels), default=0),
        threads=max((kernel.threads for kernel in kernels), default=0),
        buffer_bytes=sum(made.bytes for item in schedules for made in item.bufferizes if made.holds_memory),
    )


def _diff_schedules(one: Reading, other: Reading, lines: Mapping[str, str]) -> result.ScheduleDiff:
    if have_same_graph(one.schedule, other.schedule):
        # the graphs are equal without the neutral form
        one, other = read_plainly(one.schedule), read_plainly(other.schedule)
    loosely = one.is_neutral and other.is_neutral
    nodes = match_nodes(one.compared, other.compared)
    rest = match_rest(one.compared, other.compared, nodes, lines, loosely=loosely)
    if not loosely:
        return _compare(one, other, nodes | rest, rest)
    nodes |= rest
    back = {partner: node for node, partner in nodes.items()}
    return _compare(one.leave_out(other, nodes), other.leave_out(one, back), nodes, {})


def _compare(before: Reading, after: Reading, nodes: Mapping[int, int], edited: Container[int]) -> result.ScheduleDiff:
    left, right = before.compared, after.compared
    renaming = choose_renaming(left, right, nodes)
    changes, same, ambient = compare_nodes(before, after, renaming, edited)
    matched = set(nodes.values())
    totals = [None if side.schedule is _NOTHING else _sum_totals([side.measured]) for side in (before, after)]
    return result.ScheduleDiff(
        before=totals[0] and left.index,
        after=totals[1] and right.index,
        line_before=left.line,
        line_after=right.line,
        totals_before=totals[0],
        totals_after=totals[1],
        renamed=renaming.ranges,
        removed_ranges=tuple(item for item in left.ranges if item.name not in renaming.ranges),
        added_ranges=tuple(item for item in right.ranges if item.name not in renaming.ranges.values()),
        nodes=tuple(changes),
        nodes_only_before=tuple(before.realized(node.id) for node in left.nodes if node.id not in nodes),
        nodes_only_after=tuple(after.realized(node.id) for node in right.nodes if node.id not in matched),
        same_nodes=tuple(same),
        vmap_map=tuple(ambient),
        bufferizes=compare_bufferizes(before, after, renaming),
        kernels=compare_kernels(before, after, nodes),
        values="unknown",
        outputs=(),
        folded_before=before.folded,
        folded_after=after.folded,
        buffer_op_before=left.buffer_op,
        buffer_op_after=right.buffer_op,
    )


# *** nodes and buffers


def choose_renaming(before: Schedule, after: Schedule, nodes: Mapping[int, int]) -> Renaming:
    """Returns the names of the ranges of before after, given the paired nodes."""
    index = index_of(after)
    pairs: list[tuple[tuple[str, ...], tuple[str, ...], int]] = []
    for node in before.nodes:
        other = index.node(nodes.get(node.id))
        if other is not None:
            pairs.append((node.in_ranges or (), other.in_ranges or (), 1))
            pairs.append((node.out_ranges or (), other.out_ranges or (), 1))
    for item in before.bufferizes:
        buffer = index.find_kept(nodes.get(item.node, -1))
        if buffer is not None and item.outcome == "kept":
            left, right = (tuple(filter(find_ranges, made.closed_ranges)) for made in (item, buffer))
            if len(left) == len(right):
                pairs.append((left, right, _BUFFER_WEIGHT))
    ranges = choose_ranges(pairs, before.ranges, after.ranges)
    return Renaming(ranges, nodes, {item.name for item in before.ranges} - ranges.keys())


def compare_nodes(
    before: Reading, after: Reading, renaming: Renaming, edited: Container[int] = ()
) -> tuple[list[result.NodeChange], list[result.SameNode], list[result.VmapChange]]:
    """Returns the paired nodes that changed, the unchanged pairs, and the pairs whose ambient ranges changed, by ids
    after. `edited` are nodes of before that may compute something else than their partners."""
    nodes_before, nodes_after = index_of(before.compared).nodes, index_of(after.compared).nodes
    ambient_before = {entry.node: entry.ranges for entry in before.compared.vmap_map}
    ambient_after = {entry.node: entry.ranges for entry in after.compared.vmap_map}
    changes: list[result.NodeChange] = []
    same: list[result.SameNode] = []
    ambient: list[result.VmapChange] = []
    for one, other in sorted(renaming.nodes.items(), key=lambda pair: pair[1]):
        node, twin = nodes_before[one], nodes_after[other]
        changed = _find_changed(node, twin, renaming)
        if one in edited and tuple(map(renaming.nodes.get, node.src)) != twin.src:
            changed = (*changed, "src")
        if "realized" in changed:
            changes.append(result.NodeChange(before.realized(one), after.realized(other), changed))
        elif changed:
            changes.append(result.NodeChange(before.node(one), after.node(other), changed))
        else:
            shown = after.node(other)
            same.append(result.SameNode(one, other, shown.op, shown.shape, shown.out_ranges, shown.line))
        left, right = ambient_before.get(one, ()), ambient_after.get(other, ())
        if renaming.translate_all(left) != right:
            ambient.append(result.VmapChange(one, other, twin.op, left, right))
    return changes, same, ambient


def _find_changed(before: Node, after: Node, renaming: Renaming) -> tuple[NodeField, ...]:
    same: dict[NodeField, bool] = {
        "in_ranges": renaming.translate_all(before.in_ranges) == after.in_ranges,
        "out_ranges": renaming.translate_all(before.out_ranges) == after.out_ranges,
        "ambient": renaming.translate_all(before.ambient) == after.ambient,
        "realized": _is_same_realized(before.realized, after.realized, renaming),
    }
    return tuple(name for name, equal in same.items() if not equal)


def _is_same_realized(before: Realized | None, after: Realized | None, renaming: Renaming) -> bool:
    if before is None or after is None:
        return before is after
    if before.axes != after.axes or _NO_REASON in (before.reason, after.reason):
        return before.axes == after.axes
    if before.reason != after.reason:
        return False
    if not before.reasons or not after.reasons:
        # an older capture has only a sentence, which is not compared
        return True
    is_same_count = len(before.reasons) == len(after.reasons)
    return is_same_count and all(map(renaming.is_same_reason, before.reasons, after.reasons))


def compare_bufferizes(before: Reading, after: Reading, renaming: Renaming) -> tuple[result.BufferizeChange, ...]:
    """Returns every BUFFERIZE of both sides in the order of after; those of before alone come last."""
    made_before, made_after = before.compared.bufferizes, after.compared.bufferizes
    left = {renaming.nodes[made.node]: made for made in made_before if made.node in renaming.nodes}
    pairs: list[tuple[Bufferize | None, Bufferize | None]] = [(left.get(made.node), made) for made in made_after]
    paired = {made.node for made in made_after}
    pairs += [(made, None) for made in made_before if renaming.nodes.get(made.node) not in paired]
    return tuple(_compare_bufferize(before, after, *pair, renaming) for pair in pairs)


def _compare_bufferize(
    before: Reading, after: Reading, left: Bufferize | None, right: Bufferize | None, renaming: Renaming
) -> result.BufferizeChange:
    changed: tuple[BufferizeField, ...] = ()
    status: ChangeStatus = "unchanged"
    if left is None:
        status = "only-after"
    elif right is None:
        status = "only-before"
    elif changed := _find_changed_fields(left, right, renaming):
        status = "changed"
    closed_before, closed_after = (made.closed_ranges if made is not None else () for made in (left, right))
    added: list[str] = []
    removed: list[str] = []
    for tag, i, j, k, m in find_opcodes(tuple(map(renaming.translate, closed_before)), closed_after):
        if tag != "equal":
            removed += closed_before[i:j]
            added += closed_after[k:m]
    op = ""
    ambient: list[str] = []
    for reading, made in ((before, left), (after, right)):
        if made is not None:
            op = reading.realized(made.node).op
            ambient += index_of(reading.compared).ambient_of(made.node)
    return result.BufferizeChange(
        status=status,
        op=op,
        before=before.bufferize(left),
        after=after.bufferize(right),
        changed=changed,
        added_ranges=tuple(added),
        removed_ranges=tuple(removed),
        ambient=tuple(dict.fromkeys(ambient)),
        lost_before=index_of(before.compared).find_lost(left),
        lost_after=index_of(after.compared).find_lost(right),
    )


def _find_changed_fields(left: Bufferize, right: Bufferize, renaming: Renaming) -> tuple[BufferizeField, ...]:
    closed, ambient = map(renaming.translate_all, (left.closed_ranges, left.ambient))
    translated = replace(left, closed_ranges=closed, ambient=ambient)
    same: dict[BufferizeField, bool] = {name: getattr(translated, name) == getattr(right, name) for name in _FIELDS}
    if left.decided is not None and right.decided is not None:
        # an older capture has only a sentence, without ranges and nodes
        same["reason"] = renaming.is_same_reason(left.decided, right.decided)
    return tuple(name for name, equal in same.items() if not equal)


# *** without a diff: which nodes and kernels are the same


def have_same_tinygrad(before: Versions, after: Versions) -> bool:
    """Returns whether both sides ran on the same tinygrad. A checkout with uncommitted changes never counts as same."""
    one, other = ((side.tinygrad, side.tree, side.commit) for side in (before, after))
    return one == other and not (before.commit or "").endswith("-dirty")
