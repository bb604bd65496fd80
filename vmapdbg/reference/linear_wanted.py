"""Which steps of a linear program write some elements of an argument: only these need to run to know what is there."""

from __future__ import annotations

import numpy as np

from vmapdbg.reference.linear import Block, Instruction, LinearProgram, nest
from vmapdbg.reference.linear_memory import Whole
from vmapdbg.reference.linear_plan import find_loaded, find_needed, keep_parts
from vmapdbg.reference.linear_rows import Rows
from vmapdbg.reference.run_linear import NO_STEPS, Run, Steps
from vmapdbg.reference.value import Mask


def find_steps(program: LinearProgram, argument: int, size: int, places: Whole) -> Steps | None:
    """Returns which steps of its loops and threads write these elements of an argument of `size` elements, as far as
    they stand around its stores. None where that depends on what the program reads. Raises Unknown."""
    written = [number for number, memory in enumerate(program.memories) if memory.argument == argument]
    if not find_loaded(program).isdisjoint(written):
        return None
    stores = [number for number, one in enumerate(program.instructions) if one.op == "store" and one.arg in written]
    addresses = [program.instructions[store].src[0] for store in stores]
    loops = [one.src[0] for one in program.instructions if one.op == "loop"]
    needed = find_needed(program, [*addresses, *loops])
    if any(program.instructions[position].op == "load" for position in needed):
        return None
    wanted = np.zeros(size, np.bool_)
    wanted[places] = True
    run = _Finder(program.instructions, keep_parts(nest(program.instructions), {*needed, *stores}), wanted)
    run.run()
    return {position: np.array(sorted(found), np.int64) for position, found in run.found.items()}


class _Finder(Run):
    """Runs what addresses are made of, and notes at which steps they are those of elements that are `wanted`."""

    def __init__(self, instructions: list[Instruction], tree: Block, wanted: Mask):
        super().__init__(LinearProgram(instructions), tree, {}, set(), NO_STEPS)
        self.wanted = wanted
        # loop or thread, by its position -> steps
        self.found: dict[int, set[int]] = {}

    def _run_condition(self, rows: Rows, block: Block, position: int) -> None:
        """What is written under a condition may be written."""
        self.execute(rows, block)

    def _do_store(self, rows: Rows, one: Instruction) -> None:
        places = rows.find(one.src[0]).numbers.astype(np.int64) + np.arange(one.lanes)
        inside = (places >= 0) & (places < self.wanted.size)
        hits = (self.wanted[np.where(inside, places, 0)] & inside).any(axis=1)
        chosen = np.flatnonzero(np.broadcast_to(hits, rows.count))
        around: Rows | None = rows
        while around is not None:
            for position in around.counters:
                steps = around.values[position].take(chosen).numbers
                self.found.setdefault(position, set()).update(steps.ravel().tolist())
            if around.parents is not None:
                chosen = np.unique(around.parents[chosen])
            around = around.before
