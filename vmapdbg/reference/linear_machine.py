"""What the instructions of a linear program do, for many rows at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from vmapdbg.reference.arithmetic import FUNCTIONS
from vmapdbg.reference.graph import Unknown
from vmapdbg.reference.kinds import bitcast, cast, load
from vmapdbg.reference.linear import Instruction, LinearProgram
from vmapdbg.reference.linear_memory import Contents, Disorder, LeavesMemory, Watch, Whole
from vmapdbg.reference.linear_plan import find_loaded, find_stored
from vmapdbg.reference.linear_rows import Rows
from vmapdbg.reference.linear_values import Lanes, calculate, choose_undefined, find_true, make_const, pack
from vmapdbg.reference.run_kernel import Written
from vmapdbg.reference.value import Mask
from vmapdbg.values.numbers import Array, Numbers, encode

MOST_STEPS = 300_000
"""The most instructions that are executed, each for many rows at once. About ten seconds."""
MOST_NUMBERS = 1 << 31
"""The most numbers that are computed."""


class Machine:
    """Executes instructions. `contents` has what the arguments hold before, flat."""

    def __init__(self, program: LinearProgram, contents: Mapping[int, Array]):
        self.program, self.instructions = program, program.instructions
        self.steps = self.numbers = 0
        self.memories: dict[int, Contents] = {}
        self._stored, loaded = find_stored(program), find_loaded(program)
        for position, memory in enumerate(program.memories):
            if memory.argument is None:
                continue
            numbers = load(contents[memory.argument])
            watch = None
            if position in self._stored:
                numbers = numbers.copy()
                watch = Watch(numbers.size, position in loaded)
            self.memories[position] = Contents(numbers, np.zeros(numbers.size, np.bool_), watch)

    def finish(self) -> dict[int, Written]:
        """Returns what the arguments hold that are written."""
        found: dict[int, Written] = {}
        for position in sorted(self._stored):
            memory = self.program.memories[position]
            if memory.argument is not None:
                held = self.memories[position]
                undefined = held.undefined if held.undefined.any() else None
                found[memory.argument] = Written(encode(held.numbers, memory.dtype), undefined)
        return found

    # *** one instruction

    def step_all(self, rows: Rows, positions: Iterable[int]) -> None:
        """Executes instructions for all rows."""
        for position in positions:
            self.step(rows, position)

    def step(self, rows: Rows, position: int) -> None:
        """Executes an instruction for all rows."""
        one = self.instructions[position]
        self.steps += 1
        if one.op in FUNCTIONS:
            dtypes = [self.instructions[source].dtype for source in one.src]
            value = calculate(one, [rows.find(source) for source in one.src], dtypes)
        else:
            method: Callable[[Rows, Instruction], Lanes | None] = getattr(self, f"_do_{one.op}")
            found = method(rows, one)
            if found is None:
                return
            value = found
        self.numbers += value.numbers.size
        if self.steps > MOST_STEPS or self.numbers > MOST_NUMBERS:
            raise Unknown(f"its linear program is too long to be run: over {self.steps:,} steps")
        rows.values[position] = value

    def _do_const(self, rows: Rows, one: Instruction) -> Lanes:
        return make_const(one)

    def _do_thread(self, rows: Rows, one: Instruction) -> None:
        """Its numbers are there from the beginning."""

    def _do_barrier(self, rows: Rows, one: Instruction) -> None:
        """The threads of each group run together: what they did before is over."""
        for position, memory in enumerate(self.program.memories):
            watch = self.memories[position].watch if memory.space == "group" else None
            if watch is not None:
                watch.forget_all()

    def _do_lanes(self, rows: Rows, one: Instruction) -> Lanes:
        value = rows.find(one.src[0])
        chosen = list(one.arg)
        undefined = None if value.undefined is None else value.undefined[:, chosen]
        return Lanes(value.numbers[:, chosen], undefined)

    def _do_pack(self, rows: Rows, one: Instruction) -> Lanes:
        return pack(one, [rows.find(source) for source in one.src])

    def _do_cast(self, rows: Rows, one: Instruction) -> Lanes:
        value = rows.find(one.src[0])
        numbers, undefined = cast(value.numbers, self.instructions[one.src[0]].dtype, one.dtype)
        return Lanes(numbers).mark(undefined).mark(value.undefined)

    def _do_bitcast(self, rows: Rows, one: Instruction) -> Lanes:
        value = rows.find(one.src[0])
        numbers = bitcast(value.numbers, self.instructions[one.src[0]].dtype, one.dtype)
        undefined = value.undefined
        if undefined is not None and undefined.shape != numbers.shape:
            # its lanes are others
            undefined = np.asarray(undefined.any(axis=1))[:, None]
        return Lanes(numbers).mark(undefined)

    # *** memory

    def _do_load(self, rows: Rows, one: Instruction) -> Lanes:
        place, *rest = (rows.find(source) for source in one.src)
        places = place.numbers.astype(np.int64) + np.arange(one.lanes)
        if one.arg in rows.registers:
            numbers, undefined = rows.registers[one.arg].load(places)
        else:
            numbers, undefined = self._load(rows, one.arg, places, find_true(rest[1:]))
        value = Lanes(numbers).mark(undefined).mark(place.undefined)
        if not rest:
            return value
        other, gate = rest
        chosen = Lanes(np.where(gate.numbers, value.numbers, other.numbers))
        return chosen.mark(choose_undefined(gate, value, other))

    def _load(self, rows: Rows, number: int, places: Whole, is_read: Mask) -> tuple[Numbers, Mask | None]:
        held = self.memories[number]
        size, offset = self._find_part(rows, number)
        outside = (places < 0) | (places >= size)
        if not size:
            return np.zeros(places.shape, held.numbers.dtype), outside
        inside = np.where(outside, 0, places) + offset
        if held.watch is not None:
            shape = np.broadcast_shapes(inside.shape, (rows.count, 1))
            chosen = np.broadcast_to(is_read & ~outside & rows.mask, shape)
            read = np.broadcast_to(inside, shape)[chosen]
            self._note(number, held.watch.load, read, rows, chosen)
        return held.numbers[inside], held.undefined[inside] | outside

    def _do_store(self, rows: Rows, one: Instruction) -> None:
        place, value, *gates = (rows.find(source) for source in one.src)
        places = place.numbers.astype(np.int64) + np.arange(one.lanes)
        shape = (rows.count, one.lanes)
        addresses = [address for address in (place, *gates) if address.undefined is not None]
        is_all = not gates and rows.active is None
        if is_all and not addresses and one.arg in rows.registers:
            rows.registers[one.arg].store(places, value.numbers, value.undefined, None)
            return
        chosen = np.broadcast_to(find_true(gates) & rows.mask, shape)
        if any((address.spread_undefined(shape) & chosen).any() for address in addresses):
            raise Unknown("where its linear program writes is undefined")
        if one.arg in rows.registers:
            rows.registers[one.arg].store(places, value.numbers, value.undefined, chosen)
            return
        numbers, undefined = value.spread(shape), value.spread_undefined(shape)
        held = self.memories[one.arg]
        size, offset = self._find_part(rows, one.arg)
        if (chosen & ((places < 0) | (places >= size))).any():
            raise LeavesMemory("it writes outside of its buffer")
        written = np.broadcast_to(places + offset, shape)[chosen]
        assert held.watch is not None
        self._note(one.arg, held.watch.store, written, rows, chosen)
        held.numbers[written] = numbers[chosen]
        held.undefined[written] = undefined[chosen]

    def _find_part(self, rows: Rows, number: int) -> tuple[int, Whole]:
        """Returns how many elements of a memory a row can reach, and where those of each row begin."""
        memory = self.program.memories[number]
        if memory.space == "group":
            return memory.size, rows.groups[:, None] * memory.size
        return self.memories[number].numbers.size, np.zeros((1, 1), np.int64)

    def _note(self, number: int, note: Callable[[Whole, Whole], Any], places: Whole, rows: Rows, chosen: Mask) -> None:
        """Notes who uses memory: of that of a group its threads, whatever steps of them run at once."""
        if self.program.memories[number].space != "group":
            note(places, np.broadcast_to(rows.ids[:, None], chosen.shape)[chosen])
            return
        try:
            note(places, np.broadcast_to(rows.threads[:, None], chosen.shape)[chosen])
        except Disorder:
            raise Unknown("its threads use the memory of their group without waiting for each other") from None
