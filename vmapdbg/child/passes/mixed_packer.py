"""Packs the graph after any pass of the scheduler, of any release, for `vmapdbg.reference.kernels`. Runs in the child.

The graph is a tensor graph until the ranges are assigned. Then a BUFFERIZE (STAGE from 0.13 on) makes a buffer of a
value that depends on ranges, and an INDEX reads it. STOREs come next, and last the kernels with their buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vmapdbg.child.evidence.kernel_packer import pack_kernel
from vmapdbg.child.evidence.packer import CannotPack, Contents, Packer, UOp, name_reduce
from vmapdbg.reference.graph import Kernel, Node, find_view
from vmapdbg.reference.graph import find_writes as list_writes

STAGES = frozenset({"BUFFERIZE", "STAGE"})
MEMORY = frozenset({"BUFFER", "PARAM", "DEFINE_GLOBAL"})
MOVEMENT = frozenset({"RESHAPE", "EXPAND", "PERMUTE", "PAD", "SHRINK", "FLIP"})
_LAUNCHES = frozenset({"KERNEL", "CALL"})


class MixedPacker(Packer):
    """Packs several graphs of one schedule: a UOp that they share is one node."""

    def __init__(self, contents: Contents, variables: Mapping[str, int] = {}):
        super().__init__(contents, variables)
        self._kernels: dict[UOp, Kernel] = {}
        # ids of the options of the buffers that stay until the end; a later pass removes other buffers. The options
        # stay the same object through every rewrite
        self._memory: set[int] = set()

    def find_memory(self, sinks: Iterable[UOp]) -> None:
        """Finds the buffers that stay until the end, from the graphs after each pass in order."""
        for sink in sinks:
            found = {id(u.arg) for u in sink.toposort() if u.op.name in STAGES}
            if found:
                self._memory = found

    def pack_memory(self, u: UOp) -> int:
        """Adds all that the buffer of a UOp holds, and returns its slot. Raises CannotPack."""
        slot = self.pack(find_base(u))
        nodes = self.graph.nodes
        if nodes[slot].op == "reshape":
            return nodes[slot].src[0]
        if nodes[slot].op != "after":
            return slot
        base = find_view(self.graph, slot).base
        writes = list_writes(self.graph, slot)
        return self.graph.add(Node("after", nodes[base].dtype, nodes[base].shape, (base, *writes)))

    def add_write(self, write: UOp, memory: int) -> int:
        """Adds the contents of memory after an ASSIGN to an INDEX of it. Raises CannotPack."""
        for one in (write.src[1], *write.src[0].src[1:]):
            self.pack(one)
        return self._add_store(write, find_base(write.src[0].src[0]), memory)

    def add_view(self, view: UOp, source: int) -> int:
        """Adds a movement op over another source. Raises CannotPack."""
        numbers = tuple(self.pack(one) for one in self._find_sources(view)[1:])
        return getattr(self, f"_make_{view.op.name.lower()}")(view, (source, *numbers))

    def add_indexed(self, held: int, indices: Sequence[UOp]) -> int:
        """Adds the elements of a value at some indices, one index for each axis. Raises CannotPack."""
        node = self.graph.nodes[held]
        places = tuple(map(self.pack, indices))
        if len(places) != len(node.shape):
            raise CannotPack("it has another number of axes than of ranges")
        if not places:
            return held
        return self.graph.add(Node("fetch", node.dtype, (), (held, *places)))

    def add_closed(self, value: int, ranges: Sequence[UOp], shape: tuple[int, ...]) -> int:
        """Adds the buffer of a value that is closed over ranges; it may still depend on others. Raises CannotPack."""
        for r in ranges:
            self.pack(r)
        return self._add_close(value, tuple(map(self._name_axis, ranges)), shape)

    def name_range(self, r: UOp) -> int:
        """Returns the id of the step range that a RANGE is. Raises CannotPack."""
        return self._name_range(r)

    # *** sources

    def _find_sources(self, u: UOp) -> list[UOp]:
        op = u.op.name
        if op in STAGES:
            return [u.src[0]]
        if op == "INDEX":
            return list(u.src)
        if op == "AFTER":
            return self._find_memory_sources(u)
        if op == "REDUCE" and find_ranges(u):
            return [u.src[0]]
        if op == "NOOP" and u.src:
            return [u.src[0]]
        return super()._find_sources(u)

    def _find_memory_sources(self, u: UOp) -> list[UOp]:
        """Returns the sources of memory after writes: its contents before, the written values, and their indices."""
        writes = find_writes(u)
        if not writes:
            return super()._find_sources(u)
        found = [find_base(u.src[0])]
        for write in writes:
            if write.op.name == "STORE":
                target, value = write.src[:2]
                found += [value, *target.src[1:]]
            else:
                found += [find_base(one) for one in find_arguments(write)]
        return list(dict.fromkeys(found))

    # *** one node

    def _find_shape(self, u: UOp) -> tuple[int, ...]:
        if u.op.name == "INDEX":
            return self._find_left(u)
        return super()._find_shape(u)

    def _find_left(self, u: UOp) -> tuple[int, ...]:
        """Returns the axes of memory that an INDEX leaves."""
        shape = self.graph.nodes[self._slots[u.src[0]]].shape
        return shape[len(u.src) - 1 :]

    def _make_const(self, u: UOp, src: tuple[int, ...]) -> int:
        if is_invalid(u):
            return self._add("invalid", u, ())
        return super()._make_const(u, src)

    def _make_bufferize(self, u: UOp, src: tuple[int, ...]) -> int:
        names = tuple(map(self._name_axis, u.src[1:]))
        kept = None
        if u.arg.addrspace.name == "GLOBAL" and id(u.arg) in self._memory:
            # a kernel that is launched for each step of an OUTER range has the same memory for all steps
            kept = tuple(self._name_range(r) for r in u.src[0].ranges if r.arg[-1].name == "OUTER")
        return self._add_close(src[0], names, self._find_shape(u), kept)

    def _make_stage(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._make_bufferize(u, src)

    def _name_axis(self, r: UOp) -> int | None:
        if r.op.name not in {"RANGE", "CONST"}:
            raise CannotPack(f"a buffer is closed over {r.op.name}")
        return super()._name_axis(r)

    def _make_index(self, u: UOp, src: tuple[int, ...]) -> int:
        if len(src) == 1:
            return src[0]
        held = self.graph.nodes[src[0]]
        if len(src) - 1 > len(held.shape):
            raise CannotPack("a value is read with more indices than it has axes")
        return self._add("fetch", u, src, dtype=held.dtype)

    def _make_reduce(self, u: UOp, src: tuple[int, ...]) -> int:
        ranges = find_ranges(u)
        if not ranges:
            return super()._make_reduce(u, src)
        axes: tuple[int, ...] = ()
        if isinstance(u.arg, tuple):
            # further axes, or how many of the first axes
            axes = u.arg[1]
            if isinstance(axes, int):
                axes = tuple(range(axes))
        names = tuple(self._name_range(r) for r in ranges)
        return self._add("reduce", u, src, (name_reduce(u), tuple(axes), False, names))

    def _make_after(self, u: UOp, src: tuple[int, ...]) -> int:
        writes = find_writes(u)
        if not writes:
            return super()._make_after(u, src)
        base = find_base(u.src[0])
        memory = self._slots[base]
        for write in writes:
            if write.op.name == "STORE":
                memory = self._add_store(write, base, memory)
            else:
                memory = self._add_launch(write, base, memory)
        node = self.graph.nodes[memory]
        shape = self._find_shape(u)
        if shape == node.shape:
            return memory
        if any(view.op.name != "RESHAPE" for view in list_views(u.src[0])):
            raise CannotPack("a part of memory is looked at after writes")
        return self.graph.add(Node("reshape", node.dtype, shape, (memory,)))

    def _add_store(self, store: UOp, base: UOp, memory: int) -> int:
        """Adds the contents of memory after a store to it."""
        target, value = store.src[:2]
        if target.op.name != "INDEX" or find_base(target.src[0]) is not find_base(base):
            raise CannotPack("a store goes to what is no memory")
        if any(view.op.name != "RESHAPE" for view in list_views(target.src[0])):
            raise CannotPack("a store goes through a view of memory")
        held = self.graph.nodes[memory]
        shape = self._find_shape(target.src[0])
        seen = memory
        if shape != held.shape:
            seen = self.graph.add(Node("reshape", held.dtype, shape, (memory,)))
        places = tuple(self._slots[index] for index in target.src[1:])
        if len(places) != len(shape):
            raise CannotPack("a store goes to memory with other axes than it has indices")
        what = self._cast(self._slots[value], held.dtype)
        put = self.graph.add(Node("put", held.dtype, shape, (seen, what, *places)))
        if shape == held.shape:
            return put
        return self.graph.add(Node("reshape", held.dtype, held.shape, (put,)))

    def _add_launch(self, launch: UOp, base: UOp, memory: int) -> int:
        """Adds the contents of memory after a kernel ran."""
        arguments = find_arguments(launch)
        buffers = [find_buffer(one) for one in arguments]
        mine = find_buffer(base)
        if mine not in buffers:
            raise CannotPack("a kernel does not get the buffer that is looked at after it")
        asked = buffers.index(mine)
        slots = tuple(self._slots[find_base(one)] for one in arguments)
        held = self.graph.nodes[memory]
        ast = find_ast(launch)
        if ast.op.name == "COPY":
            return self.graph.add(Node("copy", held.dtype, held.shape, slots[1:2]))
        if ast.op.name != "SINK":
            raise CannotPack(f"the reference does not know a kernel that is {ast.op.name}")
        if ast not in self._kernels:
            self._kernels[ast] = pack_kernel(ast, self.sizes.variables)
        kernel = self._kernels[ast]
        numbers = tuple(range(len(slots)))
        return self.graph.add(Node("launch", held.dtype, held.shape, slots, (kernel, asked, numbers)))


def is_invalid(u: UOp) -> bool:
    return u.op.name == "CONST" and str(u.arg) == "Invalid"


def find_ranges(reduce: UOp) -> list[UOp]:
    """Returns the ranges that a REDUCE ends. Raises CannotPack."""
    found: list[UOp] = []
    for r in reduce.src[1:]:
        if r.op.name == "RANGE":
            found.append(r)
        elif r.op.name != "CONST":
            raise CannotPack(f"the reference does not know a reduce over {r.op.name}")
    return found


def find_writes(after: UOp) -> list[UOp]:
    """Returns the STOREs to indices, and the launches of kernels, that an AFTER comes after; none in a tensor graph."""
    found: list[UOp] = []
    for one in after.src[1:]:
        while one.op.name in {"END", "BARRIER"}:
            one = one.src[0]
        if one.op.name in _LAUNCHES or (one.op.name == "STORE" and one.src[0].op.name == "INDEX"):
            found.append(one)
    return found


def find_arguments(launch: UOp) -> list[UOp]:
    """Returns the buffers that a kernel gets, in order."""
    given = launch.src
    if launch.op.name == "CALL":
        given = launch.src[1:]
    return [u for u in given if u.op.name != "BIND" and not getattr(u, "is_bound_var", False)]


def find_ast(launch: UOp) -> UOp:
    return launch.src[0] if launch.op.name == "CALL" else launch.arg.ast


def list_views(u: UOp) -> list[UOp]:
    """Returns the movement ops between a UOp and its base, the outermost first."""
    found: list[UOp] = []
    while u.op.name in MOVEMENT:
        found.append(u)
        u = u.src[0]
    return found


def find_base(u: UOp) -> UOp:
    """Returns the UOp under all movement ops."""
    while u.op.name in MOVEMENT:
        u = u.src[0]
    return u


def find_buffer(u: UOp) -> Any:
    """Returns the BUFFER or PARAM of a state of memory."""
    while u.op.name in MOVEMENT or u.op.name == "AFTER":
        u = u.src[0]
    return u
