"""Packs the graph after each pass of the scheduler for `vmapdbg.reference.kernels`, of any release, in the child. It is
a tensor graph until the ranges are assigned. Then a BUFFERIZE (STAGE from 0.13 on) makes a buffer of a value that
depends on ranges, and an INDEX reads it. STOREs come next, last kernels with buffers."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from vmapdbg.child.evidence.packer import CannotPack, Contents, Packer, UOp
from vmapdbg.child.listen.launches import drop_variables
from vmapdbg.child.listen.releases import find_under, kernel_of
from vmapdbg.child.program.interpret import run_kernel
from vmapdbg.child.program.linear_reader import list_stored
from vmapdbg.model.ops import RESHAPING, STAGE_OPS
from vmapdbg.reference.graph import OpNode

_STATES = RESHAPING | {"AFTER"}  # ops between a state of memory and its buffer


class LoopPacker(Packer):
    """Packs several graphs of one schedule: a UOp that they share is one node."""

    def __init__(self, contents: Contents, variables: Mapping[str, int] = {}):
        super().__init__(contents, variables)
        # ids of the options of buffers that stay until the end: the options stay the same object through every rewrite
        self._memory: set[int] = set()

    def find_memory(self, sinks: Iterable[UOp]) -> None:
        """Finds the buffers that stay until the end, from the graphs after each pass in order."""
        for sink in sinks:
            found = {id(u.arg) for u in sink.toposort() if u.op.name in STAGE_OPS}
            if found:
                self._memory = found

    def pack_memory(self, u: UOp) -> int:
        """Adds all that the buffer of a UOp holds, and returns its slot. Raises CannotPack."""
        slot = self.pack(find_base(u))
        node = self.graph.nodes[slot]
        if node.op == "reshape":
            return node.src[0]
        if node.op != "after":
            return slot
        return self.add_after(self.graph.find_view(slot).base, self.graph.find_writes(slot))

    def add_writes(self, writes: Sequence[UOp], memory: int) -> int:
        """Adds the contents of memory after ASSIGNs to it: first to views of it, then to INDEXes. Raises CannotPack."""
        indexed = [u for u in writes if u.src[0].op.name == "INDEX"]
        if len(indexed) < len(writes):
            memory = self.add_after(memory, [self.pack(u) for u in writes if u not in indexed])
        for u in indexed:
            for one in (u.src[1], *u.src[0].src[1:]):
                self.pack(one)
            memory = self._add_write(u, find_base(u.src[0].src[0]), memory)
        return memory

    def add_view(self, view: UOp, source: int) -> int:
        """Adds a movement op over another source. Raises CannotPack."""
        return self._make(view, (source, *map(self.pack, self._find_sources(view)[1:])))

    def add_indexed(self, held: int, indices: Sequence[UOp]) -> int:
        """Adds the elements of a value at some indices, one index for each axis. Raises CannotPack."""
        if len(indices) != len(self.graph.nodes[held].shape):
            raise CannotPack("it has another number of axes than of ranges")
        return self._add_fetch(held, tuple(map(self.pack, indices)))

    def _add_fetch(self, held: int, places: tuple[int, ...]) -> int:
        node = self.graph.nodes[held]
        if len(places) > len(node.shape):
            raise CannotPack("a value is read with more indices than it has axes")
        if not places:
            return held
        return self.graph.add(OpNode("fetch", node.dtype, node.shape[len(places) :], (held, *places)))

    def add_closed(self, value: int, axes: Sequence[UOp], kept: tuple[int, ...] | None = None) -> int:
        """Adds the buffer of a value that is closed over RANGEs; it may still depend on other RANGEs, only on `kept` if
        given. A CONST is an axis of size 1. Raises CannotPack."""
        names: list[int | None] = []
        for r in axes:
            if r.op.name not in {"RANGE", "CONST"}:
                raise CannotPack(f"a buffer is closed over {r.op.name}")
            names.append(self.name_axis(r))
        shape = tuple(1 if name is None else self.graph.ranges[name] for name in names)
        return self.graph.add(OpNode("close", self.graph.nodes[value].dtype, shape, (value,), (tuple(names), kept)))

    # *** sources

    def _find_sources(self, u: UOp) -> list[UOp]:
        op = u.op.name
        if op in STAGE_OPS:
            return [u.src[0]]
        if op == "INDEX":
            return list(u.src)
        if op == "AFTER" and (writes := find_writes(u)):
            return self._find_memory_sources(u, writes)
        return super()._find_sources(u)

    def _find_memory_sources(self, after: UOp, writes: Sequence[UOp]) -> list[UOp]:
        """Returns the sources of memory after writes: its contents before, the written values, and their indices."""
        found = [find_base(after.src[0])]
        for write in writes:
            launch = kernel_of(write)
            if launch is None:
                target, value = write.src[:2]
                found += [value, *target.src[1:]]
            else:
                found += map(find_base, drop_variables(launch[1]))
        return list(dict.fromkeys(found))

    # *** one node

    def _make_const(self, u: UOp, src: tuple[int, ...]) -> int:
        if str(u.arg) == "Invalid":
            return self._add("invalid", u, ())
        return super()._make_const(u, src)

    def _make_bufferize(self, u: UOp, src: tuple[int, ...]) -> int:
        kept = None
        if id(u.arg) in self._memory and u.arg.addrspace.name == "GLOBAL":
            # a kernel that is launched for each step of an OUTER range has the same memory for all steps
            kept = tuple(self.name_range(r) for r in u.src[0].ranges if r.arg[-1].name == "OUTER")
        return self.add_closed(src[0], u.src[1:], kept)

    _make_stage = _make_bufferize

    def _make_index(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._add_fetch(src[0], src[1:])

    def _make_after(self, u: UOp, src: tuple[int, ...]) -> int:
        writes = find_writes(u)
        if not writes:
            return super()._make_after(u, src)
        base = find_base(u.src[0])
        memory = self.slots[base]
        for write in writes:
            memory = self._add_write(write, base, memory)
        shape = self._find_shape(u)
        if shape != self.graph.nodes[memory].shape and not _shows_all(u.src[0]):
            raise CannotPack("a part of memory is looked at after writes")
        return self._reshape(memory, shape)

    def _add_write(self, write: UOp, base: UOp, memory: int) -> int:
        """Adds the contents of memory after a store to it, or after a kernel ran."""
        launch = kernel_of(write)
        if launch is not None:
            return self._add_launch(*launch, base, memory)
        target, value = write.src[:2]
        if target.op.name != "INDEX" or find_base(target.src[0]) is not base:
            raise CannotPack("a store goes to what is no memory")
        if not _shows_all(target.src[0]):
            raise CannotPack("a store goes through a view of memory")
        held = self.graph.nodes[memory]
        shape = self._find_shape(target.src[0])
        places = tuple(self.slots[index] for index in target.src[1:])
        if len(places) != len(shape):
            raise CannotPack("a store goes to memory with other axes than it has indices")
        sources = self._reshape(memory, shape), self._cast(self.slots[value], held.dtype), *places
        return self._reshape(self.graph.add(OpNode("put", held.dtype, shape, sources)), held.shape)

    def _add_launch(self, ast: UOp, given: Sequence[UOp], base: UOp, memory: int) -> int:
        """Adds the contents of memory after a kernel ran."""
        arguments = drop_variables(given)
        buffers, buffer = list(map(find_buffer, arguments)), find_buffer(base)
        if buffer not in buffers:
            raise CannotPack("a kernel does not get the buffer that is looked at after it")
        slots = tuple(self.slots[find_base(one)] for one in arguments)
        return self.add_launch(ast, self.sizes.variables, buffers.index(buffer), memory, slots)

    def add_launch(
        self, ast: UOp, variables: Mapping[str, int], number: int, memory: int, slots: tuple[int, ...]
    ) -> int:
        """Adds what argument `number` of a kernel holds after it ran, in the shape of `memory`, from `slots` before."""
        held = self.graph.nodes[memory]
        if ast.op.name == "COPY":
            return self.graph.add(OpNode("copy", held.dtype, held.shape, slots[1:2]))
        if ast.op.name != "SINK":
            raise CannotPack(f"the reference does not know a kernel that is {ast.op.name}")
        arg = partial(run_kernel, ast, number, variables), frozenset(list_stored(ast))
        return self.graph.add(OpNode("launch", held.dtype, held.shape, slots, arg))


# *** UOps


def find_writes(after: UOp) -> list[UOp]:
    """Returns the STOREs to indices, and the launches of kernels, that an AFTER comes after; none in a tensor graph."""
    ends = [find_under(last, {"END", "BARRIER"}) for last in after.src[1:]]
    return [u for u in ends if kernel_of(u) is not None or (u.op.name == "STORE" and u.src[0].op.name == "INDEX")]


def list_views(u: UOp) -> list[UOp]:
    """Returns the movement ops between a UOp and its base, the outermost first."""
    found: list[UOp] = []
    while u.op.name in RESHAPING:
        found.append(u)
        u = u.src[0]
    return found


def _shows_all(u: UOp) -> bool:
    """Whether a UOp shows all of its base, in order."""
    return all(view.op.name == "RESHAPE" for view in list_views(u))


def find_base(u: UOp) -> UOp:
    """Returns the UOp under all movement ops."""
    return find_under(u, RESHAPING)


def find_buffer(u: UOp) -> Any:
    """Returns the BUFFER or PARAM of a state of memory."""
    return find_under(u, _STATES)
