"""A tensor graph in a form that belongs to no release of tinygrad: what `vmapdbg.reference` evaluates.

Nodes stand in the order in which they can be evaluated; `src` has the positions of their sources. Each has the shape of
its value, all sizes numbers: a symbolic size has the value that its variable had. A *step range* is an axis that comes
before a value's own ones and is known by an id: a scope of vmap, or the devices of a sharded tensor (DEVICES).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

DEVICES = 1 << 62
"""The id of the step range that counts the devices of a sharded tensor: one that no RANGE has."""

OPS = {
    # values that come from nowhere
    "buffer": "the contents of an input, None; its shape is (size,)",
    "const": "one number",
    "step": "the number of the step: (id of the step range, its size)",
    # movement: the shape says where to. A None among the numbers of `arg` is a source: it depends on a step range
    "reshape": "None",
    "expand": "None; also to more axes, in front",
    "permute": "the axis of the source for each axis",
    "pad": "how many zeros stand before, for each axis",
    "shrink": "the first element that stays, for each axis",
    "flip": "the axes that are turned around",
    "stack": "None: the sources become the slices of a new first axis",
    "same": "None: what leaves values where they are, as detach does",
    "copy": "None: the same values in other memory",
    # step ranges
    "vmapin": "for each axis of the source the id of the step range that it becomes, None for one that stays",
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
}
"""Op -> what its `arg` says. What is not here is arithmetic on elements, with no `arg`: `arithmetic.FUNCTIONS`."""


MOVEMENT = frozenset({"reshape", "expand", "permute", "pad", "shrink", "flip"})
"""Ops that move elements and compute nothing."""


class Unknown(Exception):
    """A value cannot be computed here; the message says why."""


@dataclass(frozen=True)
class Node:
    """One op; see OPS for `arg`, which is plain data. `dtype` is a name of `vmapdbg.values.numbers`."""

    op: str
    dtype: str
    shape: tuple[int, ...]
    src: tuple[int, ...] = ()
    arg: Any = None


@dataclass
class Graph:
    """`roots` are the positions of the values that are asked for. `inputs` has, by position, the names of the contents
    of each buffer, one for each device; `ranges` the size of each step range."""

    nodes: list[Node] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    inputs: dict[int, tuple[str, ...]] = field(default_factory=dict)
    ranges: dict[int, int] = field(default_factory=dict)

    def add(self, node: Node) -> int:
        """Appends a node and returns its position."""
        self.nodes.append(node)
        return len(self.nodes) - 1

    def reach(self, slots: Iterable[int], ends: Container[int] = ()) -> list[int]:
        """Returns the positions of what nodes are made from, down to `ends`, with themselves; sources first."""
        return reach(self.nodes, slots, ends)

    def find_open(self) -> list[frozenset[int]]:
        """Returns for each node the step ranges that its value may depend on."""
        found: list[frozenset[int]] = []
        for slot, node in enumerate(self.nodes):
            names = frozenset[int]().union(*(found[source] for source in node.src))
            if node.op == "step":
                names = frozenset({node.arg[0]})
            elif node.op == "vmapin":
                names |= {name for name in node.arg if name is not None}
            elif node.op == "vmapout":
                names -= set(node.arg)
            elif node.op == "reduce":
                names -= set(node.arg[3])
            elif node.op in {"shards", "shard"}:
                names -= {DEVICES}
            elif node.op == "devices" or len(self.inputs.get(slot, ())) > 1:
                names |= {DEVICES}
            found.append(names)
        return found


class HasSources(Protocol):
    """A node of a list in which sources come first; `src` are their positions in it."""

    @property
    def src(self) -> tuple[int, ...]: ...


def reach(nodes: Sequence[HasSources], slots: Iterable[int], ends: Container[int]) -> list[int]:
    """Returns the positions of what nodes are made from, down to `ends`, with themselves; sources first."""
    found: set[int] = set()
    stack = list(slots)
    while stack:
        slot = stack.pop()
        if slot in found:
            continue
        found.add(slot)
        if slot not in ends:
            stack += nodes[slot].src
    return sorted(found)
