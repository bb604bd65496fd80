"""The nodes to draw, of one schedule or of two laid over each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from vmapdbg.diff import Pairs, have_same_tinygrad, pair_schedules
from vmapdbg.model.capture import Bufferize, Capture, Node, Schedule
from vmapdbg.model.ops import MOVEMENT
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.vocabulary import Mark
from vmapdbg.page.findings import Findings
from vmapdbg.page.format import Places
from vmapdbg.page.graph.model import ADDED, COMMON, REMOVED, choose_colours

# what costs nothing: a view, a number, another type
_FREE = MOVEMENT | {"CAST", "CONST"}


@dataclass(frozen=True)
class BufferMark:
    """A BUFFERIZE of an item: of which side, and the ambient ranges that it loses."""

    bufferize: Bufferize
    lost: tuple[str, ...]
    mark: Mark

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
    mark: Mark
    buffers: tuple[BufferMark, ...]
    ambient: tuple[str, ...]
    path: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether the sides decided differently about it."""
        if any(buffer.mark != COMMON for buffer in self.buffers):
            return True
        return self.before is not None and find_reason(self.before) != find_reason(self.node)


def find_reason(node: Node) -> str | None:
    """Returns why a node is realized, None where it is not."""
    return node.realized and node.realized.reason


class DrawnSchedule:
    """A schedule to draw: the capture that it is from, and what is looked up in both."""

    def __init__(self, capture: Capture, schedule: Schedule) -> None:
        self.capture = capture
        self.schedule = schedule
        self.index = index_of(schedule)
        self.places = Places.of(capture)
        self.findings = Findings(capture.findings)

    def find_nodes(self, ids: Iterable[int]) -> list[Node]:
        """Returns the nodes with some ids, those that the schedule has."""
        return [self.index.nodes[node_id] for node_id in ids if node_id in self.index.nodes]

    def find_buffers(self, node: Node, mark: Mark) -> tuple[BufferMark, ...]:
        """Returns the BUFFERIZE of a node to draw, nothing where it has none."""
        bufferize = self.index.bufferizes.get(node.id)
        if bufferize is None:
            return ()
        return (BufferMark(bufferize, self.index.find_lost(bufferize), mark),)

    def describe_buffer(self, buffer: BufferMark) -> tuple[object, ...]:
        """Returns what makes two BUFFERIZE the same: not the numbers of their ranges."""
        made = buffer.bufferize
        ambient = tuple(name for name in made.closed_ranges if name in self.index.vmap_names)
        return (ambient, len(made.closed_ranges), made.size, made.addrspace, made.outcome, buffer.lost)


def count_work(nodes: Iterable[Node]) -> frozenset[tuple[str, int]]:
    """Returns which ops nodes compute and how many of each, whatever their shapes: two that do the same have the
    same."""
    return frozenset(Counter(node.op for node in nodes if node.op not in _FREE).items())


def pair_drawn(before: DrawnSchedule, after: DrawnSchedule) -> Pairs:
    """Returns what is the same in two drawn schedules."""
    same = have_same_tinygrad(before.capture.versions, after.capture.versions)
    return pair_schedules(before.schedule, after.schedule, same_tinygrad=same)


def colour_ranges(after: DrawnSchedule, before: DrawnSchedule | None) -> dict[str, str]:
    """Returns the colour of each vmap range of both sides."""
    names = after.index.vmap_names
    if before is not None:
        names |= before.index.vmap_names
    return choose_colours(sorted(names))


def collect_items(after: DrawnSchedule, before: DrawnSchedule | None = None) -> list[Item]:
    """Returns the items of a schedule, sources first; with `before`, those of both, marked."""
    order = order_scopes(after)
    keys = {node.id: str(node.id) for node in after.schedule.nodes}
    if before is None:
        return [_make_item(after, node, COMMON, order, keys) for node in after.schedule.nodes]
    order |= order_scopes(before)
    matched = pair_drawn(before, after).nodes
    twins = {new: old for old, new in matched.items()}
    old_keys = {node.id: str(matched.get(node.id, f"b{node.id}")) for node in before.schedule.nodes}
    gone = [node for node in before.schedule.nodes if node.id not in matched]
    removed = [_make_item(before, node, REMOVED, order, old_keys) for node in gone]
    items: list[Item] = []
    for node in after.schedule.nodes:
        twin = before.index.node(twins.get(node.id))
        if twin is None:
            items.append(_make_item(after, node, ADDED, order, keys))
        else:
            item = _make_item(after, node, COMMON, order, keys)
            items.append(replace(item, before=twin, buffers=_join_buffers(before, twin, after, node)))
    return _sort_items([*items, *removed])


def _make_item(drawn: DrawnSchedule, node: Node, mark: Mark, order: dict[str, int], keys: dict[int, str]) -> Item:
    sources = tuple(keys[source] for source in node.src if source in keys and source < node.id)
    buffers = drawn.find_buffers(node, mark)
    ambient = sort_scope(drawn.index.ambient_of(node.id), order)
    path = sort_scope(_find_scope(drawn, node), order)
    return Item(keys[node.id], node, sources, None, mark, buffers, ambient, path)


def _join_buffers(before: DrawnSchedule, old: Node, after: DrawnSchedule, new: Node) -> tuple[BufferMark, ...]:
    """Returns the BUFFERIZE of a node that both sides have: one where they are the same, else each side's."""
    removed, added = before.find_buffers(old, REMOVED), after.find_buffers(new, ADDED)
    olds = [before.describe_buffer(buffer) for buffer in removed]
    news = [after.describe_buffer(buffer) for buffer in added]
    if olds == news:
        return after.find_buffers(new, COMMON)
    return removed + added


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


def _find_scope(drawn: DrawnSchedule, node: Node) -> tuple[str, ...]:
    own = drawn.index.ambient_of(node.id)
    if node.op != "VMAPOUT":
        return own
    ended = [name for source in node.src for name in drawn.index.ambient_of(source)]
    named = [name for name in re.findall(r"\w+", node.arg) if name in drawn.index.vmap_names]
    return tuple(dict.fromkeys([*own, *ended, *named]))


def order_scopes(drawn: DrawnSchedule) -> dict[str, int]:
    """Returns for each vmap range how many ranges are around it: what a VMAPOUT keeps is around what it ends."""
    around: dict[str, set[str]] = {name: set() for name in sorted(drawn.index.vmap_names)}
    for node in drawn.schedule.nodes:
        if node.op == "VMAPOUT":
            own = set(drawn.index.ambient_of(node.id))
            for name in set(_find_scope(drawn, node)) - own:
                around.setdefault(name, set()).update(own)
    return {name: len(outer) for name, outer in around.items()}


def sort_scope(names: Iterable[str], order: dict[str, int]) -> tuple[str, ...]:
    """Returns ranges outermost first."""
    return tuple(sorted(dict.fromkeys(names), key=lambda name: (order.get(name, 0), name)))
