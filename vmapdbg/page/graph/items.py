"""The nodes to draw, of one schedule or of two drawn over each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from vmapdbg.diff import Pairs, have_same_tinygrad, pair_schedules
from vmapdbg.model.capture import Bufferize, Capture, Node, Schedule
from vmapdbg.model.ops import MOVEMENT
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.vocabulary import Mark
from vmapdbg.page.format import Places
from vmapdbg.page.graph.model import ADDED, COMMON, PALETTE, REMOVED, Graph
from vmapdbg.page.view import Findings

# these cost nothing: a view, a number, another type
_FREE = MOVEMENT | {"CAST", "CONST"}


@dataclass(frozen=True)
class BufferMark:
    """A BUFFERIZE of an item: its side, and the ambient ranges that it loses."""

    bufferize: Bufferize
    lost: tuple[str, ...]
    mark: Mark

    @property
    def kept(self) -> bool:
        """Whether the BUFFERIZE became a buffer."""
        return self.bufferize.outcome == "kept"


@dataclass(frozen=True)
class Item:
    """A node to draw. `key` is its id, or `b7` for node 7 if only the baseline has it; `src` are keys.

    `before` is the baseline's node if both sides have it. `ambient` ranges are outermost first. `path` has the ambient
    ranges of its scope: its own, and for a VMAPOUT also the ranges that it ends.
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
        return self.before is not None and reason_of(self.before) != reason_of(self.node)


def reason_of(node: Node) -> str | None:
    """Returns why a node is realized, None if it is not."""
    return node.realized and node.realized.reason


class DrawnSchedule:
    """A schedule to draw, with its capture and its indexes."""

    def __init__(self, capture: Capture, schedule: Schedule) -> None:
        self.capture = capture
        self.schedule = schedule
        self.index = index_of(schedule)
        self.places = Places.of(capture)
        self.findings = Findings(capture.findings)

    def list_nodes(self, ids: Iterable[int]) -> list[Node]:
        """Returns the nodes with these ids that the schedule has."""
        return [self.index.nodes[node_id] for node_id in ids if node_id in self.index.nodes]

    def buffers_of(self, node: Node, mark: Mark) -> tuple[BufferMark, ...]:
        """Returns the BUFFERIZE of a node to draw, nothing if it has none."""
        bufferize = self.index.bufferizes.get(node.id)
        if bufferize is None:
            return ()
        return (BufferMark(bufferize, self.index.find_lost(bufferize), mark),)

    def describe_buffer(self, buffer: BufferMark) -> tuple[object, ...]:
        """Returns what two equal BUFFERIZE have in common. The numbers of their ranges may differ."""
        made = buffer.bufferize
        ambient = tuple(name for name in made.closed_ranges if name in self.index.vmap_names)
        return (ambient, len(made.closed_ranges), made.size, made.addrspace, made.outcome, buffer.lost)


@dataclass(frozen=True)
class Stage:
    """How a stage of a schedule is drawn.

    `title` is its name above the drawing. `build` gets the schedule, the baseline's (None without one), the level of
    folding and the title of the drawing. `last_level` is the most that it can be folded. `legend` says what each kind
    of node is; `sample` is the kind that shows marks. Nodes of the `extra_kinds` show nothing that another node does
    not show. A reader can look at `most` nodes without these; a drawing of more than `pleasant` boxes is folded.
    `level_notes` say for each level what is folded.
    """

    title: str
    build: Callable[[DrawnSchedule, DrawnSchedule | None, int, str], Graph]
    last_level: int
    legend: Mapping[str, str]
    sample: str
    extra_kinds: frozenset[str]
    most: int
    pleasant: int
    level_notes: tuple[str, ...]


def count_work(nodes: Iterable[Node]) -> frozenset[tuple[str, int]]:
    """Returns which ops the nodes compute and how many of each, whatever their shapes."""
    return frozenset(Counter(node.op for node in nodes if node.op not in _FREE).items())


def pair_drawn(before: DrawnSchedule, after: DrawnSchedule) -> Pairs:
    """Returns what is the same in two drawn schedules."""
    same = have_same_tinygrad(before.capture.versions, after.capture.versions)
    return pair_schedules(before.schedule, after.schedule, same_tinygrad=same)


def colour_ranges(after: DrawnSchedule, before: DrawnSchedule | None) -> dict[str, str]:
    """Returns a colour for each vmap range of both sides, the same for the same names. They repeat after eight."""
    names = after.index.vmap_names
    if before is not None:
        names |= before.index.vmap_names
    return {name: PALETTE[number % len(PALETTE)] for number, name in enumerate(sorted(names))}


def collect_items(after: DrawnSchedule, before: DrawnSchedule | None = None) -> list[Item]:
    """Returns the items of a schedule, sources first; with `before`, the items of both, marked."""
    order = _order_scopes(after)
    keys = {node.id: str(node.id) for node in after.schedule.nodes}
    if before is None:
        return [_make_item(after, node, COMMON, order, keys) for node in after.schedule.nodes]
    order |= _order_scopes(before)
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
    buffers = drawn.buffers_of(node, mark)
    ambient = _sort_scope(drawn.index.ambient_of(node.id), order)
    path = _sort_scope(_scope_of(drawn, node), order)
    return Item(keys[node.id], node, sources, None, mark, buffers, ambient, path)


def _join_buffers(before: DrawnSchedule, old: Node, after: DrawnSchedule, new: Node) -> tuple[BufferMark, ...]:
    """The BUFFERIZE of a node that both sides have: one if they are equal, else one of each side."""
    removed, added = before.buffers_of(old, REMOVED), after.buffers_of(new, ADDED)
    olds = [before.describe_buffer(buffer) for buffer in removed]
    news = [after.describe_buffer(buffer) for buffer in added]
    if olds == news:
        return after.buffers_of(new, COMMON)
    return removed + added


def _sort_items(items: list[Item]) -> list[Item]:
    """Sources first. Each side is sorted already, and only removed items read items of the other side."""
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


def _scope_of(drawn: DrawnSchedule, node: Node) -> tuple[str, ...]:
    ambient = drawn.index.ambient_of(node.id)
    if node.op != "VMAPOUT":
        return ambient
    ended = [name for source in node.src for name in drawn.index.ambient_of(source)]
    named = [name for name in re.findall(r"\w+", node.arg) if name in drawn.index.vmap_names]
    return tuple(dict.fromkeys([*ambient, *ended, *named]))


def _order_scopes(drawn: DrawnSchedule) -> dict[str, int]:
    """How many ranges are around each vmap range: the ranges that a VMAPOUT keeps are around the ranges it ends."""
    around: dict[str, set[str]] = {name: set() for name in sorted(drawn.index.vmap_names)}
    for node in drawn.schedule.nodes:
        if node.op == "VMAPOUT":
            kept = set(drawn.index.ambient_of(node.id))
            for name in set(_scope_of(drawn, node)) - kept:
                around.setdefault(name, set()).update(kept)
    return {name: len(outer) for name, outer in around.items()}


def _sort_scope(names: Iterable[str], order: dict[str, int]) -> tuple[str, ...]:
    """Ranges outermost first."""
    return tuple(sorted(dict.fromkeys(names), key=lambda name: (order.get(name, 0), name)))
