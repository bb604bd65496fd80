"""Tensor graphs and kernels in a form that no tinygrad release owns.

Nodes are in an order in which they can be evaluated; `src` has the positions of their sources. Each node has the shape
of its value as numbers: a symbolic size has the value that its variable had. A *step range* is an axis with an id, in
front of a value's own axes: a vmap scope, a loop, or the devices of a sharded tensor (DEVICES)."""

import itertools
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

_T = TypeVar("_T")
DEVICES = 1 << 62  # the id of the step range that counts the devices of a sharded tensor. No RANGE has this id.

OPS = {  # op -> what its `arg` says. Other ops are arithmetic on elements, with no `arg`: `arithmetic.FUNCTIONS`.
    # without sources
    "buffer": "the contents of an input, None; its shape is (size,)",
    "const": "one number",
    "step": "the number of the step: (id of the step range, its size)",
    # movement: the shape says where to. A None among the numbers of `arg` is a source: it depends on a step range
    "reshape": "None",
    "expand": "None; also to more axes, in front",
    "permute": "the axis of the source for each axis",
    "pad": "how many zeros are in front, for each axis",
    "shrink": "the first element that is kept, for each axis",
    "flip": "the axes whose order is reversed",
    "stack": "None: the sources become the slices of a new first axis",
    "same": "None: the value of the source, as of a detach",
    "copy": "None: the same values in other memory",
    # step ranges
    "vmapin": "for each axis of the source the id of the step range that it becomes; None: the axis stays",
    "vmapout": "for each axis of the result the id of the step range that becomes it, None for the value's own",
    "shards": "the axis along which the shards of the devices are joined; None: all devices have the same",
    "shard": "the number of the device whose shard it is",
    "devices": "None: a source for each device",
    # arithmetic
    "cast": "None",
    "bitcast": "None",
    "reduce": "(add, mul or max; axes; whether they stay with the size 1; ids of step ranges)",
    # writes. A target is a view of a buffer
    "assign": "None: (target, value); the value is what the target holds then",
    "store": "None: (target, value), which has no value",
    "after": "None: (view of a buffer, stores, assigns and afters...); what the view holds after them",
    # graphs with loops (`kernels`)
    "invalid": "None: no number at all",
    "close": "(for each axis of the result the id of the step range that it is closed over, None for one of size 1; "
    "the step ranges that it may still depend on, None for any); source: a value without axes. Of another range the "
    "last step stays: memory is the same at each step",
    "fetch": "None; sources: a value with axes, an index for each of the first of them (the other axes stay)",
    "put": "None; sources: what memory holds before, the value that is written, an index for each axis of it",
    "launch": "(a function that runs a kernel, the numbers of the arguments that it writes); sources: what each "
    "argument holds before; value: the function of these, by number: what the argument asked for holds afterwards",
}

MOVEMENT = frozenset({"reshape", "expand", "permute", "pad", "shrink", "flip"})
"""Ops that move elements and compute nothing."""
WRITES = frozenset({"assign", "store"})
_VIEWS = MOVEMENT | WRITES | {"same", "bitcast", "after", "shards", "shard"}


def reach(starts: Iterable[_T], follow: Callable[[_T], Iterable[_T]]) -> dict[_T, None]:
    """Returns some parts of a graph, and all that `follow` gives for any of these, once, the last given first."""
    found: dict[_T, None] = {}
    todo = list(starts)
    while todo:
        part = todo.pop()
        if part not in found:
            found[part] = None
            todo += follow(part)
    return found


class Unknown(Exception):
    """A value cannot be computed here; the message says why."""


@dataclass(frozen=True)
class OpNode:
    """One op; see OPS for `arg`, which is plain data. `dtype` is a name of `vmapdbg.values.numbers`."""

    op: str
    dtype: str
    shape: tuple[int, ...]
    src: tuple[int, ...] = ()
    arg: Any = None


class MemoryView(NamedTuple):
    """A view of memory: `base` is the node that has the memory, `path` the nodes from there up to the view."""

    base: int
    path: tuple[int, ...]


@dataclass
class OpGraph:
    """`roots` are the positions of the values that are asked for. `inputs` maps the position of each buffer to the
    names of its contents, one for each device; `ranges` maps each step range to its size; `origins` has the user's line
    and the method of Tensor of the nodes for which they are known."""

    nodes: list[OpNode] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    inputs: dict[int, tuple[str, ...]] = field(default_factory=dict)
    ranges: dict[int, int] = field(default_factory=dict)
    origins: dict[int, tuple[str, str | None]] = field(default_factory=dict)

    def extends(self, other: "OpGraph") -> bool:
        """Whether this graph has the nodes of another graph first, with the same inputs: they have the same values."""
        if other.inputs.items() - self.inputs.items() or other.ranges.items() - self.ranges.items():
            return False
        return self.nodes[: len(other.nodes)] == other.nodes

    def add(self, node: OpNode) -> int:
        """Appends a node and returns its position."""
        self.nodes.append(node)
        return len(self.nodes) - 1

    def reach(
        self, slots: Iterable[int], ends: Container[int] = (), sources_of: Callable[[int], Sequence[int]] | None = None
    ) -> list[int]:
        """Returns the positions of nodes and what they are computed from (`sources_of`), to `ends`; sources first."""
        find_sources = sources_of or (lambda slot: self.nodes[slot].src)
        return sorted(reach(slots, lambda slot: () if slot in ends else find_sources(slot)))

    def take(self, slots: Iterable[int]) -> "tuple[OpGraph, dict[int, int]]":
        """Returns a graph of some nodes and all that they are computed from, and position here -> position there."""
        places = {slot: place for place, slot in enumerate(self.reach(slots))}
        nodes = [self.nodes[slot] for slot in places]
        nodes = [replace(node, src=tuple(places[source] for source in node.src)) for node in nodes]
        inputs = {places[slot]: names for slot, names in self.inputs.items() if slot in places}
        origins = {places[slot]: origin for slot, origin in self.origins.items() if slot in places}
        return OpGraph(nodes, [], inputs, dict(self.ranges), origins), places

    def open_ranges(self) -> list[frozenset[int]]:
        """Returns for each node the step ranges that its value may depend on."""
        found: list[frozenset[int]] = []
        for slot, node in enumerate(self.nodes):
            names = frozenset[int]().union(*(found[source] for source in node.src)) - ended_ranges(node)
            if node.op == "step":
                names |= {node.arg[0]}
            elif node.op == "vmapin":
                names |= set(node.arg) - {None}
            elif node.op == "close" and node.arg[1] is not None:
                names &= set(node.arg[1])
            elif node.op == "devices" or len(self.inputs.get(slot, ())) > 1:
                names |= {DEVICES}
            found.append(names)
        return found

    # *** memory

    def find_view(self, slot: int) -> MemoryView:
        """Returns the memory that a node shows."""
        path: list[int] = []
        while self.nodes[slot].op in _VIEWS and self.nodes[slot].src:
            path.append(slot)
            slot = self.nodes[slot].src[0]
        path.reverse()
        if self.nodes[slot].op != "buffer":
            # what is repeated or padded is no memory: a write is to memory that has all its elements
            made = list(itertools.takewhile(lambda step: self.nodes[step].op in MOVEMENT, path))
            while made and self.nodes[made[-1]].op not in {"expand", "pad"}:
                made.pop()
            if made:
                slot, path = made[-1], path[len(made) :]
        return MemoryView(slot, tuple(path))

    def is_whole(self, view: MemoryView) -> bool:
        """Whether a view shows all elements of its memory, in order."""
        for node in (self.nodes[slot] for slot in view.path):
            # 0.14 writes a shrink to the shape that memory has
            is_same = node.op == "shrink" and node.shape == self.nodes[node.src[0]].shape
            if not is_same and node.op not in {"reshape", "same", "after", "assign"}:
                return False
        return True

    def find_writes(self, slot: int) -> list[int]:
        """Returns the stores and assigns before an `after`, in order: its own, and earlier ones of that memory."""

        def find_earlier(current: int) -> list[int]:
            node = self.nodes[current]
            path = self.find_view(node.src[0]).path
            earlier = [step for step in path if self.nodes[step].op in {"assign", "after"}]
            return earlier if node.op in WRITES else [*earlier, *node.src[1:]]

        return sorted(found for found in reach([slot], find_earlier) if self.nodes[found].op in WRITES)

    def value_of_write(self, write: int, known: Container[int]) -> int:
        """Returns the node with the values that a write writes: an assign has them, too, if its own value is known."""
        return write if write in known else self.nodes[write].src[1]

    def sources_of_after(self, slot: int, known: Container[int]) -> Sequence[int]:
        """Returns what an `after` is computed from: memory, values written to it, shifts of views by step ranges."""
        writes = self.find_writes(slot)
        found: list[int] = []
        for shown in (self.nodes[slot].src[0], *(self.nodes[write].src[0] for write in writes)):
            view = self.find_view(shown)
            found.append(view.base)
            for step in view.path:
                if self.nodes[step].op in MOVEMENT:
                    found += self.nodes[step].src[1:]
        return (*found, *(self.value_of_write(write, known) for write in writes))


def ended_ranges(node: OpNode) -> set[int]:
    """Returns the step ranges that a node goes through, and that its value does not depend on any more."""
    match node.op:
        case "reduce":
            return set(node.arg[3])
        case "close":
            return set(node.arg[0]) - {None}
        case "vmapout":
            return set(node.arg) - {None}
        case "shards" | "shard":
            return {DEVICES}
        case _:
            return set()
