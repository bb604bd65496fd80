"""Runs a linear program by numpy, as it is written: the steps of a loop that do not depend on each other at once, each
a row, those of others one after the other.

Whether steps depend on each other is seen while they run (`linear_memory`): then all begins again, with that loop step
after step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from vmapdbg.reference.arithmetic import FUNCTIONS, compute
from vmapdbg.reference.kinds import bitcast, cast, find_carrier, load, round_floats
from vmapdbg.reference.linear import Block, Instruction, LinearProgram, nest
from vmapdbg.reference.linear_memory import Contents, Disorder, LeavesMemory, Registers, Watch, Whole
from vmapdbg.reference.linear_plan import find_accessed, find_carrying, find_stored
from vmapdbg.reference.run_kernel import Written
from vmapdbg.reference.value import Mask, Unknown
from vmapdbg.values.numbers import Array, Numbers, encode
from vmapdbg.values.tolerance import is_float

MOST_STEPS = 2_000_000
"""The most instructions that are executed, each for many rows at once. About ten seconds."""
MOST_ELEMENTS = 1 << 32
"""The most numbers that are computed."""
MOST_AT_ONCE = 1 << 23
"""The most numbers that are held at a time."""
_MOST_ROWS = 1 << 16


def run_linear(program: LinearProgram, contents: Mapping[int, Array]) -> dict[int, Written]:
    """Returns what each argument that is written holds afterwards, by its number.

    `contents` has what the arguments hold before, flat. Raises Unknown where that cannot be said, with the reason, and
    LeavesMemory where the program writes outside of its memory.
    """
    tree = nest(program.instructions)
    one_by_one = find_carrying(program, tree)
    while True:
        run = Run(program, tree, contents, one_by_one)
        try:
            run.run()
        except Disorder as found:
            if found.loop is None:
                raise Unknown("its threads write to the same place, or read what another one writes") from None
            one_by_one.add(found.loop)
            continue
        return run.finish()


@dataclass(frozen=True)
class Lanes:
    """The value of an instruction: a row for each row (or one for all), a column for each lane (or one for all).
    `undefined` are those that C leaves undefined; None: there are none."""

    numbers: Numbers
    undefined: Mask | None = None

    def take(self, rows: Whole) -> Lanes:
        """Returns the value for other rows, which come from these."""
        if len(self.numbers) == 1:
            return self
        undefined = None if self.undefined is None or len(self.undefined) == 1 else self.undefined[rows]
        if self.undefined is not None and undefined is None:
            undefined = self.undefined
        return Lanes(self.numbers[rows], undefined)

    def mark(self, undefined: Mask | None) -> Lanes:
        """Returns the value with more that is undefined."""
        if undefined is None or not undefined.any():
            return self
        if self.undefined is not None:
            undefined = undefined | self.undefined
        shape = np.broadcast_shapes(self.numbers.shape, undefined.shape)
        return Lanes(np.broadcast_to(self.numbers, shape), np.broadcast_to(undefined, shape))


@dataclass
class Rows:
    """Rows that run at once. `ids` has a number for each that no others have, `threads` that of the thread that it
    belongs to, `groups` that of its group. `parents` are the rows of `before` that they come from, `loop` is the loop
    whose steps they are. `active` are those inside of all conditions; None: all."""

    ids: Whole
    threads: Whole
    groups: Whole
    before: Rows | None = None
    parents: Whole | None = None
    loop: int | None = None
    active: Mask | None = None
    values: dict[int, Lanes] = field(default_factory=dict)
    registers: dict[int, Registers] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.ids)

    def find(self, position: int) -> Lanes:
        """Returns the value of an instruction. Raises Unknown where it has none yet."""
        if position not in self.values:
            if self.before is None:
                raise Unknown("it uses a value before it is computed")
            assert self.parents is not None
            self.values[position] = self.before.find(position).take(self.parents)
        return self.values[position]


class Run:
    """One run of a program. `one_by_one` are the loops whose steps run one after the other."""

    def __init__(self, program: LinearProgram, tree: Block, contents: Mapping[int, Array], one_by_one: set[int]):
        self.program, self.tree, self.one_by_one = program, tree, one_by_one
        self.instructions = program.instructions
        self.steps = self.elements = 0
        self._next_row = 0
        self._stored = find_stored(program)
        loaded = {one.arg for one in self.instructions if one.op == "load"}
        self.memories: dict[int, Contents] = {}
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

    # *** threads

    def run(self) -> None:
        """Runs all threads, as many groups at a time as there is room for."""
        threads = [(position, one.arg) for position, one in enumerate(self.instructions) if one.op == "thread"]
        own = [count for _, (is_own, count) in threads if is_own]
        groups = math.prod(count for _, (is_own, count) in threads if not is_own)
        size = math.prod(own)
        # the threads of a group stand together
        ordered = sorted(threads, key=lambda one: one[1][0])
        counts = [count for _, (_, count) in ordered]
        at_once = max(1, self._find_most(self.tree) // size)
        for start in range(0, groups, at_once):
            stop = min(start + at_once, groups)
            numbers = np.arange(start * size, stop * size)
            rows = Rows(self._number(len(numbers)), numbers, numbers // size - start)
            for (position, _), values in zip(ordered, np.unravel_index(numbers, counts or [1]), strict=False):
                carrier = find_carrier(self.instructions[position].dtype)
                rows.values[position] = Lanes(values.astype(carrier)[:, None])
            self._begin(rows, stop - start)
            self.execute(rows, self.tree)

    def _begin(self, rows: Rows, groups: int) -> None:
        """Makes the memory of threads and groups."""
        for position, memory in enumerate(self.program.memories):
            carrier = find_carrier(memory.dtype)
            if memory.space == "register":
                rows.registers[position] = Registers.make(rows.count, memory.size, carrier)
            elif memory.space == "group":
                size = groups * memory.size
                watch = Watch(size, reads=True)
                self.memories[position] = Contents(np.zeros(size, carrier), np.ones(size, np.bool_), watch)

    def _find_most(self, block: Block) -> int:
        """Returns how many rows of a block run at once."""
        held = sum(self.instructions[position].lanes for position in block.list_instructions())
        return min(_MOST_ROWS, max(1, MOST_AT_ONCE // max(1, held)))

    def _number(self, count: int) -> Whole:
        """Returns numbers for rows."""
        first, self._next_row = self._next_row, self._next_row + count
        return np.arange(first, first + count)

    # *** blocks

    def execute(self, rows: Rows, block: Block) -> None:
        """Runs what is in a block. Raises Disorder and Unknown."""
        for part in block.parts:
            if isinstance(part, int):
                self.step(rows, part)
                continue
            assert part.opened_by is not None
            if self.instructions[part.opened_by].op == "if":
                self._run_condition(rows, part, part.opened_by)
            else:
                self._run_loop(rows, part, part.opened_by)

    def _run_condition(self, rows: Rows, block: Block, position: int) -> None:
        condition = rows.find(self.instructions[position].src[0])
        if condition.undefined is not None:
            raise Unknown("a condition is undefined")
        before = rows.active
        chosen = np.broadcast_to(condition.numbers[:, 0], rows.count)
        rows.active = chosen if before is None else chosen & before
        if rows.active.any():
            self.execute(rows, block)
        rows.active = before

    def _run_loop(self, rows: Rows, block: Block, position: int) -> None:
        one = self.instructions[position]
        ends = rows.find(one.src[0]).numbers
        if (ends != ends.flat[0]).any():
            raise Unknown("how often a loop runs is not the same for all threads")
        count, carrier = int(ends.flat[0]), find_carrier(one.dtype)
        if position not in self.one_by_one:
            self._fork(rows, block, position, np.arange(count, dtype=carrier))
            return
        for number in range(count):
            rows.values[position] = Lanes(np.full((1, 1), number, carrier))
            self.execute(rows, block)

    def _fork(self, rows: Rows, block: Block, loop: int, numbers: Numbers) -> None:
        """Runs the steps of a loop at once: each row becomes one for each step."""
        total, most = rows.count * len(numbers), self._find_most(block)
        used, stored = find_accessed(self.program, block)
        for start in range(0, total, most):
            flat = np.arange(start, min(start + most, total))
            parents, steps = np.divmod(flat, len(numbers))
            active = None if rows.active is None else rows.active[parents]
            ids = self._number(len(flat))
            child = Rows(ids, rows.threads[parents], rows.groups[parents], rows, parents, loop, active)
            child.values[loop] = Lanes(numbers[steps][:, None])
            for memory in used & rows.registers.keys():
                child.registers[memory] = rows.registers[memory].fork(parents, loop if memory in stored else None)
            try:
                self.execute(child, block)
            except Disorder as found:
                raise Disorder(loop if found.loop is None else found.loop) from None
            for memory in stored & rows.registers.keys():
                rows.registers[memory].join(child.registers[memory], loop)
        self._come_back(rows)

    def _come_back(self, rows: Rows) -> None:
        """What the steps of a loop did is over, where nothing else runs beside it."""
        if rows.before is None and rows.count == 1:
            rows.ids = self._number(1)
            for held in self.memories.values():
                if held.watch is not None:
                    held.watch.forget(int(rows.ids[0]))

    # *** one instruction

    def step(self, rows: Rows, position: int) -> None:
        """Executes an instruction for all rows."""
        one = self.instructions[position]
        self.steps += 1
        if one.op in FUNCTIONS:
            value = self._calculate(rows, one)
        else:
            found = getattr(self, f"_do_{one.op}")(rows, one)
            if found is None:
                return
            value = found
        self.elements += value.numbers.size
        if self.steps > MOST_STEPS or self.elements > MOST_ELEMENTS:
            raise Unknown(f"it is too long to be evaluated: more than {self.steps:,} steps")
        rows.values[position] = value

    def _calculate(self, rows: Rows, one: Instruction) -> Lanes:
        operands = [rows.find(source) for source in one.src]
        carrier = find_carrier(one.dtype)
        numbers = [
            value.numbers.astype(carrier, copy=False) if self._is_carried(one, source) else value.numbers
            for value, source in zip(operands, one.src, strict=True)
        ]
        found, undefined = compute(one.op, numbers)
        if is_float(one.dtype):
            found = round_floats(found, one.dtype)
        value = Lanes(np.asarray(found, carrier)).mark(undefined)
        if all(operand.undefined is None for operand in operands):
            return value
        if one.op == "where":
            return value.mark(choose_undefined(*operands))
        for operand in operands:
            value = value.mark(operand.undefined)
        return value

    def _is_carried(self, one: Instruction, source: int) -> bool:
        """Tells whether an operand has the dtype that the op is computed in: comparisons and conditions have others."""
        return self.instructions[source].dtype == one.dtype and one.op not in {"shl", "shr"}

    def _do_const(self, rows: Rows, one: Instruction) -> Lanes:
        with np.errstate(over="ignore"):
            number = np.asarray(fit(one.arg, one.dtype))
            if is_float(one.dtype):
                number = round_floats(number, one.dtype)
        return Lanes(np.full((1, one.lanes), number, find_carrier(one.dtype)))

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
        values = [rows.find(source) for source in one.src]
        count = max(len(value.numbers) for value in values)
        numbers = [np.broadcast_to(value.numbers, (count, value.numbers.shape[1])) for value in values]
        packed = Lanes(np.concatenate(numbers, axis=1).astype(find_carrier(one.dtype), copy=False))
        if all(value.undefined is None for value in values):
            return packed
        masks = [
            np.broadcast_to(np.False_ if value.undefined is None else value.undefined, part.shape)
            for value, part in zip(values, numbers, strict=True)
        ]
        return packed.mark(np.concatenate(masks, axis=1))

    def _do_cast(self, rows: Rows, one: Instruction) -> Lanes:
        value = rows.find(one.src[0])
        numbers, undefined = cast(value.numbers, self.instructions[one.src[0]].dtype, one.dtype)
        return Lanes(numbers).mark(undefined).mark(value.undefined)

    def _do_bitcast(self, rows: Rows, one: Instruction) -> Lanes:
        value = rows.find(one.src[0])
        numbers = bitcast(value.numbers, self.instructions[one.src[0]].dtype, one.dtype)
        if value.undefined is None:
            return Lanes(numbers)
        return Lanes(numbers).mark(value.undefined.any(axis=1, keepdims=True))

    # *** memory

    def _do_load(self, rows: Rows, one: Instruction) -> Lanes:
        place, *rest = (rows.find(source) for source in one.src)
        places = place.numbers.astype(np.int64) + np.arange(one.lanes)
        is_read = find_true(rest[1:])
        if one.arg in rows.registers:
            numbers, undefined = rows.registers[one.arg].load(places)
        else:
            numbers, undefined = self._load(rows, one.arg, places, is_read)
        value = Lanes(numbers).mark(undefined).mark(place.undefined)
        if not rest:
            return value
        other, gate = rest
        chosen = Lanes(np.where(gate.numbers, value.numbers, other.numbers))
        return chosen.mark(choose_undefined(gate, value, other))

    def _load(self, rows: Rows, number: int, places: Whole, is_read: Mask) -> tuple[Numbers, Mask | None]:
        memory, held = self.program.memories[number], self.memories[number]
        size, offset = held.numbers.size, 0
        if memory.space == "group":
            size, offset = memory.size, rows.groups[:, None] * memory.size
        outside = (places < 0) | (places >= size)
        inside = np.where(outside, 0, places) + offset
        if not size:
            return np.zeros(places.shape, held.numbers.dtype), outside
        if held.watch is not None:
            shape = np.broadcast_shapes(inside.shape, (rows.count, 1))
            chosen = np.broadcast_to(is_read & ~outside, shape) & self._find_active(rows)
            read = np.broadcast_to(inside, shape)[chosen]
            self._watch(memory.space, held.watch.load, read, rows, chosen)
        undefined = held.undefined[inside] | outside
        return held.numbers[inside], undefined

    def _do_store(self, rows: Rows, one: Instruction) -> None:
        place, value, *gates = (rows.find(source) for source in one.src)
        places = place.numbers.astype(np.int64) + np.arange(one.lanes)
        shape = (rows.count, one.lanes)
        chosen = np.broadcast_to(find_true(gates) & self._find_active(rows), shape)
        for address in (place, *gates):
            if address.undefined is not None and np.broadcast_to(address.undefined, shape)[chosen].any():
                raise Unknown("where it writes is undefined")
        undefined = np.broadcast_to(np.False_ if value.undefined is None else value.undefined, shape)
        if one.arg in rows.registers:
            rows.registers[one.arg].store(places, value.numbers, undefined, chosen)
            return
        memory, held = self.program.memories[one.arg], self.memories[one.arg]
        size, offset = held.numbers.size, np.zeros((1, 1), np.int64)
        if memory.space == "group":
            size, offset = memory.size, rows.groups[:, None] * memory.size
        if (chosen & ((places < 0) | (places >= size))).any():
            raise LeavesMemory("it writes outside of its buffer")
        written = np.broadcast_to(places + offset, shape)[chosen]
        assert held.watch is not None
        self._watch(memory.space, held.watch.store, written, rows, chosen)
        held.numbers[written] = np.broadcast_to(value.numbers, shape)[chosen]
        held.undefined[written] = undefined[chosen]

    def _watch(self, space: str, note, places: Whole, rows: Rows, chosen: Mask) -> None:
        """Notes who uses memory: of that of a group its threads, whatever steps of them run at once."""
        if space != "group":
            note(places, np.broadcast_to(rows.ids[:, None], chosen.shape)[chosen])
            return
        try:
            note(places, np.broadcast_to(rows.threads[:, None], chosen.shape)[chosen])
        except Disorder:
            raise Unknown("its threads use the memory of their group without waiting for each other") from None

    def _find_active(self, rows: Rows) -> Mask:
        if rows.active is None:
            return np.ones((1, 1), np.bool_)
        return rows.active[:, None]


def find_true(gates: Sequence[Lanes]) -> Mask:
    """Returns where a gate holds, everywhere where there is none."""
    if not gates:
        return np.ones((1, 1), np.bool_)
    return gates[0].numbers.astype(np.bool_)


def choose_undefined(condition: Lanes, one: Lanes, other: Lanes) -> Mask | None:
    """Returns what is undefined of a choice: what it is chosen by, or what is chosen."""
    found = None
    for value, wanted in ((one, True), (other, False)):
        if value.undefined is not None:
            own = value.undefined & (condition.numbers == wanted)
            found = own if found is None else found | own
    if condition.undefined is not None:
        found = condition.undefined if found is None else found | condition.undefined
    return found


def fit(number: int | float | bool, dtype: str) -> int | float | bool:
    """Returns a number as one that the dtype has: integers wrap around."""
    if is_float(dtype) or dtype == "bool":
        return number
    limits = np.iinfo(find_carrier(dtype))
    return (int(number) - limits.min) % (1 << limits.bits) + limits.min
