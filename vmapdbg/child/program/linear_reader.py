"""Reads the linear UOps of any release into a LinearProgram (linear.py)."""

import math
from collections.abc import Sequence
from functools import reduce

from vmapdbg.child.listen.releases import find_under
from vmapdbg.child.memory import name_dtype, scalar_of
from vmapdbg.child.program.linear import CORE, INTEGERS, Buffer, LinearProgram, MemoryAccess, ProgramLoop, UOp, Value
from vmapdbg.child.program.uops import (
    POINTER_OPS,
    base_of,
    dtype_of,
    find_constant,
    find_space,
    is_memory,
    is_pointer,
    is_variable,
    lanes_of,
    loop_name,
    slot_of,
)
from vmapdbg.model.ops import ARITHMETIC

_ORDERS = frozenset({"BARRIER", "END", "ENDIF", "GROUP", "NOOP", "STORE"})
_NOT_VALUES = _ORDERS | {"SINK", "AFTER"}
_LOOP_OPS = {"RANGE": "loop", "SPECIAL": "thread"}


def read_linear(uops: Sequence[UOp], launched_by: frozenset[str] = frozenset()) -> LinearProgram:
    """Returns a linear program. `launched_by`: the variables that relaunches go through, which count as threads."""
    return Reader(launched_by | {CORE}).read(uops)


def read_values(*uops: UOp) -> tuple[list[Value], list[ProgramLoop]]:
    """Returns the Values of expressions that are in no linear program (ranges of the scheduler), and their loops."""
    reader = Reader()
    values = list(map(reader.value_of, uops))
    return values, [loop for loop in reader.values.values() if isinstance(loop, ProgramLoop) and loop.op == "loop"]


def read_memories(uops: Sequence[UOp]) -> list[Buffer]:
    """Returns the buffers of a linear program alone."""
    reader = Reader()
    return [reader.buffer_of(u) for u in uops if is_memory(u)]


class Reader:
    def __init__(self, launched_by: frozenset[str] = frozenset()) -> None:
        self.launched_by = launched_by
        self.program = LinearProgram()
        self.values: dict[UOp, Value] = {}
        self.buffers: dict[UOp, Buffer] = {}
        self.stores: dict[UOp, MemoryAccess] = {}
        self.around: tuple[ProgramLoop, ...] = ()  # the threads, and the loops around the current op
        self.gates: list[Value] = []

    def read(self, uops: Sequence[UOp]) -> LinearProgram:
        # threads and variables are around all of the program, wherever it first names them
        for u in sorted(uops, key=lambda u: u.op.name != "SPECIAL"):
            if u.op.name == "SPECIAL" or is_variable(u):
                loop = self.loop_of(u)
                if loop.op == "thread":
                    # the number of threads is known before they run
                    self.program.addressing.append(self.value_of(u.src[0]))
                if loop.op == "thread" or (loop.name in self.launched_by and u.vmin == 0):
                    self.program.threads.append(loop)
        self.around = tuple(self.program.threads)
        for u in uops:
            self.read_op(u)
        ended = {id(self.values[u.src[1]]) for u in uops if u.op.name == "END" and u.src[1] in self.values}
        self.program.open_loops = [loop for loop in self.program.loops if id(loop) not in ended]
        self.program.uops = {value: u for u, value in self.values.items()}
        return self.program

    def read_op(self, u: UOp) -> None:
        name = u.op.name
        if name == "RANGE":
            self.around += (self.loop_of(u),)
            self.program.loops.append(self.around[-1])
            self.program.order.append(self.around[-1])
        elif name == "BARRIER":
            self.program.order.append("barrier")
        elif name == "END" and self.around and self.around[-1].op == "loop":
            self.program.order.append(self.around[-1])
            self.around = self.around[:-1]
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
                self.program.computed.append((value, self.around))

    def loop_of(self, u: UOp) -> ProgramLoop:
        found = self.values.get(u)
        if isinstance(found, ProgramLoop):
            return found
        op, trips, symbolic = "variable", int(u.vmax) + 1, False
        if not is_variable(u):
            op, end = _LOOP_OPS[u.op.name], u.src[0]
            trips, symbolic = int(end.vmax), end.vmin != end.vmax
        dtype = name_dtype(scalar_of(u.dtype))
        loop = ProgramLoop(op, (), dtype, 4, name=loop_name(u), trips=trips, symbolic=symbolic)
        loop.bounds = int(u.vmin), int(u.vmax)
        self.values[u] = loop
        return loop

    # *** memory

    def read_access(self, u: UOp) -> None:
        is_store = u.op.name == "STORE"
        pointer = self.read_pointer(u.src[0])
        value = self.value_of(u.src[1] if is_store else u)
        if pointer is None:
            return
        buffer, index, gates, follows, width = pointer
        # from 0.13 on the gate is the last source of the LOAD, after the value for a closed gate
        load_gates = [self.value_of(s) for s in u.src[2:] if dtype_of(s) == "bool"]
        self.program.addressing += load_gates
        gates += load_gates
        gates += [gate for gate in self.gates if gate not in gates]
        # all of the gates must hold
        gate = reduce(lambda one, other: Value("and", (one, other), "bool", 1, bounds=(0, 1)), gates) if gates else None
        width = width or value.lanes
        access = MemoryAccess(buffer, index, gate, is_store, value, width, self.around, tuple(follows))
        self.program.accesses.append(access)
        self.program.order.append(access)
        if is_store:
            self.stores[u] = access
        else:
            self.program.loaded[value] = access

    def read_pointer(self, pointer: UOp) -> tuple[Buffer, Value, list[Value], list[MemoryAccess], int] | None:
        """Returns what a pointer addresses: buffer, index, gates, the stores before it, and the number of elements (0:
        the lanes of the value). None if it is not one index into one buffer."""
        index: Value | None = None
        gates: list[Value] = []
        follows: list[MemoryAccess] = []
        width = 0
        while pointer.op.name in POINTER_OPS:
            if pointer.op.name == "AFTER":
                for source in pointer.src[1:]:
                    follows += [self.stores[s] for s in find_stores(source) if s in self.stores]
            elif pointer.op.name in {"INDEX", "SHRINK"} and len(pointer.src) > 1:
                if index is not None:
                    return None
                index, *rest = map(self.value_of, pointer.src[1:])
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
            dtype, base = u.dtype, base_of(u)
            # the dtype has the size, or the first source (0.14 on)
            size = getattr(dtype, "size", None)
            if size is None:
                size = int(u.src[0].vmax) if u.src else 0
            slot, space = slot_of(u), find_space(u)
            name = self.name_memory(u, slot, size, space)
            self.buffers[u] = Buffer(slot, name, size, name_dtype(base), base.itemsize, space)
            self.program.buffers.append(self.buffers[u])
        return self.buffers[u]

    def name_memory(self, u: UOp, slot: int, size: int, space: str) -> str:
        """Returns the name that the source has for a buffer."""
        if space in {"global", "image"}:
            return f"data{slot}_{size}"
        if space == "local" and u.op.name == "DEFINE_LOCAL":
            return f"temp{slot}"
        # registers are numbered in their order, and from 0.14 on LOCAL memory with them
        number = sum(known.op is u.op for known in self.buffers)
        return f"acc{number}" if u.op.name == "DEFINE_REG" else f"buf{number}"

    # *** values

    def value_of(self, u: UOp) -> Value:
        if u in self.values:
            return self.values[u]
        if u.op.name in _LOOP_OPS or is_variable(u):
            return self.loop_of(u)
        if u.op.name == "AFTER":
            return self.value_of(u.src[0])
        dtype, constant = scalar_of(u.dtype), find_constant(u)
        op, sources = "const", ()
        if constant is None:
            op, sources = u.op.name.lower(), u.src
            if u.op.name in ARITHMETIC:
                op = ARITHMETIC[u.op.name].name
            elif op == "load":
                # the value for a closed gate comes after the pointer; other sources only order it
                sources = u.src[1:2]
        values = tuple(self.value_of(s) for s in sources if s.op.name not in _ORDERS and not is_pointer(s))
        value = Value(op, values, name_dtype(dtype), getattr(dtype, "itemsize", 0), lanes_of(u), constant)
        value.bounds, value.operations = _bounds_of(u), _count_operations(u, value.lanes)
        self.values[u] = value
        return value


def find_stores(ordered: UOp) -> list[UOp]:
    """Returns the STOREs that an AFTER waits for, behind ENDs, barriers and groups."""
    ordered = find_under(ordered, {"END", "BARRIER"})
    if ordered.op.name == "GROUP":
        return [store for source in ordered.src for store in find_stores(source)]
    return [ordered] if ordered.op.name == "STORE" else []


def list_stored(kernel: UOp) -> list[int]:
    """Returns the numbers of the arguments that a kernel stores to."""
    targets = (find_under(u.src[0], POINTER_OPS) for u in kernel.toposort() if u.op.name == "STORE")
    return list(dict.fromkeys(slot_of(u) for u in targets if is_memory(u) and find_space(u) == "global"))


def _count_operations(u: UOp, lanes: int) -> int:
    from tinygrad.uop import GroupOp

    if u.op.name == "WMMA":
        # a product of matrices with these dimensions, by some threads
        dimensions, threads = u.arg[0], u.arg[3]
        if isinstance(u.arg[0], str):
            dimensions, threads = u.arg[1], u.arg[5]  # before 0.14 a name comes first
        return 2 * math.prod(dimensions) // threads
    if u.op not in GroupOp.ALU:
        return 0
    return 2 * lanes if u.op.name == "MULACC" else lanes


def _bounds_of(u: UOp) -> tuple[int, int] | None:
    if dtype_of(u) not in INTEGERS and dtype_of(u) != "bool":
        return None
    try:
        lowest, highest = u.vmin, u.vmax
    except Exception:  # a loaded value, or a kind of value that has no bounds in this release
        return None
    return (int(lowest), int(highest)) if isinstance(lowest, int) and isinstance(highest, int) else None
