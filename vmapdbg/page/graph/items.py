"""The nodes to draw, of one schedule or of two drawn over each other, and the groups that are drawn as one. Detail 0 is
for every graph: constants, index arithmetic and chains of movement ops are folded. Detail 1 joins elementwise ops with
their only reader. Detail 2 keeps only buffers, scope borders, and nodes with several readers."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from vmapdbg.diff.nodes import match_nodes
from vmapdbg.diff.result import ScheduleDiff
from vmapdbg.model.capture import Bufferize, Capture, Node, Schedule
from vmapdbg.model.ops import ELEMENTWISE, MOVEMENT, REDUCES, name_op
from vmapdbg.model.schedule_index import index_of, name_decision
from vmapdbg.model.vocabulary import Mark
from vmapdbg.model.wording import format_known
from vmapdbg.page.format import Places
from vmapdbg.page.graph.model import ADDED, COMMON, PALETTE, REMOVED, Graph
from vmapdbg.page.view import Findings

LEVELS = (0, 1, 2, 3, 4)
_DETAILS = (0, 0, 1, 2, 2)  # the detail of each level

_CONSTANTS = frozenset({"CONST", "VCONST"})
_HIDDEN = frozenset({"LUNIQUE", "UNIQUE", "DEVICE", "SINK"})
_BORDERS = frozenset({"VMAPIN", "VMAPOUT"})


# *** the schedules to draw


class DrawnSchedule:
    """A schedule to draw, with its capture and its indexes."""

    def __init__(self, capture: Capture, schedule: Schedule) -> None:
        self.capture, self.schedule, self.index = capture, schedule, index_of(schedule)
        self.places, self.findings = Places.of(capture), Findings(capture.findings)

    def list_nodes(self, ids: Iterable[int]) -> list[Node]:
        """Returns the nodes with these ids that the schedule has."""
        return [self.index.nodes[node_id] for node_id in ids if node_id in self.index.nodes]

    def buffers_of(self, node: Node, mark: Mark) -> "tuple[BufferMark, ...]":
        """Returns the BUFFERIZE of a node to draw, nothing if it has none."""
        bufferize = self.index.bufferizes.get(node.id)
        return () if bufferize is None else (BufferMark(bufferize, self.index.find_lost(bufferize), mark),)


@dataclass(frozen=True)
class DrawnPair:
    """Two schedules drawn over each other, or one twice. `nodes` and `kernels` map ids and numbers, before to after."""

    before: DrawnSchedule
    after: DrawnSchedule
    nodes: dict[int, int]
    kernels: dict[int, int]

    @classmethod
    def of_one(cls, drawn: DrawnSchedule) -> "DrawnPair":
        """Returns one schedule as a pair."""
        numbers = range(len(drawn.schedule.kernels))
        return cls(drawn, drawn, {node: node for node in drawn.index.nodes}, dict(zip(numbers, numbers, strict=True)))

    @classmethod
    def of_two(cls, before: DrawnSchedule, after: DrawnSchedule, diff: ScheduleDiff) -> "DrawnPair":
        """Returns two schedules as a pair; `diff` compares them."""
        nodes = diff.pair_nodes()
        kernels: dict[int, int] = {}
        for change in diff.kernels:
            if change.matched_by == "outputs":
                # the nodes that two releases store may not be the nodes that the diff compares
                nodes |= zip(change.before[0].kernel.outputs, change.after[0].kernel.outputs, strict=False)
            if change.status == "unchanged":
                kernels[change.before[0].number] = change.after[0].number
        for made in diff.bufferizes:
            if made.before is not None and made.after is not None:
                nodes[made.before.node] = made.after.node
        if diff.folded_before and diff.folded_after:
            # nodes that only show a value may still be equal
            taken = set(nodes.values())
            equal = match_nodes(before.schedule, after.schedule).items()
            nodes |= {one: other for one, other in equal if one not in nodes and other not in taken}
        return cls(before, after, nodes, kernels)

    def side_of(self, mark: Mark) -> DrawnSchedule:
        """Returns the schedule that has what is drawn with a mark."""
        return self.before if mark == REMOVED else self.after

    @property
    def range_colours(self) -> dict[str, str]:
        """A colour for each vmap range of both sides, the same for the same names. They repeat after eight."""
        names = sorted(self.before.index.vmap_names | self.after.index.vmap_names)
        return {name: PALETTE[number % len(PALETTE)] for number, name in enumerate(names)}


@dataclass(frozen=True)
class Stage:
    """How a stage of a schedule is drawn. `build` gets the pair, the level of folding and the drawing's title. `legend`
    explains each kind of node; `sample` is the kind that shows marks. A reader can look at `most` nodes
    (`Graph.count_drawn`); a drawing of more than `pleasant` boxes is folded, to at most so many `levels`."""

    title: str
    build: Callable[[DrawnPair, int, str], Graph]
    legend: Mapping[str, str]
    sample: str
    most: int
    pleasant: int
    levels: int


# *** the nodes to draw


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
    """A node to draw. `key` is its id, or `b7` for node 7 of the baseline alone; `src` are keys. `before` is the
    baseline's node, or the node itself. `ambient` is outermost first. `path` has the ambient ranges of the scope; for a
    VMAPOUT also the ranges that it ends."""

    key: str
    node: Node
    src: tuple[str, ...]
    before: Node
    mark: Mark
    buffers: tuple[BufferMark, ...]
    ambient: tuple[str, ...]
    path: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether the sides decided differently about it."""
        return any(buffer.mark != COMMON for buffer in self.buffers) or self.decisions[0] != self.decisions[1]

    @property
    def is_realized(self) -> bool:
        return self.decisions[1].startswith("realized")

    @property
    def decisions(self) -> tuple[str, str]:
        """What was decided about the node before and after, with the rule."""
        sides = (self.before, REMOVED), (self.node, ADDED)
        words: list[str] = []
        for node, mark in sides if self.mark == COMMON else ((self.node, self.mark),) * 2:
            made = next((one.bufferize for one in self.buffers if one.mark in (COMMON, mark)), None)
            words.append(name_decision(node, made) + format_known(": {}", node.realized and node.realized.reason))
        return words[0], words[1]


def collect_items(pair: DrawnPair) -> list[Item]:
    """Returns the items of both sides, marked, sources first."""
    before, after = pair.before, pair.after
    order = _order_scopes(after) | _order_scopes(before)
    keys = {node.id: str(node.id) for node in after.schedule.nodes}
    old_keys = {node.id: str(pair.nodes.get(node.id, f"b{node.id}")) for node in before.schedule.nodes}
    twins = {new: old for old, new in pair.nodes.items()}
    items: list[Item] = []
    for node in after.schedule.nodes:
        twin = before.index.node(twins.get(node.id))
        item = _make_item(after, node, ADDED if twin is None else COMMON, order, keys)
        items.append(item if twin is None else replace(item, before=twin, buffers=_join_buffers(pair, twin, node)))
    gone = (node for node in before.schedule.nodes if node.id not in pair.nodes)
    items += (_make_item(before, node, REMOVED, order, old_keys) for node in gone)
    # each side is sorted, but removed items read items of the other side
    known = {item.key: item for item in items}
    done: dict[str, Item] = {}
    for item in items:
        stack = [item]
        while stack:
            top = stack[-1]
            if missing := [known[key] for key in top.src if key not in done]:
                stack += missing
            else:
                done.setdefault(stack.pop().key, top)
    return list(done.values())


def _make_item(drawn: DrawnSchedule, node: Node, mark: Mark, order: dict[str, int], keys: dict[int, str]) -> Item:
    sources = tuple(keys[source] for source in node.src if source in keys and source < node.id)

    def sort_scope(names: Iterable[str]) -> tuple[str, ...]:
        """Ranges outermost first."""
        return tuple(sorted(dict.fromkeys(names), key=lambda name: (order.get(name, 0), name)))

    ambient, path = sort_scope(drawn.index.ambient_of(node.id)), sort_scope(_scope_of(drawn, node))
    return Item(keys[node.id], node, sources, node, mark, drawn.buffers_of(node, mark), ambient, path)


def _join_buffers(pair: DrawnPair, old: Node, new: Node) -> tuple[BufferMark, ...]:
    """The BUFFERIZE of a node that both sides have: one if they are equal, else one of each side."""

    def describe(drawn: DrawnSchedule, buffer: BufferMark) -> tuple[object, ...]:
        # the numbers of equal ranges may differ
        made = buffer.bufferize
        ambient = tuple(name for name in made.closed_ranges if name in drawn.index.vmap_names)
        return (ambient, len(made.closed_ranges), made.size, made.addrspace, made.outcome, buffer.lost)

    removed, added = pair.before.buffers_of(old, REMOVED), pair.after.buffers_of(new, ADDED)
    olds, news = [describe(pair.before, each) for each in removed], [describe(pair.after, each) for each in added]
    return pair.after.buffers_of(new, COMMON) if olds == news else removed + added


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
    for node in (node for node in drawn.schedule.nodes if node.op == "VMAPOUT"):
        kept = set(drawn.index.ambient_of(node.id))
        for name in set(_scope_of(drawn, node)) - kept:
            around.setdefault(name, set()).update(kept)
    return {name: len(outer) for name, outer in around.items()}


# *** the groups that are drawn as one


@dataclass
class Group:
    """Items drawn as one node, with the key of the last. `constants` are operands that are not drawn."""

    key: str
    kind: str
    items: list[Item]
    constants: list[str] = field(default_factory=list[str])

    @property
    def last(self) -> Item:
        """The item that the readers of the group read."""
        return self.items[-1]


class Folding:
    """Items (sources first) folded to a level. `groups` has sources first, `of` the key of each item's group (None: not
    drawn), `folded` the count of folded items by reason. Groups' items and these counts add up to all items."""

    def __init__(self, items: list[Item], level: int) -> None:
        self.items = items
        self.of: dict[str, str | None] = {item.key: item.key for item in items}
        self._counts: Counter[str] = Counter()
        # keys of index arithmetic, and values of constants by key
        self._index: set[str] = set()
        self._values: dict[str, str] = {}
        self._readers: dict[str, list[Item]] = defaultdict(list)
        for item in items:
            for source in dict.fromkeys(item.src):
                self._readers[source].append(item)
        self._fold_constants()
        self._join_index()
        for item in reversed(items):
            if (reader := self._reader_to_join(item, _DETAILS[level])) is not None:
                self.of[item.key] = self.of[reader.key]
                self._counts["joined"] += 1
        self.groups = self._list_groups()
        self.folded = dict(+self._counts)

    def _fold_constants(self) -> None:
        """Hides constants, whose readers name them, and finds nodes that are computed from constants only."""
        for item in self.items:
            op, first = item.node.op, next(iter(item.src), None)
            if op in _HIDDEN:
                self.of[item.key] = None
                self._counts["plumbing"] += 1
            elif not _is_free(item, 2):
                continue
            elif op in _CONSTANTS:
                self._values[item.key] = item.node.arg or "?"
            elif first is None or (op not in REDUCES and not _is_simple(op)):
                continue
            elif len(item.src) == 1 and first in self._values and op not in REDUCES:
                self._values[item.key] = self._values[first]
            elif all(key in self._values or key in self._index for key in item.src):
                self._index.add(item.key)
        # a constant without readers is an output: it is drawn
        self._values = {key: value for key, value in self._values.items() if self._readers[key]}
        self.of |= dict.fromkeys(self._values)
        self._counts["constants"] += len(self._values)

    def _join_index(self) -> None:
        """Makes one node of connected index arithmetic. It reads nothing else, so this makes no circle."""
        groups: dict[str, list[str]] = {}
        for item in self.items:
            if item.key in self._index:
                near = (key for source in item.src if source in groups for key in groups[source])
                joined = list(dict.fromkeys([*near, item.key]))
                groups |= dict.fromkeys(joined, joined)
        self.of |= {key: joined[-1] for key, joined in groups.items()}
        self._counts["index arithmetic"] += len(groups) - len({joined[-1] for joined in groups.values()})

    def _reader_to_join(self, item: Item, detail: int) -> Item | None:
        """Returns the reader whose group an item joins, as far as the detail says."""
        readers = self._readers[item.key]
        if self.of[item.key] != item.key or item.key in self._index or not readers or not _is_free(item, detail):
            return None
        if not _is_joinable(item, detail) or len({self.of[reader.key] for reader in readers}) != 1:
            return None
        first = readers[0]
        same = all(reader.path == item.path and reader.mark == item.mark for reader in readers)
        if self.of[first.key] is None or first.key in self._index or not same:
            return None
        # at detail 0 a chain has movement ops only, or casts only
        mixes = detail == 0 and (item.node.op == "CAST") != (first.node.op == "CAST")
        return None if mixes or not all(_is_joinable(reader, detail) for reader in readers) else first

    def _list_groups(self) -> list[Group]:
        groups: dict[str, Group] = {}
        for item in self.items:
            if (key := self.of[item.key]) is not None:
                groups.setdefault(key, Group(key, "", [])).items.append(item)
        order = {item.key: number for number, item in enumerate(self.items)}
        for group in groups.values():
            group.kind = _kind_of(group, self._index)
            sources = [source for item in group.items for source in item.src]
            group.constants = list(dict.fromkeys(self._values[key] for key in sources if key in self._values))
        # readers may read any item of index arithmetic, but only the last item of another group
        read = {group.key: group.items[0] if group.kind == "index" else group.last for group in groups.values()}
        return sorted(groups.values(), key=lambda group: order[read[group.key].key])


def _is_free(item: Item, detail: int = 0) -> bool:
    """Whether an item may be folded: it has no buffer (at detail 2: no kept buffer) and no change to show."""
    if item.changed or (item.mark != COMMON if item.buffers else item.node.realized is not None):
        return False
    return not any(buffer.kept or detail < 2 for buffer in item.buffers)


def _is_simple(op: str) -> bool:
    return op in MOVEMENT or name_op(op) in ELEMENTWISE


def _is_joinable(item: Item, detail: int) -> bool:
    if detail >= 2:
        return item.node.op not in _BORDERS | {"BUFFER"} and bool(item.src)
    return _is_simple(item.node.op) if detail == 1 else item.node.op in MOVEMENT or item.node.op == "CAST"


def _kind_of(group: Group, index: set[str]) -> str:
    op = group.last.node.op
    if group.key in index:
        return "index"
    if op in _BORDERS:
        return op.lower()
    if not group.last.node.src or op == "BUFFER":
        return "input"
    ops = {item.node.op for item in group.items}
    return "view" if ops <= MOVEMENT else "reduce" if ops & REDUCES else "op"
