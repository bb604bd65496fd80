"""Packs a kernel as the scheduler made it, of any release of tinygrad, in the form that `vmapdbg.reference` runs.

Runs in the child. What differs between the releases ends here and in `packer`: the ops of an argument and of a buffer
inside of the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vmapdbg.child.evidence.packer import SAME, UNEXPECTED, CannotPack, UOp, UOpPacker
from vmapdbg.child.memory import name_dtype
from vmapdbg.reference.graph import Kernel, Node, Store

_ARGUMENTS = {"DEFINE_GLOBAL", "PARAM"}
# buffers that are made inside of the kernel, when it is lowered
_STAGES = {"BUFFERIZE", "STAGE"}
# ops around stores
_ENDS = {"SINK", "GROUP"}


def pack_kernel(ast: UOp, variables: Mapping[str, int]) -> Kernel:
    """Packs the AST of a compute kernel; `variables` has the numbers of its variables. Raises CannotPack."""
    packer = KernelPacker(variables)
    try:
        for store in find_stores(ast):
            packer.add_store(store)
    except UNEXPECTED as error:
        raise CannotPack(f"it cannot be read: {type(error).__name__}: {error}") from error
    if not packer.kernel.stores:
        raise CannotPack("it stores nothing")
    return packer.kernel


def find_stores(ast: UOp) -> list[UOp]:
    """Returns the STOREs of a kernel. Raises CannotPack if another op is around them."""
    found: dict[UOp, None] = {}
    stack = [ast]
    while stack:
        u = stack.pop()
        if u.op.name == "END":
            stack.append(u.src[0])
        elif u.op.name in _ENDS:
            stack += reversed(u.src)
        elif u.op.name == "STORE":
            found[u] = None
        else:
            raise CannotPack(f"the reference does not know {u.op.name} around a store")
    return list(found)


class KernelPacker(UOpPacker):
    """Packs one kernel."""

    def __init__(self, variables: Mapping[str, int]):
        super().__init__(variables)
        self.kernel = Kernel(self.graph)

    def add_store(self, store: UOp) -> None:
        """Adds what a STORE writes. Raises CannotPack."""
        target, value, *others = store.src
        if others or target.op.name != "INDEX":
            raise CannotPack("the reference does not know its store")
        argument = self._find_argument(target)
        number = self.pack(value)
        places = [self.pack(one) for one in self._find_sources(target)]
        place, *gate = self._join_places(target, places)
        dtype = self.kernel.dtypes[argument]
        self.kernel.stores.append(Store(argument, place, self._cast(number, dtype), *gate))

    # *** sources of a UOp

    def _find_sources(self, u: UOp) -> list[UOp]:
        op = u.op.name
        if op in {"CONST", "RANGE", "DEFINE_VAR"} or self._is_number(u):
            return []
        if op == "INDEX":
            values = [stage.src[0] for stage in u.src[:1] if stage.op.name in _STAGES]
            return values + [part for index in u.src[1:] for part in split_gate(index)]
        if op in {"REDUCE", "CAST", "BITCAST", "BIND", *SAME}:
            return list(u.src[:1])
        if op == "LOAD" and len(u.src) > 1:
            raise CannotPack("the reference does not know a load with an alternative")
        return list(u.src)

    # *** one node

    def _find_shape(self, u: UOp) -> tuple[int, ...]:
        """No value has axes: it has a number for each step of its loops."""
        return ()

    def _make_index(self, u: UOp, src: tuple[int, ...]) -> int:
        if u.src[0].op.name in _STAGES:
            return self._fetch(u, src)
        argument = self._find_argument(u)
        if self.kernel.dtypes[argument] != self._name_dtype(u):
            raise CannotPack("it reads a buffer as one of another dtype")
        return self._add("load", u, self._join_places(u, list(src)), argument)

    def _make_load(self, u: UOp, src: tuple[int, ...]) -> int:
        return src[0]

    def _fetch(self, u: UOp, src: tuple[int, ...]) -> int:
        closed = u.src[0].src[1:]
        if len(src) != 1 + len(closed):
            raise CannotPack("it reads a buffer of its own under a condition")
        if not closed:
            return src[0]
        held = self._add_close(src[0], tuple(map(self._name_axis, closed)))
        return self._add("fetch", u, (held, *src[1:]))

    def _make_reduce(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._add_loop_reduce(u, src)

    def _find_argument(self, index: UOp) -> int:
        """Returns the number of the argument that an INDEX reads or writes."""
        memory = index.src[0]
        if memory.op.name not in _ARGUMENTS:
            raise CannotPack(f"the reference does not know a buffer that is {memory.op.name}")
        argument: Any = getattr(memory.arg, "slot", memory.arg)
        # an argument has a pointer's dtype until 0.13
        dtype = name_dtype(getattr(memory.dtype, "base", memory.dtype))
        known = self.kernel.dtypes.setdefault(int(argument), dtype)
        if known != dtype:
            raise CannotPack("it looks at a buffer in two dtypes")
        return int(argument)

    def _join_places(self, index: UOp, src: list[int]) -> tuple[int, ...]:
        """Returns the positions of the place in flat memory and, if there is one, of the condition."""
        parts = iter(src)
        indices = index.src[1:]
        places, gates = [], []
        for one, stride in zip(indices, self._find_strides(index), strict=True):
            place, *gate = [next(parts) for _ in split_gate(one)]
            places.append(self._multiply(place, stride))
            gates += gate
        return (self._join("add", "long", places), *self._join_gates(gates))

    def _find_strides(self, index: UOp) -> list[int]:
        """Returns the stride of each index, in elements. Raises CannotPack."""
        if len(index.src) == 2:
            return [1]
        sizes = [self.sizes.need(size) for size in index.src[0]._shape or ()]
        if len(index.src) != 1 + len(sizes):
            raise CannotPack("the reference does not know its indices")
        return [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]

    def _join_gates(self, gates: list[int]) -> list[int]:
        if not gates:
            return []
        return [self._join("and", "bool", gates)]

    def _join(self, op: str, dtype: str, slots: list[int]) -> int:
        first, *others = slots
        for other in others:
            first = self.graph.add(Node(op, dtype, (), (first, other)))
        return first

    def _multiply(self, slot: int, factor: int) -> int:
        if factor == 1:
            return slot
        by = self.graph.add(Node("const", "long", (), (), factor))
        return self.graph.add(Node("mul", "long", (), (slot, by)))


def split_gate(index: UOp) -> tuple[UOp, ...]:
    """Returns an index and, if it can be Invalid, the condition under which it is valid."""
    if index.op.name == "WHERE" and index.src[2].op.name == "CONST" and str(index.src[2].arg) == "Invalid":
        return index.src[1], index.src[0]
    return (index,)
