"""Packs a graph of UOps, of any release of tinygrad, in the form that `vmapdbg.reference` evaluates. Runs in the child.

What differs between the releases ends here and in `packing`: names of ops, where the axes of a reduce stand, constants
without a dtype of their own, how a write and a bound variable look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from vmapdbg.child.evidence.packing import REDUCES, SAME, CannotPack, UOp, UOpPacker, is_device, name_reduce
from vmapdbg.reference.graph import DEVICES, WRITES, Node, find_view

_MOVEMENT = {"RESHAPE", "EXPAND", "PERMUTE", "PAD", "SHRINK", "FLIP"}
_SCOPES = {"VMAPIN", "VMAPOUT"}
_REFUSED = {
    "KERNEL": "a custom kernel is in its graph",
    "CALL": "a custom kernel is in its graph",
    "CUSTOM_KERNEL": "a custom kernel is in its graph",
    "CUSTOM_FUNCTION": "a custom function is in its graph",
    "BUFFER_VIEW": "it looks at a part of a DISK",
}

Contents = Callable[[UOp], tuple[str, ...] | None]
"""Returns the names of the contents of a BUFFER, one for each of its devices; None where they are not known."""


class Packer(UOpPacker):
    """Packs one graph. `contents` names what is in a BUFFER; `variables` has the numbers of variables by their names,
    where the graph itself does not bind them. `made` has BUFFERs that hold the value of another UOp, as a whole."""

    def __init__(self, contents: Contents, variables: Mapping[str, int] = {}, made: Mapping[UOp, UOp] = {}):
        super().__init__(variables)
        self.contents, self.made = contents, made

    def find_writes(self) -> dict[UOp, list[int]]:
        """Returns for each BUFFER that the graph writes the positions of the writes, in order."""
        buffers = {slot: u for u, slot in self._slots.items() if u.op.name == "BUFFER"}
        found: dict[UOp, list[int]] = {}
        for slot, node in enumerate(self.graph.nodes):
            if node.op in WRITES and (base := find_view(self.graph, node.src[0]).base) in buffers:
                found.setdefault(buffers[base], []).append(slot)
        return found

    def find_touched(self) -> set[UOp]:
        """Returns the BUFFERs that are below what the graph writes to, be it in a way that is not followed."""
        targets = [node.src[0] for node in self.graph.nodes if node.op in WRITES]
        reached = set(self.graph.reach(targets))
        return {u for u, slot in self._slots.items() if u.op.name == "BUFFER" and slot in reached}

    def find_copied_back(self) -> set[UOp]:
        """Returns the BUFFERs below writes to what is no view of one, such as to a CONTIGUOUS of what was written to
        it: tinygrad may leave the copy out and write to their memory."""
        buffers = {slot: u for u, slot in self._slots.items() if u.op.name == "BUFFER"}
        written = [node.src[0] for node in self.graph.nodes if node.op in WRITES]
        reached = self.graph.reach(one for one in written if find_view(self.graph, one).base not in buffers)
        return {buffers[slot] for slot in reached if slot in buffers}

    def add_after(self, buffer: UOp, writes: Iterable[int]) -> int:
        """Adds what a BUFFER holds after writes, and returns its position."""
        slot = self._slots[buffer]
        node = self.graph.nodes[slot]
        return self.graph.add(Node("after", node.dtype, node.shape, (slot, *writes)))

    # *** what a UOp is made from

    def _find_sources(self, u: UOp) -> list[UOp]:
        """Returns the UOps whose values go into that of one."""
        op = u.op.name
        if u in self.made:
            return [self.made[u]]
        if op in _REFUSED:
            raise CannotPack(_REFUSED[op])
        if op in {"BUFFER", "CONST", "RANGE", "DEFINE_VAR", "PARAM"} or self._is_number(u):
            return []
        if op in _MOVEMENT:
            return [u.src[0], *(one for one in self._find_numbers(u) if not isinstance(one, int))]
        if op in {"COPY", "ALLREDUCE", "MULTI", "UNSHARD", "BITCAST", "CAST", "BIND", "REDUCE", *_SCOPES, *SAME}:
            return list(u.src[:1])
        if op in {"ASSIGN", "STORE"}:
            return list(u.src[:2])
        return list(u.src)

    def _find_numbers(self, u: UOp) -> list[int | UOp]:
        """Returns for each axis where a PAD or SHRINK begins: a number, or the UOp that has it at each step."""
        if u.op.name not in {"PAD", "SHRINK"}:
            return []
        begins = [begin for begin, _ in u.marg]
        found = [self.sizes.find(begin) for begin in begins]
        return [begin if known is None else known for begin, known in zip(begins, found, strict=True)]

    def _make_buffer(self, u: UOp, src: tuple[int, ...]) -> int:
        if src:
            return self._add("reshape", u, src)
        names = self.contents(u)
        slot = self._add("buffer", u, ())
        if names is not None:
            self.graph.inputs[slot] = names
        if isinstance(u.device, tuple):
            self.graph.ranges[DEVICES] = len(u.device)
        return slot

    def _make_param(self, u: UOp, src: tuple[int, ...]) -> int:
        """What the pass of 0.13 and later has in place of the BUFFERs of the snippet."""
        return self._make_buffer(u, src)

    def _make_reshape(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._add("reshape", u, src)

    def _make_expand(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._add("expand", u, src)

    def _make_permute(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._add("permute", u, src, tuple(u.marg))

    def _make_flip(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._add("flip", u, src, tuple(axis for axis, turned in enumerate(u.marg) if turned))

    def _make_pad(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._add("pad", u, src, self._find_begins(u))

    def _make_shrink(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._add("shrink", u, src, self._find_begins(u))

    def _find_begins(self, u: UOp) -> tuple[int | None, ...]:
        return tuple(one if isinstance(one, int) else None for one in self._find_numbers(u))

    def _make_copy(self, u: UOp, src: tuple[int, ...]) -> int:
        source = self.graph.nodes[src[0]]
        is_spread = isinstance(u.src[0].device, tuple) and not isinstance(u.device, tuple)
        if is_spread and source.op != "shards" and DEVICES in self.graph.ranges:
            return self._add("shard", u, src, 0)
        return self._add("copy", u, src)

    # *** reduces

    def _make_reduce_axis(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._add_reduce(u, src[:1], u.arg[0], u.arg[1])

    def _make_reduce(self, u: UOp, src: tuple[int, ...]) -> int:
        if not isinstance(u.arg, tuple):
            # 0.12: over ranges that stand in the tensor graph
            return self._add_loop_reduce(u, src)
        # 0.14 has the number of axes, which come first
        axes = u.arg[1] if isinstance(u.arg[1], tuple) else tuple(range(u.arg[1]))
        return self._add_reduce(u, src, u.arg[0], axes)

    def _add_reduce(self, u: UOp, src: tuple[int, ...], op: Any, axes: tuple[int, ...]) -> int:
        keep = len(self._find_shape(u)) == len(self.graph.nodes[src[0]].shape)
        return self._add("reduce", u, src, (REDUCES[op.name], tuple(axes), keep, ()))

    def _make_allreduce(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._add("reduce", u, src, (name_reduce(u), (), True, (DEVICES,)))

    # *** devices, steps, scopes

    def _make_multi(self, u: UOp, src: tuple[int, ...]) -> int:
        self.graph.ranges[DEVICES] = len(u.device)
        return self._add("shards", u, src, u.arg)

    def _make_unshard(self, u: UOp, src: tuple[int, ...]) -> int:
        """What is MULTI since 0.14: it may be sharded along several axes, and over loops."""
        if len(u.arg) != 1 or not is_device(u.src[1]):
            raise CannotPack("it is sharded over more than the devices")
        self._name_range(u.src[1])
        return self._add("shards", u, src, u.arg[0])

    def _make_mselect(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._add("shard", u, src, u.arg)

    def _make_mstack(self, u: UOp, src: tuple[int, ...]) -> int:
        self.graph.ranges[DEVICES] = len(src)
        return self._add("devices", u, src)

    def _make_define_var(self, u: UOp, src: tuple[int, ...]) -> int:
        name, _, last = u.arg
        if name != "_device_num":
            raise CannotPack(f"the variable {name} has no value")
        self.graph.ranges[DEVICES] = last + 1
        return self._add("step", u, (), (DEVICES, last + 1))

    def _make_vmapin(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._add("vmapin", u, src, self._name_ranges(u))

    def _make_vmapout(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._add("vmapout", u, src, self._name_ranges(u))

    def _name_ranges(self, u: UOp) -> tuple[int | None, ...]:
        return tuple(map(self._name_axis, u.src[1:]))

    # *** writes

    def _make_assign(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._add("assign", u, (src[0], self._cast(src[1], self._name_dtype(u))))

    def _make_store(self, u: UOp, src: tuple[int, ...]) -> int:
        target = self.graph.nodes[src[0]]
        return self.graph.add(Node("store", target.dtype, target.shape, (src[0], self._cast(src[1], target.dtype))))

    def _make_after(self, u: UOp, src: tuple[int, ...]) -> int:
        unknown = {self.graph.nodes[s].op for s in src[1:]} - {"store", "assign", "after"}
        if unknown:
            raise CannotPack("a custom kernel is in its graph")
        return self._add("after", u, src)
