"""The nodes to draw, of one schedule or of two laid over each other."""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console

from vmapdbg.diff import match_nodes
from vmapdbg.model import Bufferize, Capture, Node, Schedule
from vmapdbg.render.format import Places
from vmapdbg.render.graph.model import ADDED, COMMON, REMOVED
from vmapdbg.render.text.layout import Page
from vmapdbg.render.text.view import Findings, ScheduleView


@dataclass(frozen=True)
class BufferMark:
    """A BUFFERIZE of an item: of which side, and the ambient ranges that it loses."""

    bufferize: Bufferize
    lost: tuple[str, ...]
    mark: str

    @property
    def kept(self) -> bool:
        """Whether there is a buffer."""
        return self.bufferize.outcome == "kept"


@dataclass(frozen=True)
class Item:
    """A node to draw. `key` is its id, or `b7` for node 7 of the baseline only; `src` are keys.

    `before` is the baseline's node where both sides have it. `ambient` are outermost first.
    `path` is the ambient ranges of the scope it is drawn in: its own, and for a VMAPOUT those that it ends.
    """

    key: str
    node: Node
    src: tuple[str, ...]
    before: Node | None
    mark: str
    buffers: tuple[BufferMark, ...]
    ambient: tuple[str, ...]
    path: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether the sides decided differently about it."""
        if any(buffer.mark != COMMON for buffer in self.buffers):
            return True
        return self.before is not None and _reason(self.before) != _reason(self.node)


def _reason(node: Node) -> str | None:
    return node.realized.reason if node.realized is not None else None


class Side:
    """One schedule of a capture, with lookups."""

    def __init__(self, capture: Capture, schedule: Schedule) -> None:
        page = Page(Console(file=io.StringIO(), width=80))
        self.capture, self.schedule = capture, schedule
        self.places = Places(capture)
        self.view = ScheduleView(capture, schedule, page, self.places, Findings(capture.findings))
        self.buffers: dict[int, list[Bufferize]] = defaultdict(list)
        for bufferize in schedule.bufferizes:
            self.buffers[bufferize.node].append(bufferize)
        self.mapped: dict[int, tuple[str, ...]] = {entry.node: entry.ranges for entry in schedule.vmap_map}

    def ambient_of(self, node: Node) -> tuple[str, ...]:
        """Returns the ambient ranges of a node, from wherever the capture has them."""
        return node.ambient or self.mapped.get(node.id, ())

    def describe_buffer(self, bufferize: Bufferize) -> tuple[object, ...]:
        """Returns what makes two BUFFERIZE the same: not the numbers of their ranges."""
        ambient = tuple(name for name in bufferize.closed_ranges if name in self.view.vmap_names)
        count = len(bufferize.closed_ranges)
        return (ambient, count, bufferize.size, bufferize.addrspace, bufferize.outcome, self.view.lost(bufferize))

    def mark_buffer(self, bufferize: Bufferize, mark: str) -> BufferMark:
        """Returns a BUFFERIZE to draw."""
        return BufferMark(bufferize, self.view.lost(bufferize), mark)


def count_common(before: Schedule, after: Schedule) -> int:
    """Returns how many nodes two schedules share."""
    return len(match_nodes(before, after))


def collect_items(after: Side, before: Side | None = None) -> list[Item]:
    """Returns the items of a schedule, sources first; with `before`, those of both, marked."""
    order = order_scopes(after) if before is None else order_scopes(after) | order_scopes(before)
    if before is None:
        return [_make_item(after, node, str(node.id), COMMON, order) for node in after.schedule.nodes]
    matched = match_nodes(before.schedule, after.schedule)
    twins = {new: old for old, new in matched.items()}
    old_keys = {
        node.id: str(matched[node.id]) if node.id in matched else f"b{node.id}" for node in before.schedule.nodes
    }
    removed = [
        _make_item(before, node, old_keys[node.id], REMOVED, order, old_keys)
        for node in before.schedule.nodes
        if node.id not in matched
    ]
    items: list[Item] = []
    for node in after.schedule.nodes:
        twin = before.view.nodes[twins[node.id]] if node.id in twins else None
        if twin is None:
            items.append(_make_item(after, node, str(node.id), ADDED, order))
        else:
            items.append(_make_twins(before, twin, after, node, order))
    return _sort_items([*items, *removed])


def _make_item(
    side: Side, node: Node, key: str, mark: str, order: dict[str, int], keys: dict[int, str] | None = None
) -> Item:
    known = side.view.nodes
    sources = tuple(
        (keys[source] if keys else str(source)) for source in node.src if source in known and source < node.id
    )
    buffers = tuple(side.mark_buffer(bufferize, mark) for bufferize in side.buffers[node.id])
    ambient = sort_scope(side.ambient_of(node), order)
    return Item(key, node, sources, None, mark, buffers, ambient, sort_scope(_find_scope(side, node), order))


def _make_twins(before: Side, old: Node, after: Side, new: Node, order: dict[str, int]) -> Item:
    item = _make_item(after, new, str(new.id), COMMON, order)
    olds = {before.describe_buffer(bufferize): bufferize for bufferize in before.buffers[old.id]}
    news = {after.describe_buffer(bufferize): bufferize for bufferize in after.buffers[new.id]}
    buffers = [before.mark_buffer(olds[key], REMOVED) for key in olds if key not in news]
    buffers += [after.mark_buffer(news[key], COMMON if key in olds else ADDED) for key in news]
    return Item(item.key, new, item.src, old, COMMON, tuple(buffers), item.ambient, item.path)


def _sort_items(items: list[Item]) -> list[Item]:
    """Sources first. The two sides are sorted each, and only removed items read items of the other."""
    known = {item.key: item for item in items}
    done: dict[str, Item] = {}
    for item in items:
        stack = [item]
        while stack:
            top = stack[-1]
            missing = [known[key] for key in top.src if key not in done]
            if missing:
                stack += missing
            else:
                done.setdefault(stack.pop().key, top)
    return list(done.values())


def _find_scope(side: Side, node: Node) -> tuple[str, ...]:
    own = side.ambient_of(node)
    if node.op != "VMAPOUT":
        return own
    sources = [side.view.nodes[source] for source in node.src if source in side.view.nodes]
    ended = [name for source in sources for name in side.ambient_of(source)]
    named = [name for name in re.findall(r"\w+", node.arg) if name in side.view.vmap_names]
    return tuple(dict.fromkeys([*own, *ended, *named]))


def order_scopes(side: Side) -> dict[str, int]:
    """Returns for each vmap range how many ranges are around it: what a VMAPOUT keeps is around what it ends."""
    around: dict[str, set[str]] = {name: set() for name in sorted(side.view.vmap_names)}
    for node in side.schedule.nodes:
        if node.op == "VMAPOUT":
            own = set(side.ambient_of(node))
            for name in set(_find_scope(side, node)) - own:
                around.setdefault(name, set()).update(own)
    return {name: len(outer) for name, outer in around.items()}


def sort_scope(names: Iterable[str], order: dict[str, int]) -> tuple[str, ...]:
    """Returns ranges outermost first."""
    return tuple(sorted(dict.fromkeys(names), key=lambda name: (order.get(name, 0), name)))
