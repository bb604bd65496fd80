"""The groups of nodes that are drawn as one.

Detail 0 is for every graph: constants, index arithmetic and chains of movement ops are folded. Detail 1 joins
elementwise ops with their only reader. Detail 2 keeps only buffers, scope borders, and nodes with several readers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from vmapdbg.model.ops import ELEMENTWISE, MOVEMENT, name_op
from vmapdbg.page.graph.items import Item
from vmapdbg.page.graph.model import COMMON

LEVELS = (0, 1, 2, 3, 4)
_DETAILS = (0, 0, 1, 2, 2)  # the detail of each level

REDUCE = frozenset({"REDUCE_AXIS", "REDUCE"})
_CONSTANTS = frozenset({"CONST", "VCONST"})
_HIDDEN = frozenset({"LUNIQUE", "UNIQUE", "DEVICE", "SINK"})
_BORDERS = frozenset({"VMAPIN", "VMAPOUT"})


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
    return grouping.make_folding()


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
        elif first is None or (op not in REDUCE and not _is_simple(op)):
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
    """Whether an item may be folded: it has no buffer (at detail 2: no kept buffer) and no change to show."""
    if item.changed or (item.mark != COMMON and item.buffers):
        return False
    if item.node.realized is not None and not item.buffers:
        return False
    if detail >= 2:
        return not any(buffer.kept for buffer in item.buffers)
    return not item.buffers


def _is_simple(op: str) -> bool:
    return op in MOVEMENT or name_op(op) in ELEMENTWISE


def _is_joinable(item: Item, detail: int) -> bool:
    if detail >= 2:
        return item.node.op not in _BORDERS | {"BUFFER"} and bool(item.src)
    if detail == 1:
        return _is_simple(item.node.op)
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
