"""The nodes to draw, of one schedule or of two drawn over each other, and the groups of nodes that are drawn as one.

Detail 0 is for every graph: constants, index arithmetic and chains of movement ops are folded. Detail 1 joins
elementwise ops with their only reader. Detail 2 keeps only buffers, scope borders, and nodes with several readers.
LEVELS are the steps from no folding to the most.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from vmapdbg.diff import Pairs, have_same_tinygrad, pair_schedules
from vmapdbg.model.capture import Bufferize, Capture, Node, Schedule
from vmapdbg.model.ops import MOVEMENT
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.vocabulary import Mark
from vmapdbg.page.findings import Findings
from vmapdbg.page.format import Places
from vmapdbg.page.graph.fold import Box, Boxes, Look
from vmapdbg.page.graph.model import ADDED, COMMON, PALETTE, REMOVED, Graph

# these cost nothing: a view, a number, another type
_FREE = MOVEMENT | {"CAST", "CONST"}

LEVELS = (0, 1, 2, 3, 4)
_DETAILS = (0, 0, 1, 2, 2)  # the detail of each level; from level 1 on, repeated layers are drawn once
BUFFERS_LEVEL = 3
"""From this level on, a removed BUFFERIZE is not drawn. The next level also gathers the nodes into boxes."""
LEVEL_NOTES = (
    "",
    "repeated layers",
    "repeated layers and elementwise ops",
    "all but buffers and scope borders",
    "all but buffers and scope borders, and of these what is alike or hangs together",
)

ELEMENTWISE = frozenset(
    {
        *("ADD", "MUL", "SUB", "FDIV", "IDIV", "CDIV", "FLOORDIV", "MOD", "MAX", "POW", "MULACC", "NEG", "RECIPROCAL"),
        *("EXP2", "LOG2", "SIN", "SQRT", "TRUNC", "CAST", "BITCAST", "THREEFRY"),
        *("WHERE", "CMPLT", "CMPNE", "CMPEQ", "XOR", "OR", "AND", "SHL", "SHR"),
    }
)
REDUCE = frozenset({"REDUCE_AXIS", "REDUCE"})
_ARITHMETIC = MOVEMENT | ELEMENTWISE | REDUCE
_CONSTANTS = frozenset({"CONST", "VCONST"})
_HIDDEN = frozenset({"LUNIQUE", "UNIQUE", "DEVICE", "SINK"})
_BORDERS = frozenset({"VMAPIN", "VMAPOUT"})
_SOURCES = frozenset({"input", "index"})
"""Groups that read nothing. Their place among the others is by chance."""


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
    folding and the title of the drawing. `last_level` is the most that it can be folded. `find_near` returns the ids of
    the nodes at most some steps from others. `add_legend` explains the kinds of nodes. Nodes of the `extra_kinds` show
    nothing that another node does not show. A reader can look at `most` nodes without these; a drawing of more than
    `pleasant` boxes is folded. `level_notes` say for each level what is folded.
    """

    title: str
    build: Callable[[DrawnSchedule, DrawnSchedule | None, int, str], Graph]
    last_level: int
    find_near: Callable[[Graph, Sequence[str], int], set[str]]
    add_legend: Callable[[Graph], Graph]
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
    own = drawn.index.ambient_of(node.id)
    if node.op != "VMAPOUT":
        return own
    ended = [name for source in node.src for name in drawn.index.ambient_of(source)]
    named = [name for name in re.findall(r"\w+", node.arg) if name in drawn.index.vmap_names]
    return tuple(dict.fromkeys([*own, *ended, *named]))


def _order_scopes(drawn: DrawnSchedule) -> dict[str, int]:
    """How many ranges are around each vmap range: the ranges that a VMAPOUT keeps are around the ranges it ends."""
    around: dict[str, set[str]] = {name: set() for name in sorted(drawn.index.vmap_names)}
    for node in drawn.schedule.nodes:
        if node.op == "VMAPOUT":
            own = set(drawn.index.ambient_of(node.id))
            for name in set(_scope_of(drawn, node)) - own:
                around.setdefault(name, set()).update(own)
    return {name: len(outer) for name, outer in around.items()}


def _sort_scope(names: Iterable[str], order: dict[str, int]) -> tuple[str, ...]:
    """Ranges outermost first."""
    return tuple(sorted(dict.fromkeys(names), key=lambda name: (order.get(name, 0), name)))


# *** groups


@dataclass
class Group:
    """Items drawn as one node, with the key of the last. `constants` are operands that are not drawn. `repeats` counts
    the layers in it, if it has any."""

    key: str
    kind: str
    items: list[Item]
    constants: list[str] = field(default_factory=list[str])
    repeats: int = 0

    @property
    def last(self) -> Item:
        """The item that the readers of the group read."""
        return self.items[-1]


@dataclass
class Folding:
    """Groups, sources first, the group of each item (None if it is not drawn), and how many items were folded, by
    reason."""

    groups: list[Group]
    of: dict[str, str | None]
    folded: dict[str, int]


def fold_items(items: list[Item], level: int) -> Folding:
    """Returns `items` (sources first) folded to `level`. The groups and the counts in `folded` add up to the items."""
    grouping = _Grouping(items)
    grouping.fold_constants()
    grouping.join_readers(_DETAILS[level])
    folding = grouping.make_folding()
    if level == 0:
        return folding
    return _fold_layers(folding)


def _fold_layers(folding: Folding) -> Folding:
    """Draws repeated layers once: the layers of a network, and of its gradient."""
    known = {group.key: group for group in folding.groups}
    edges: list[tuple[str, str]] = []
    for group in folding.groups:
        for item in group.items:
            makers = (folding.of[source] for source in item.src)
            edges += [(maker, group.key) for maker in makers if maker is not None]
    boxes = Boxes(known, edges, lambda group: Look(_describe(group), passive=group.kind in _SOURCES))
    boxes.join_repeats()
    repeats = [box for box in boxes.boxes.values() if box.repeats]
    if not repeats:
        return folding
    box_of = {member: box.key for box in repeats for member in box.members}
    of = {key: box_of.get(group or "", group) for key, group in folding.of.items()}
    count = sum(len(box.members) - 1 for box in repeats)
    return Folding([_draw_box(box) for box in boxes.boxes.values()], of, {**folding.folded, "repeated layers": count})


def _draw_box(box: Box[Group]) -> Group:
    if not box.repeats:
        return box.things[0]
    items = [item for group in box.things for item in group.items]
    return Group(box.key, "repeat", items, repeats=box.repeats)


def _describe(group: Group) -> tuple[object, ...]:
    """What a group has in common with the same group of another layer."""
    last = group.last
    ops = tuple(sorted(Counter(item.node.op for item in group.items).items()))
    return (group.kind, ops, last.node.shape, last.node.dtype, last.mark, last.path, len(last.buffers))


class _Grouping:
    """Which item belongs to which group."""

    def __init__(self, items: list[Item]) -> None:
        self.items = items
        self.of: dict[str, str | None] = {item.key: item.key for item in items}
        self.folded: Counter[str] = Counter()
        self.index: set[str] = set()
        self.values: dict[str, str] = {}
        self.readers: dict[str, list[Item]] = defaultdict(list)
        for item in items:
            for source in dict.fromkeys(item.src):
                self.readers[source].append(item)

    def fold_constants(self) -> None:
        """Hides constants, whose readers name them, and joins nodes that are computed from constants only."""
        for item in self.items:
            if item.node.op in _HIDDEN:
                self.of[item.key] = None
                self.folded["plumbing"] += 1
            elif _is_free(item, 2):
                self._fold_constant(item)
        # a constant without readers is an output: it is drawn
        for key in [key for key in self.values if not self.readers[key]]:
            self.of[key] = key
            del self.values[key]
        self.folded["constants"] += len(self.values)
        self._join_index()

    def _fold_constant(self, item: Item) -> None:
        op, first = item.node.op, next(iter(item.src), None)
        if op in _CONSTANTS:
            self.values[item.key] = item.node.arg or "?"
            self.of[item.key] = None
        elif first is None or op not in _ARITHMETIC:
            return
        elif len(item.src) == 1 and first in self.values and op not in REDUCE:
            self.values[item.key] = self.values[first]
            self.of[item.key] = None
        elif all(key in self.values or key in self.index for key in item.src):
            self.index.add(item.key)

    def _join_index(self) -> None:
        """Makes one node of connected index arithmetic. It reads nothing else, so this makes no circle."""
        parent = {key: key for key in self.index}

        def find(key: str) -> str:
            while parent[key] != key:
                parent[key] = parent[parent[key]]
                key = parent[key]
            return key

        for item in self.items:
            for source in item.src:
                if item.key in parent and source in parent:
                    parent[find(source)] = find(item.key)
        last = {find(item.key): item.key for item in self.items if item.key in parent}
        for key in parent:
            self.of[key] = last[find(key)]
        self.folded["index arithmetic"] += len(parent) - len(last)

    def join_readers(self, detail: int) -> None:
        """Joins items with their readers as far as the detail says."""
        for item in reversed(self.items):
            reader = self._reader_to_join(item, detail)
            if reader is not None:
                self.of[item.key] = self.of[reader.key]
                self.folded["joined"] += 1

    def _reader_to_join(self, item: Item, detail: int) -> Item | None:
        readers = self.readers[item.key]
        if self.of[item.key] != item.key or item.key in self.index or not readers or not _is_free(item, detail):
            return None
        if not _is_joinable(item, detail) or len({self.of[reader.key] for reader in readers}) != 1:
            return None
        first = readers[0]
        if self.of[first.key] is None or first.key in self.index:
            return None
        same = all(reader.path == item.path and reader.mark == item.mark for reader in readers)
        if not same or not all(_is_joinable(reader, detail) for reader in readers):
            return None
        # at detail 0 a chain has movement ops only, or casts only
        if detail == 0 and (item.node.op == "CAST") != (first.node.op == "CAST"):
            return None
        return first

    def make_folding(self) -> Folding:
        groups: dict[str, Group] = {}
        for item in self.items:
            key = self.of[item.key]
            if key is not None:
                groups.setdefault(key, Group(key, "", [])).items.append(item)
        for group in groups.values():
            group.kind = _kind_of(group, self.index)
            sources = [source for item in group.items for source in item.src]
            group.constants = list(dict.fromkeys(self.values[key] for key in sources if key in self.values))
        order = {item.key: number for number, item in enumerate(self.items)}

        def position(group: Group) -> int:
            # readers may read any item of index arithmetic, but only the last item of another group
            if group.kind == "index":
                return order[group.items[0].key]
            return order[group.last.key]

        return Folding(sorted(groups.values(), key=position), self.of, dict(+self.folded))


def _is_free(item: Item, detail: int = 0) -> bool:
    """Whether an item may be folded: it has no buffer (at detail 2: none that was kept) and no change to show."""
    if item.changed or (item.mark != COMMON and item.buffers):
        return False
    if item.node.realized is not None and not item.buffers:
        return False
    if detail >= 2:
        return not any(buffer.kept for buffer in item.buffers)
    return not item.buffers


def _is_joinable(item: Item, detail: int) -> bool:
    if detail >= 2:
        return item.node.op not in _BORDERS | {"BUFFER"} and bool(item.src)
    if detail == 1:
        return item.node.op in MOVEMENT | ELEMENTWISE
    return item.node.op in MOVEMENT or item.node.op == "CAST"


def _kind_of(group: Group, index: set[str]) -> str:
    op = group.last.node.op
    if group.key in index:
        return "index"
    if op in _BORDERS:
        return op.lower()
    if not group.last.node.src or op == "BUFFER":
        return "input"
    ops = {item.node.op for item in group.items}
    if ops <= MOVEMENT:
        return "view"
    if ops & REDUCE:
        return "reduce"
    return "op"
