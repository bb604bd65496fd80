"""Packs a linear program, of any release of tinygrad, in the form that `vmapdbg.reference` runs.

Runs in the child. What differs between the releases ends here and in `program.linear_ops`: what stands for memory, how
several lanes are read and written, where the gate of a load is.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from vmapdbg.child.evidence.packing import ARITHMETIC, DTYPES, UNEXPECTED, CannotPack, UOp
from vmapdbg.child.memory import name_dtype
from vmapdbg.child.program.linear_ops import (
    dtype_of,
    find_constant,
    find_space,
    is_memory,
    is_pointer,
    is_variable,
    lanes_of,
    loop_name,
    size_of_memory,
)
from vmapdbg.reference.linear import Instruction, LinearProgram, Memory, Space
from vmapdbg.values.itemsize import ITEMSIZE
from vmapdbg.values.tolerance import is_float

MOST_INSTRUCTIONS = 50_000
"""A longer program is not kept."""

_SPACES: dict[str, Space] = {"global": "argument", "local": "group", "register": "register"}
# what only orders, or says which of the others belong together
_SKIPPED = {"SINK", "NOOP", "GROUP", "AFTER"}
_POINTS = {"INDEX", "SHRINK"}


def pack_linear(uops: Sequence[UOp], variables: Mapping[str, int]) -> LinearProgram:
    """Packs the linear UOps of a compute kernel; `variables` has the numbers of its variables. Raises CannotPack."""
    if len(uops) > MOST_INSTRUCTIONS:
        raise CannotPack(f"its linear program is too long to be kept: {len(uops):,} ops")
    packer = LinearPacker(variables)
    try:
        for u in uops:
            packer.add(u)
    except UNEXPECTED as error:
        raise CannotPack(f"its linear program cannot be read: {type(error).__name__}: {error}") from error
    return packer.program


class LinearPacker:
    """Packs one program, UOp after UOp."""

    def __init__(self, variables: Mapping[str, int]):
        self.variables = variables
        self.program = LinearProgram()
        self._slots: dict[UOp, int] = {}
        self._memories: dict[UOp, int] = {}
        # place, unit -> position of the place in elements
        self._scaled: dict[tuple[int, int], int] = {}

    def add(self, u: UOp) -> None:
        """Adds the next UOp. Raises CannotPack."""
        op = u.op.name
        # most of a program
        if op in ARITHMETIC:
            self._slots[u] = self._add(ARITHMETIC[op], u, u.src)
            return
        constant = find_constant(u)
        if is_variable(u):
            self._slots[u] = self._make_variable(u)
        elif is_memory(u):
            self._memories[u] = self._add_memory(u)
        elif constant is not None:
            self._slots[u] = self._make_const(u, constant)
        elif op in _SKIPPED:
            self._skip(u)
        elif not is_pointer(u) or op in {"LOAD", "STORE"}:
            self._slots[u] = self._make(u)

    def _skip(self, u: UOp) -> None:
        # an AFTER of a value is that value
        if u.op.name == "AFTER" and u.src[0] in self._slots:
            self._slots[u] = self._slots[u.src[0]]

    def _make(self, u: UOp) -> int:
        op = u.op.name
        method = getattr(self, f"_make_{op.lower()}", None)
        if method is None:
            raise CannotPack(f"its linear program has {op}, which the reference does not know")
        return method(u)

    def _add(self, op: str, u: UOp, sources: Sequence[UOp], arg: Any = None) -> int:
        return self._append(op, _name(u), lanes_of(u), tuple(self._slots[s] for s in sources), arg)

    def _append(self, op: str, dtype: str, lanes: int, src: tuple[int, ...], arg: Any = None) -> int:
        self.program.instructions.append(Instruction(op, dtype, lanes, src, arg))
        return len(self.program.instructions) - 1

    # *** numbers, threads

    def _make_const(self, u: UOp, number: Any) -> int:
        dtype = _name(u)
        if is_float(dtype):
            number = float(number)
        elif dtype == "bool":
            number = bool(number)
        elif not isinstance(number, int):
            raise CannotPack(f"its linear program has the constant {number} of {dtype}")
        return self._append("const", dtype, lanes_of(u), (), number)

    def _make_variable(self, u: UOp) -> int:
        name = loop_name(u)
        if name == "core_id":
            return self._append("thread", _name(u), 1, (), (False, int(u.vmax) + 1))
        if name not in self.variables:
            raise CannotPack(f"its variable {name} has no value")
        return self._append("const", _name(u), 1, (), int(self.variables[name]))

    def _make_special(self, u: UOp) -> int:
        count = find_constant(u.src[0])
        if count is None:
            raise CannotPack("how many threads it has depends on a variable")
        return self._append("thread", _name(u), 1, (), (str(u.arg).startswith("l"), int(count)))

    # *** control

    def _make_range(self, u: UOp) -> int:
        if name_dtype(u.dtype) == "void":
            raise CannotPack("its linear program has a loop that runs until a condition")
        return self._add("loop", u, u.src[:1])

    def _make_end(self, u: UOp) -> int:
        if len(u.src) > 2:
            raise CannotPack("its linear program has a loop that runs until a condition")
        return self._append("end", "bool", 1, (), self._slots[u.src[1]])

    def _make_if(self, u: UOp) -> int:
        return self._append("if", "bool", 1, (self._slots[u.src[0]],))

    def _make_endif(self, u: UOp) -> int:
        return self._append("endif", "bool", 1, ())

    def _make_barrier(self, u: UOp) -> int:
        return self._append("barrier", "bool", 1, ())

    # *** lanes

    def _make_gep(self, u: UOp) -> int:
        return self._add("lanes", u, u.src[:1], tuple(u.arg))

    def _make_index(self, u: UOp) -> int:
        """From 0.14 on a lane of a value is an INDEX."""
        lane = find_constant(u.src[1])
        if lane is None:
            raise CannotPack("which lane of a value its linear program takes depends on another value")
        return self._add("lanes", u, u.src[:1], (int(lane),))

    def _make_vectorize(self, u: UOp) -> int:
        return self._add("pack", u, u.src)

    _make_stack = _make_vectorize

    def _make_cast(self, u: UOp) -> int:
        return self._add("cast", u, u.src[:1])

    def _make_bitcast(self, u: UOp) -> int:
        return self._add("bitcast", u, u.src[:1])

    # *** memory

    def _add_memory(self, u: UOp) -> int:
        space = find_space(u)
        if space not in _SPACES:
            raise CannotPack("its linear program reads or writes an image")
        base = getattr(u.dtype, "base", u.dtype)
        unit = getattr(base, "count", 1)
        slot = u.arg if isinstance(u.arg, int) else u.arg.slot
        argument = slot if space == "global" else None
        self.program.memories.append(Memory(_SPACES[space], _name(u), size_of_memory(u) * unit, argument))
        return len(self.program.memories) - 1

    def _make_load(self, u: UOp) -> int:
        memory, place, gates = self._read_pointer(u.src[0])
        self._check_dtype(u, memory)
        others = [s for s in u.src[1:] if s in self._slots]
        gates += [self._slots[s] for s in others[1:]]
        if not gates:
            return self._append("load", _name(u), lanes_of(u), (place,), memory)
        if not others:
            raise CannotPack("its linear program reads under a condition, and does not say what else is taken")
        source = (place, self._slots[others[0]], self._join(gates))
        return self._append("load", _name(u), lanes_of(u), source, memory)

    def _make_store(self, u: UOp) -> int:
        memory, place, gates = self._read_pointer(u.src[0])
        self._check_dtype(u.src[1], memory)
        gates += [self._slots[s] for s in u.src[2:] if s in self._slots and dtype_of(s) == "bool"]
        source = (place, self._slots[u.src[1]], *([self._join(gates)] if gates else []))
        return self._append("store", _name(u.src[1]), lanes_of(u.src[1]), source, memory)

    def _join(self, gates: list[int]) -> int:
        first, *others = gates
        for other in others:
            first = self._append("and", "bool", 1, (first, other))
        return first

    def _check_dtype(self, value: UOp, memory: int) -> None:
        if _name(value) != self.program.memories[memory].dtype:
            raise CannotPack("its linear program reads or writes a buffer as one of another dtype")

    def _read_pointer(self, pointer: UOp) -> tuple[int, int, list[int]]:
        """Returns what is addressed: the memory, the position of the first element, those of the gates."""
        place: int | None = None
        gates: list[int] = []
        while pointer not in self._memories:
            if pointer.op.name in _POINTS:
                if place is not None or lanes_of(pointer.src[1]) > 1:
                    raise CannotPack("its linear program has an address of two indices")
                place = self._slots[pointer.src[1]]
                gates += [self._slots[s] for s in pointer.src[2:] if dtype_of(s) == "bool"]
            pointer = pointer.src[0]
        if place is None:
            raise CannotPack("its linear program has an address without an index")
        base = getattr(pointer.dtype, "base", pointer.dtype)
        return self._memories[pointer], self._scale(place, getattr(base, "count", 1)), gates

    def _scale(self, place: int, unit: int) -> int:
        """Returns the place in elements where memory is counted in vectors of `unit` elements."""
        if unit == 1:
            return place
        by = self._append("const", "long", 1, (), unit)
        return self._append("mul", "long", 1, (place, by))


def _name(u: UOp) -> str:
    """Returns the dtype of each lane; of memory that of its elements."""
    return _name_lane(u.dtype)


@functools.cache
def _name_lane(dtype: Any) -> str:
    """The same of a dtype. Raises CannotPack."""
    # 0.14 has no vectors
    scalar = getattr(dtype, "scalar", lambda: dtype)
    name = name_dtype(scalar())
    base = getattr(dtype, "base", None)
    if base is not None and hasattr(base, "scalar"):
        name = name_dtype(base.scalar())
    name = DTYPES.get(name, name)
    if name not in ITEMSIZE:
        raise CannotPack(f"the reference does not know the dtype {name}")
    return name
