"""Folds many nodes into few: constants, index arithmetic, chains of movement ops, and more where a graph is large.

Detail 0 is for every graph. Detail 1 joins elementwise ops with the only op that reads them. Detail 2 keeps what a
kernel begins or ends at: buffers, borders of scopes, and what several of them share. Apart from that, the layers of a
deep network can be drawn once. LEVELS are the steps from all to little.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from vmapdbg.model.ops import MOVEMENT
from vmapdbg.page.graph.items import Item
from vmapdbg.page.graph.model import COMMON

LEVELS = (0, 1, 2, 3, 4)
_DETAILS = (0, 0, 1, 2, 2)  # the detail of each level; from level 1 on, repeated layers are drawn once
BUFFERS_LEVEL = 3
"""From this level on a BUFFERIZE that was removed is not drawn. At the next one `tensor_boxes` gathers what is left."""
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
_SOURCES = frozenset({"input", "index"})  # groups that read nothing: their place among the others is by chance
_LEAST_REPEATS = 3
_MOST_TO_SEARCH = 3000


@dataclass
class Group:
    """Items drawn as one node, which has the key of the last of them. `constants` are operands not drawn."""

    key: str
    kind: str
    items: list[Item]
    constants: list[str] = field(default_factory=list[str])
    repeats: int = 0

    @property
    def last(self) -> Item:
        """The item that its readers read."""
        return self.items[-1]


@dataclass
class Folding:
    """Groups with sources first, the group of each item drawn (None: not drawn), and how many were folded, by why."""

    groups: list[Group]
    of: dict[str, str | None]
    folded: dict[str, int]


def fold_items(items: list[Item], level: int) -> Folding:
    """Returns `items` (sources first) folded to `level`. `folded` and the groups add up to the items."""
    joined = _Joined(items)
    joined.fold_constants()
    joined.fold_readers(_DETAILS[level])
    folding = joined.make_folding()
    if level == 0:
        return folding
    # the layers of a network, then those of its gradient
    while (repeated := _fold_repeats(folding)) is not None:
        folding = repeated
    return folding


class _Joined:
    """Which item stands for which."""

    def __init__(self, items: list[Item]) -> None:
        self.items = items
        self.known = {item.key: item for item in items}
        self.of: dict[str, str | None] = {item.key: item.key for item in items}
        self.why: Counter[str] = Counter()
        self.index: set[str] = set()
        self.values: dict[str, str] = {}
        self.readers: dict[str, list[Item]] = defaultdict(list)
        for item in items:
            for source in dict.fromkeys(item.src):
                self.readers[source].append(item)

    def fold_constants(self) -> None:
        """Hides constants, to be named by what reads them, and joins what is computed from constants only."""
        for item in self.items:
            if item.node.op in _HIDDEN:
                self.of[item.key] = None
                self.why["plumbing"] += 1
            elif _is_free(item, 2):
                self._fold_constant(item)
        # a constant that nothing reads is an output: it is drawn
        for key in [key for key in self.values if not self.readers[key]]:
            self.of[key] = key
            del self.values[key]
        self.why["constants"] += len(self.values)
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
        """Index arithmetic that hangs together becomes one node. It reads nothing else, so no cycle can arise."""
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
        self.why["index arithmetic"] += len(parent) - len(last)

    def fold_readers(self, detail: int) -> None:
        """Joins each item with its readers where the detail says so."""
        for item in reversed(self.items):
            reader = self._find_reader(item, detail)
            if reader is not None:
                self.of[item.key] = self.of[reader.key]
                self.why["joined"] += 1

    def _find_reader(self, item: Item, detail: int) -> Item | None:
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
        # a chain of movement ops, or one of casts
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
            group.kind = _choose_kind(group, self.index)
            sources = [source for item in group.items for source in item.src]
            group.constants = list(dict.fromkeys(self.values[key] for key in sources if key in self.values))
        order = {item.key: number for number, item in enumerate(self.items)}
        # other items may read any item of index arithmetic, and only the last one of other groups

        def position(group: Group) -> int:
            if group.kind == "index":
                return order[group.items[0].key]
            return order[group.last.key]

        return Folding(sorted(groups.values(), key=position), self.of, dict(+self.why))


def _is_free(item: Item, detail: int = 0) -> bool:
    """Whether an item is no boundary: no buffer of its own (at detail 2, none that was kept), no change to show."""
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


def _choose_kind(group: Group, index: set[str]) -> str:
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


def _fold_repeats(folding: Folding) -> Folding | None:
    """Keeps the first copy of the longest repetition; the others become one group. Returns None where nothing is
    repeated."""
    groups = folding.groups
    spine = [group for group in groups if group.kind not in _SOURCES]
    found = find_repeats([_describe(group) for group in spine])
    if found is None:
        return None
    start, period, count = found
    copies = spine[start + period : start + period * count]
    inside = {group.key for group in copies}
    own = set(_find_own_sources(folding, inside))
    inside |= own
    members = [group for group in groups if group.key in own] + copies
    items = [item for group in members for item in group.items]
    merged = Group(copies[-1].key, "repeat", items, repeats=count - 1)
    kept = {group.key: group for group in groups if group.key not in inside or group.key == merged.key}
    kept[merged.key] = merged
    of = folding.of | {key: merged.key for key, group in folding.of.items() if group in inside}
    repeats = folding.folded.get("repeated layers", 0) + len(inside) - 1
    return Folding(list(kept.values()), of, {**folding.folded, "repeated layers": repeats})


def _find_own_sources(folding: Folding, inside: set[str]) -> Iterator[str]:
    """The groups without sources that only the copies read: their weights, their index arithmetic."""
    readers: dict[str | None, set[str | None]] = defaultdict(set)
    for group in folding.groups:
        for item in group.items:
            for source in item.src:
                readers[folding.of[source]].add(group.key)
    for group in folding.groups:
        others = readers[group.key] - {group.key}
        if group.kind in _SOURCES and others and others <= inside:
            yield group.key


def _describe(group: Group) -> tuple[object, ...]:
    last = group.last
    if group.kind == "repeat":
        # layers that are drawn already are like nothing else
        return (group.kind, group.key)
    ops = tuple(sorted(Counter(item.node.op for item in group.items).items()))
    return (group.kind, ops, last.node.shape, last.node.dtype, last.mark, last.path, len(last.buffers))


def find_repeats(sequence: list[tuple[object, ...]]) -> tuple[int, int, int] | None:
    """Returns (start, period, count) of the repetition that saves most, where a period comes three times or more."""
    numbers: dict[tuple[object, ...], int] = {}
    codes = [numbers.setdefault(entry, len(numbers)) for entry in sequence[:_MOST_TO_SEARCH]]
    best: tuple[int, int, int] | None = None
    saved = 0
    for period in range(2, len(codes) // _LEAST_REPEATS + 1):
        for start, count in _find_runs(codes, period):
            if count >= _LEAST_REPEATS and (count - 2) * period > saved:
                best, saved = (start, period, count), (count - 2) * period
    return best


def _find_runs(codes: list[int], period: int) -> Iterable[tuple[int, int]]:
    start = 0
    for i in range(period, len(codes) + 1):
        if i == len(codes) or codes[i] != codes[i - period]:
            yield start, (i - start) // period
            start = i - period + 1
