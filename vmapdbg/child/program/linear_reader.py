"""Reads the linear UOps of any release into a LinearProgram (linear.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vmapdbg.child.program.linear import (
    POINTER_OPS,
    Buffer,
    LinearProgram,
    MemoryAccess,
    ProgramLoop,
    Step,
    UOp,
    Value,
    bounds_of,
    count_operations,
    dtype_of,
    find_constant,
    find_space,
    is_memory,
    is_pointer,
    is_variable,
    lanes_of,
    loop_name,
    plain,
    scalar_of,
    size_of_memory,
)
from vmapdbg.model.ops import ARITHMETIC

_ORDERS = frozenset({"BARRIER", "END", "ENDIF", "GROUP", "NOOP", "STORE"})
_NOT_VALUES = _ORDERS | {"SINK", "AFTER"}
_LOOP_OPS = {"RANGE": "loop", "SPECIAL": "thread"}


def read_linear(uops: Sequence[UOp], launched_by: frozenset[str] = frozenset()) -> LinearProgram:
    """Returns the neutral view of a linear program. `launched_by` names the variables whose values a schedule goes
    through by launching the kernel again and again: they count as threads."""
    return Reader(launched_by | {"core_id"}).read(uops)


def read_values(*uops: UOp) -> tuple[list[Value], list[ProgramLoop]]:
    """Returns the Values of expressions that are in no linear program (ranges of the scheduler), and their loops."""
    reader = Reader(frozenset())
    values = [reader.value_of(u) for u in uops]
    return values, [loop for loop in reader.values.values() if isinstance(loop, ProgramLoop) and loop.op == "loop"]


def read_memories(uops: Sequence[UOp]) -> list[Buffer]:
    """Returns the buffers of a linear program alone."""
    reader = Reader(frozenset())
    return [reader.buffer_of(u) for u in uops if is_memory(u)]


class Reader:
    def __init__(self, launched_by: frozenset[str]) -> None:
        self.launched_by = launched_by
        self.program = LinearProgram()
        self.values: dict[UOp, Value] = {}
        self.buffers: dict[UOp, Buffer] = {}
        self.stores: dict[UOp, MemoryAccess] = {}
        self.around: list[ProgramLoop] = []
        self.gates: list[Value] = []

    def read(self, uops: Sequence[UOp]) -> LinearProgram:
        # threads and variables are around all of the program, wherever it first names them
        for u in sorted(uops, key=lambda u: u.op.name != "SPECIAL"):
            if u.op.name == "SPECIAL" or is_variable(u):
                self.read_thread(u)
        for u in uops:
            self.read_op(u)
        ended = {id(self.values[u.src[1]]) for u in uops if u.op.name == "END" and u.src[1] in self.values}
        self.program.open_loops = [loop for loop in self.program.loops if id(loop) not in ended]
        return self.program

    def read_op(self, u: UOp) -> None:
        name = u.op.name
        if name == "RANGE":
            loop = self.loop_of(u)
            self.program.loops.append(loop)
            self.around.append(loop)
            self.program.steps.append((Step.OPEN, loop))
        elif name == "END":
            if self.around:
                self.program.steps.append((Step.CLOSE, self.around.pop()))
        elif name == "IF":
            self.gates.append(self.value_of(u.src[0]))
            self.program.addressing.append(self.gates[-1])
        elif name == "ENDIF":
            self.gates.pop()
        elif name in {"LOAD", "STORE"}:
            self.read_access(u)
        elif is_memory(u):
            self.buffer_of(u)
        elif is_pointer(u):
            if name in {"INDEX", "SHRINK"}:
                self.program.addressing += map(self.value_of, u.src[1:])
        elif name not in _NOT_VALUES:
            value = self.value_of(u)
            if not isinstance(value, ProgramLoop) and value.op != "const":
                self.program.steps.append((Step.COMPUTE, value))

    # *** loops

    def read_thread(self, u: UOp) -> None:
        loop = self.loop_of(u)
        if loop.op == "variable":
            self.program.variables.append(loop)
        else:
            # how many threads there are is known before they run
            self.program.addressing.append(self.value_of(u.src[0]))
        if loop.op == "thread" or (loop.name in self.launched_by and loop.lowest == 0):
            self.program.threads.append(loop)

    def loop_of(self, u: UOp) -> ProgramLoop:
        found = self.values.get(u)
        if isinstance(found, ProgramLoop):
            return found
        if is_variable(u):
            op, trips, symbolic = "variable", int(u.vmax) + 1, False
        else:
            op, end = _LOOP_OPS[u.op.name], u.src[0]
            trips, symbolic = int(end.vmax), end.vmin != end.vmax
        loop = ProgramLoop(op, (), dtype_of(u), 4, name=loop_name(u), uop=u, trips=trips, symbolic=symbolic)
        loop.lowest, loop.highest = int(u.vmin), int(u.vmax)
        self.values[u] = loop
        return loop

    # *** memory

    def read_access(self, u: UOp) -> None:
        is_store = u.op.name == "STORE"
        pointer = self.find_pointer(u.src[0])
        value = self.value_of(u.src[1] if is_store else u)
        if pointer is None:
            return
        buffer, index, gates, follows, width = pointer
        # from 0.13 on the gate is the last source of the LOAD, behind what is taken where it does not hold
        beside = [self.value_of(s) for s in u.src[2:] if dtype_of(s) == "bool"]
        self.program.addressing += beside
        gates += beside
        gates += [gate for gate in self.gates if gate not in gates]
        width = width or value.lanes
        loops = (*self.program.threads, *self.around)
        access = MemoryAccess(buffer, index, join(gates), is_store, value, width, loops, tuple(follows), u)
        self.program.accesses.append(access)
        self.program.steps.append((Step.ACCESS, access))
        if is_store:
            self.stores[u] = access
        else:
            self.program.loaded[value] = access

    def find_pointer(self, pointer: UOp) -> tuple[Buffer, Value, list[Value], list[MemoryAccess], int] | None:
        """Returns what a pointer addresses: buffer, index, gates, the stores before it, and the number of elements (0:
        the lanes of the value). None if it is not one index into one buffer."""
        index: Value | None = None
        gates: list[Value] = []
        follows: list[MemoryAccess] = []
        width = 0
        while pointer.op.name in POINTER_OPS:
            if pointer.op.name == "AFTER":
                follows += [
                    self.stores[s] for source in pointer.src[1:] for s in find_stores(source) if s in self.stores
                ]
            elif pointer.op.name in {"INDEX", "SHRINK"} and len(pointer.src) > 1:
                if index is not None:
                    return None
                index = self.value_of(pointer.src[1])
                rest = [self.value_of(s) for s in pointer.src[2:]]
                gates += [value for value in rest if value.dtype == "bool"]
                if pointer.op.name == "SHRINK" and rest:
                    width = int(rest[0].constant or 0)
            pointer = pointer.src[0]
        if not is_memory(pointer) or index is None:
            return None
        buffer = self.buffer_of(pointer)
        if index.lanes > 1 and buffer.space != "image":
            return None
        return buffer, index, gates, follows, width

    def buffer_of(self, u: UOp) -> Buffer:
        if u not in self.buffers:
            dtype = u.dtype
            size = size_of_memory(u)
            base = getattr(dtype, "base", dtype)
            slot = u.arg if isinstance(u.arg, int) else u.arg.slot
            space = find_space(u)
            buffer = Buffer(slot, self.name_memory(u, slot, size, space), size, plain(base), base.itemsize, space)
            self.buffers[u] = buffer
            self.program.buffers.append(buffer)
        return self.buffers[u]

    def name_memory(self, u: UOp, slot: int, size: int, space: str) -> str:
        """Returns the name that the source has for a buffer."""
        if space in {"global", "image"}:
            return f"data{slot}_{size}"
        if space == "local" and u.op.name == "DEFINE_LOCAL":
            return f"temp{slot}"
        # registers are counted as they come, and from 0.14 on LOCAL memory with them
        number = sum(known.op is u.op for known in self.buffers)
        if u.op.name == "DEFINE_REG":
            return f"acc{number}"
        return f"buf{number}"

    # *** values

    def value_of(self, u: UOp) -> Value:
        """The Value of a UOp."""
        if u in self.values:
            return self.values[u]
        if u.op.name in _LOOP_OPS or is_variable(u):
            return self.loop_of(u)
        if u.op.name == "AFTER":
            return self.value_of(u.src[0])
        op, constant, sources = self.read_operation(u)
        dtype = scalar_of(u)
        value = Value(op, sources, plain(dtype), getattr(dtype, "itemsize", 0), lanes_of(u), constant)
        value.lowest, value.highest = bounds_of(u)
        value.uop, value.operations = u, count_operations(u, value.lanes)
        self.values[u] = value
        return value

    def read_operation(self, u: UOp) -> tuple[str, Any, tuple[Value, ...]]:
        """Returns what op a UOp is, its constant (None: it is not one), and what it is computed from."""
        constant = find_constant(u)
        if constant is not None:
            return "const", constant, ()
        name = str(u.op.name)
        sources = u.src
        if name == "LOAD":
            # what it gives where its gate does not hold is behind its pointer; what follows only orders it
            sources = u.src[1:2]
        values = tuple(self.value_of(s) for s in sources if s.op.name not in _ORDERS and not is_pointer(s))
        known = ARITHMETIC.get(name)
        return name.lower() if known is None else known.name, None, values


def join(gates: list[Value]) -> Value | None:
    """All of the gates must hold."""
    if not gates:
        return None
    joined, *rest = gates
    for gate in rest:
        joined = Value("and", (joined, gate), "bool", 1, lowest=0, highest=1)
    return joined


def find_stores(ordered: UOp) -> list[UOp]:
    """The STOREs among what an AFTER waits for: behind ENDs, barriers and groups."""
    while ordered.op.name in {"END", "BARRIER"} and ordered.src:
        ordered = ordered.src[0]
    if ordered.op.name == "GROUP":
        return [store for source in ordered.src for store in find_stores(source)]
    if ordered.op.name == "STORE":
        return [ordered]
    return []
