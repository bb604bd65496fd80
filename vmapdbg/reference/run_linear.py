"""Runs a linear program by numpy, as it is written: the steps of a loop that do not depend on each other at once, each
a row, those of others one after the other.

Whether steps depend on each other is seen while they run (`linear_memory`): then all begins again, with that loop step
after step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from vmapdbg.reference.graph import Unknown
from vmapdbg.reference.kinds import find_carrier
from vmapdbg.reference.linear import Block, LinearProgram, nest
from vmapdbg.reference.linear_machine import Machine
from vmapdbg.reference.linear_memory import Contents, Disorder, Registers, Watch, Whole
from vmapdbg.reference.linear_plan import find_accessed, find_carrying, split_body
from vmapdbg.reference.linear_rows import Rows
from vmapdbg.reference.linear_values import Lanes
from vmapdbg.reference.run_kernel import Written
from vmapdbg.values.numbers import Array, Numbers

MOST_AT_ONCE = 1 << 23
"""The most numbers that are held at a time."""
_MOST_ROWS = 1 << 16

Steps = Mapping[int, Whole]
"""Loop or thread, by its position -> those of its steps that run; of others all do, and all threads of a group."""
NO_STEPS: Steps = MappingProxyType({})


def run_linear(program: LinearProgram, contents: Mapping[int, Array], kept: Steps = NO_STEPS) -> dict[int, Written]:
    """Returns what each argument that is written holds afterwards, by its number.

    `contents` has what the arguments hold before, flat. With `kept` only some steps of loops run, as far as these do
    not depend on others. Raises Unknown where it cannot be said, with the reason, and LeavesMemory where the program
    writes outside of its memory.
    """
    tree = nest(program.instructions)
    one_by_one = find_carrying(program, tree)
    while True:
        run = Run(program, tree, contents, one_by_one, kept)
        try:
            run.run()
        except Disorder as found:
            if found.loop is None:
                raise Unknown("its threads write to the same place, or read what another one writes") from None
            one_by_one.add(found.loop)
            continue
        return run.finish()


class Run(Machine):
    """One run of a program. `one_by_one` are the loops whose steps run one after the other."""

    def __init__(
        self, program: LinearProgram, tree: Block, contents: Mapping[int, Array], one_by_one: set[int], kept: Steps
    ):
        super().__init__(program, contents)
        self.tree, self.one_by_one, self.kept = tree, one_by_one, kept
        self._next_row = 0

    # *** threads

    def run(self) -> None:
        """Runs all threads, as many groups at a time as there is room for."""
        threads = [(position, one.arg) for position, one in enumerate(self.instructions) if one.op == "thread"]
        # the threads of a group stand together
        threads.sort(key=lambda one: one[1][0])
        counts = [count for _, (_, count) in threads]
        size = math.prod(count for _, (is_own, count) in threads if is_own)
        groups = np.arange(math.prod(counts) // size)
        for (position, (is_own, _)), values in zip(threads, _unravel(groups * size, counts), strict=True):
            if position in self.kept and not is_own:
                groups = groups[np.isin(values[groups], self.kept[position])]
        at_once = max(1, self._find_most(self.tree) // size)
        for start in range(0, len(groups), at_once):
            part = groups[start : start + at_once]
            numbers = (part[:, None] * size + np.arange(size)).ravel()
            rows = Rows(self._number(len(numbers)), numbers, np.repeat(np.arange(len(part)), size))
            rows.counters = tuple(position for position, _ in threads)
            for position, values in zip(rows.counters, _unravel(numbers, counts), strict=True):
                carrier = find_carrier(self.instructions[position].dtype)
                rows.values[position] = Lanes(values.astype(carrier)[:, None])
            self._begin(rows, len(part))
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
        chosen = np.broadcast_to(condition.numbers[:, 0].astype(np.bool_), rows.count)
        rows.active = chosen if before is None else chosen & before
        if rows.active.any():
            self.execute(rows, block)
        rows.active = before

    def _run_loop(self, rows: Rows, block: Block, position: int) -> None:
        one = self.instructions[position]
        ends = rows.find(one.src[0]).numbers
        if (ends != ends.flat[0]).any():
            raise Unknown("how often a loop runs is not the same for all threads")
        numbers = np.arange(int(ends.flat[0]), dtype=find_carrier(one.dtype))
        if position in self.one_by_one:
            self._run_one_by_one(rows, block, position, numbers)
        else:
            self._run_at_once(rows, block, position, self.kept.get(position, numbers).astype(numbers.dtype))

    def _run_at_once(self, rows: Rows, block: Block, loop: int, numbers: Numbers) -> None:
        """Runs the steps of a loop at once: each row becomes one for each step."""
        total, most = rows.count * len(numbers), self._find_most(block)
        used, stored = find_accessed(self.program, block)
        own = rows.registers.keys()
        for start in range(0, total, most):
            flat = np.arange(start, min(start + most, total))
            parents, steps = np.divmod(flat, len(numbers))
            child = rows.fork(self._number(len(flat)), parents, loop, numbers[steps])
            for memory in used & own:
                child.registers[memory] = rows.registers[memory].fork(parents, loop if memory in stored else None)
            try:
                self.execute(child, block)
            except Disorder as found:
                raise Disorder(loop if found.loop is None else found.loop) from None
            for memory in stored & own:
                rows.registers[memory].join(child.registers[memory], loop)
        if loop in self.kept:
            # what other steps store is not known
            for memory in stored & own:
                rows.registers[memory].held[:] = loop
        self._come_back(rows)

    def _come_back(self, rows: Rows) -> None:
        """What the steps of a loop did is over, where nothing else runs beside it."""
        if rows.before is None and rows.count == 1:
            rows.ids = self._number(1)
            for held in self.memories.values():
                if held.watch is not None:
                    held.watch.forget(int(rows.ids[0]))

    def _run_one_by_one(self, rows: Rows, block: Block, loop: int, numbers: Numbers) -> None:
        """Runs the steps of a loop one after the other. What does not depend on what they carry is computed for many
        of them at once."""
        split = split_body(self.program, block)
        most = 1
        if split is not None:
            most = max(1, self._find_most(block) // rows.count)
        if split is None or most == 1:
            for number in numbers:
                rows.values[loop] = Lanes(np.full((1, 1), number))
                self.execute(rows, block)
            return
        for start in range(0, len(numbers), most):
            part = numbers[start : start + most]
            # the rows of a step stand together
            parents = np.tile(np.arange(rows.count), len(part))
            child = rows.fork(rows.ids[parents], parents, loop, np.repeat(part, rows.count))
            self.step_all(child, split.free)
            for index, number in enumerate(part):
                rows.values[loop] = Lanes(np.full((1, 1), number))
                own = slice(index * rows.count, (index + 1) * rows.count)
                rows.values.update({position: child.values[position].take(own) for position in split.passed})
                self.step_all(rows, split.bound)


def _unravel(numbers: Whole, counts: Sequence[int]) -> tuple[Whole, ...]:
    """Returns the numbers of threads as one number for each of their axes."""
    return np.unravel_index(numbers, counts) if counts else ()
