"""The labels and tooltips of the tensor graph's nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from vmapdbg.model.capture import Bufferize, Node
from vmapdbg.model.wording import cut_end, format_plural
from vmapdbg.page.format import format_bytes, format_ids, format_shape, star_ambient
from vmapdbg.page.graph.fold import shorten
from vmapdbg.page.graph.groups import Group
from vmapdbg.page.graph.items import BufferMark, DrawnSchedule, Item, reason_of
from vmapdbg.page.graph.model import REMOVED, SIGNS

_LONGEST_TIP = 600
_MOST_OPS = 6
_MOST_TIPS = 12
_OPS_A_LINE = 3


def make_label(group: Group, drawn: DrawnSchedule) -> tuple[str, ...]:
    """Returns the lines of a group's node: id and op, shape and place, ambient ranges, the decision."""
    if group.kind == "index":
        return _label_index(group)
    return (*_make_title(group), *_label_value(group, drawn), *_label_decisions(group.last))


def _make_title(group: Group) -> list[str]:
    last = group.last
    sign = SIGNS[last.mark]
    ops = [item.node.op for item in group.items]
    if len(ops) == 1:
        return [f"{sign}{last.node.id} {_name_op(last.node)}"]
    if len(ops) > _MOST_OPS:
        return [f"{sign}{last.node.id} {_name_op(last.node)}", *count_ops(ops[:-1])]
    ids = format_ids(item.node.id for item in group.items)
    parts = [" > ".join(ops[i : i + _OPS_A_LINE]) for i in range(0, len(ops), _OPS_A_LINE)]
    first, *rest = [part + " >" for part in parts[:-1]] + parts[-1:]
    return [f"{sign}{ids} {first}", *(f"    {line}" for line in rest)]


def _name_op(node: Node) -> str:
    if node.op in ("REDUCE_AXIS", "REDUCE", "VMAPIN", "VMAPOUT", "COPY") and node.arg:
        return f"{node.op} {shorten(node.arg, 24)}"
    return node.op


def count_ops(ops: Iterable[str]) -> list[str]:
    """Returns which ops there are and how many of each, the most frequent first, in lines."""
    counts = Counter(ops).most_common()
    parts = [f"{count} {op}" for op, count in counts]
    lines = [", ".join(parts[i : i + _OPS_A_LINE]) for i in range(0, min(len(parts), 2 * _OPS_A_LINE), _OPS_A_LINE)]
    lines[0] = f"with {lines[0]}"
    left = sum(count for _, count in counts[2 * _OPS_A_LINE :])
    if left:
        lines.append(f"and {left} more")
    return lines


def _label_value(group: Group, drawn: DrawnSchedule) -> list[str]:
    node, first = group.last.node, group.items[0]
    shape = format_shape(node.shape)
    if group.kind == "view":
        source = drawn.index.node(next(iter(first.node.src), None))
        if source is not None and source.shape is not None and first.mark != REMOVED:
            shape = f"{format_shape(source.shape)} -> {shape}"
        lines = [shorten(shape)]
    else:
        place = drawn.places.format(node.line, brief=True)
        value = shorten(f"{shape} {node.dtype}")
        lines = [f"{value}  {shorten(place, 30)}".strip()]
    if group.constants:
        lines.append(shorten("const " + ", ".join(group.constants)))
    if group.last.ambient:
        lines.append(star_ranges(group.last.ambient))
    return [line for line in lines if line]


def _label_decisions(item: Item) -> list[str]:
    now = reason_of(item.node)
    then = reason_of(item.before or item.node)
    if now != then:
        return [f"- {_name_decision(then)}", f"+ {_name_decision(now)}"]
    if now is None:
        return []
    return [_name_decision(now)]


def _name_decision(reason: str | None) -> str:
    if reason is None:
        return "not realized"
    return f"realized: {reason}"


def _label_index(group: Group) -> tuple[str, ...]:
    node = group.last.node
    value = f"{format_shape(node.shape)} {node.dtype}, {format_plural(len(group.items), 'node')} from constants"
    return (f"{SIGNS[group.last.mark]}{node.id} index arithmetic", shorten(value))


def star_ranges(names: Iterable[str]) -> str:
    """Returns ambient ranges as `rm1* rm2*`."""
    return " ".join(f"{name}*" for name in names)


def make_tooltip(group: Group, drawn: DrawnSchedule) -> str:
    """Returns what is known of a group's nodes, the last node first."""
    tips = [describe_node(item, drawn) for item in reversed(group.items[-_MOST_TIPS:])]
    left = len(group.items) - len(tips)
    if left:
        tips.append(f"and {format_plural(left, 'more node')}: {format_ids(i.node.id for i in group.items[:left])}")
    return "\n".join(tips)


def describe_node(item: Item, drawn: DrawnSchedule) -> str:
    """Returns one node in a few lines: id, op, shape, ranges, ambient ranges, reason, line."""
    node = item.node
    name = f"{SIGNS[item.mark]}node {node.id}"
    if item.mark == REMOVED:
        name += " of the baseline"
    title = f"{name}: {node.op} {node.arg}".rstrip()
    lines = [f"{title} {node.dtype} {format_shape(node.shape)}".rstrip()]
    if node.in_ranges is not None or node.out_ranges is not None:
        lines.append(f"  ranges {join_ranges(node.in_ranges)} -> {join_ranges(node.out_ranges)}")
    if item.ambient:
        lines.append(f"  ambient {star_ranges(item.ambient)}")
    if node.realized is not None:
        lines.append(f"  realized, {node.realized.reason}: {node.realized.detail}")
    if node.unsplit is not None:
        lines.append(f"  not split: {node.unsplit.detail}")
    if item.before is not None and item.changed:
        detail = "" if item.before.realized is None else item.before.realized.detail
        lines.append(f"  baseline {_name_decision(reason_of(item.before))}: {detail}")
    if node.line is not None:
        lines.append(f"  {node.line}")
    return "\n".join(cut_end(line, _LONGEST_TIP) for line in lines)


def join_ranges(names: Sequence[str] | None) -> str:
    """Returns the ranges of a value's axes, `-` if it has none."""
    return ", ".join(names or ()) or "-"


def label_buffer(buffer: BufferMark, drawn: DrawnSchedule) -> tuple[str, ...]:
    """Returns the lines of a BUFFERIZE: what it closes, its size, whether it was kept, what it loses."""
    bufferize, sign = buffer.bufferize, SIGNS[buffer.mark]
    ambient = drawn.index.ambient_of(bufferize.node)
    closed = star_ambient(bufferize.closed_ranges, ambient)
    lost = [f"{name} NOT closed" for name in buffer.lost]
    space = "" if bufferize.addrspace == "GLOBAL" else f" {bufferize.addrspace}"
    size = f"{size_text(bufferize, drawn)}{space}, {bufferize.outcome}"
    return (*lost, shorten(f"{sign}{drawn.schedule.buffer_op} ({closed})"), size)


def size_text(bufferize: Bufferize, drawn: DrawnSchedule) -> str:
    """Returns the size of a buffer as `3x2 = 6, 48 B`."""
    sizes = [drawn.index.size_of(name) for name in bufferize.closed_ranges]
    if len(sizes) < 2 or None in sizes:
        return f"{bufferize.size:,} elements, {format_bytes(bufferize.bytes)}"
    return f"{'x'.join(map(str, sizes))} = {bufferize.size:,}, {format_bytes(bufferize.bytes)}"


def describe_buffer(buffer: BufferMark, drawn: DrawnSchedule) -> str:
    """Returns the tooltip of a BUFFERIZE."""
    bufferize = buffer.bufferize
    lines = [
        f"{drawn.schedule.buffer_op} of node {bufferize.node}, {bufferize.outcome}: {bufferize.reason}",
        f"  closes {join_ranges(bufferize.closed_ranges)}: {size_text(bufferize, drawn)} {bufferize.addrspace}",
        *(f"  {name} is not closed: its iterations overwrite each other" for name in buffer.lost),
    ]
    return "\n".join(cut_end(line, _LONGEST_TIP) for line in lines)
