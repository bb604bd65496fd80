"""Looks for races of launches whose addresses are loaded or have variables: their numbers are computed by numpy from
what the arguments of the kernel really held. Runs in the process that compares."""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from vmapdbg.check.result import KernelRace
from vmapdbg.child.compare.reference_values import ReadContents
from vmapdbg.child.evidence.evidence import KernelRun, WrittenBuffer
from vmapdbg.child.program.interpret import Interpreter, Rows
from vmapdbg.child.program.linear import LinearProgram, ProgramLoop, Value, find_unknown, split_conditions, walk
from vmapdbg.child.program.linear_reader import read_linear
from vmapdbg.child.program.programs import load_program
from vmapdbg.child.program.races import find_races
from vmapdbg.child.program.reach import Integers
from vmapdbg.reference.arithmetic import load
from vmapdbg.reference.graph import Unknown
from vmapdbg.values.numbers import Array
from vmapdbg.values.tolerance import ITEMSIZE


def find_kernel_races(buffer: WrittenBuffer, read: ReadContents) -> tuple[list[KernelRace], str | None]:
    """Returns the races of the launch that wrote a buffer, and why it is unknown whether it has others. Raises
    Unknown."""
    run = buffer.run
    if run.linear is None:
        raise Unknown(run.linear_refused or "its linear program was not kept")
    uops, variables = load_program(read(run.linear))
    program = read_linear(uops)
    interpreter = Interpreter(_read_constant_arguments(program, run, read), variables)
    interpreter.text = uops
    decide_addresses(program, interpreter)
    races, unknown = find_races(program, "")
    name = uops[-1].arg.function_name
    return [KernelRace(name, buffer.kernel, buffer.node, race) for race in races], unknown


def _read_constant_arguments(program: LinearProgram, run: KernelRun, read: ReadContents) -> dict[int, Any]:
    """Returns the elements of the arguments that a kernel does not change, by their slots."""
    stored = {access.buffer for access in program.accesses if access.is_store}
    found: dict[int, Any] = {}
    for memory in program.buffers:
        if memory.space == "global" and memory not in stored and (name := run.arguments[memory.slot]) is not None:
            data = read(name)
            found[memory.slot] = load(Array(data, memory.dtype, (len(data) // ITEMSIZE[memory.dtype],)))
    return found


def decide_addresses(program: LinearProgram, run: Interpreter) -> None:
    """Changes a program: its loops run as often as in a launch, and loads and variables in addresses and gates have the
    numbers of the launch. Raises Unknown."""
    loops = [*program.loops, *program.threads]
    for loop in loops:
        loop.trips, loop.symbolic = run.count_trips(program.uops[loop]), False
    for access in program.accesses:
        for value in (access.index, *split_conditions(access.gate)):
            if find_unknown(walk([value], loops), loops) is not None:
                _compute_by(value, program, loops, run)


def _compute_by(value: Value, program: LinearProgram, loops: Sequence[ProgramLoop], run: Interpreter) -> None:
    """Lets numpy compute a value, by the steps of the loops that it depends on."""
    u = program.uops[value]
    needed = set(u.toposort())
    used = [loop for loop in loops if program.uops[loop] in needed]

    def compute(steps: Sequence[Integers]) -> Integers:
        columns = {program.uops[loop]: step[:, None] for loop, step in zip(used, steps, strict=True)}
        count = len(steps[0]) if steps else 1
        with contextlib.suppress(KeyError, ValueError, TypeError, IndexError, OverflowError):
            numbers = Rows(run, columns, count).get(u)[:, 0].astype(np.int64)
            if not run.reads_outside:
                return np.broadcast_to(numbers, count)
        raise Unknown("what its addresses load is not known")

    value.op, value.sources, value.compute = "known", tuple(used), compute
