"""Renders kernels for a target, without its device or compiler, and counts what they execute. Runs in the child."""

from __future__ import annotations

import functools
import math
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any

from vmapdbg.child.listen.releases import first_element
from vmapdbg.child.listen.rendering import CompiledKernel, compile_kernel, make_renderer
from vmapdbg.child.program.linear import LinearProgram, MemoryAccess, ProgramLoop, Step, Value
from vmapdbg.child.program.linear_reader import read_linear

UOp = Any


def target_limit(target: str) -> int | None:
    """Returns the bytes of LOCAL memory that a group of threads has, None if the target has no such memory."""
    renderer = make_renderer(target)
    if not (renderer.has_shared and renderer.has_local):
        return None
    return renderer.shared_max


@dataclass(frozen=True)
class Work:
    """The work of one launch: arithmetic ops, bytes moved to and from GLOBAL memory, bytes of LOCAL memory, threads."""

    ops: int
    bytes: int
    local_bytes: int
    threads: int


@dataclass(frozen=True)
class RenderedProgram:
    """A rendered kernel, its linear program and the work of one launch of it."""

    compiled: CompiledKernel
    linear: LinearProgram
    work: Work


def render_program(ast: UOp, target: str) -> RenderedProgram:
    """Returns the program of a kernel's AST: its source, launch dimensions, linear program, and what it does.

    Raises what tinygrad raises for a kernel that the target cannot have.
    """
    key = ast.key, target
    if key not in _programs:
        compiled = compile_kernel(ast, target)
        linear = read_linear(compiled.uops)
        _programs[key] = RenderedProgram(compiled, linear, count_work(linear))
    return _programs[key]


_programs: dict[tuple[bytes, str], RenderedProgram] = {}


def forget_programs(most: int) -> None:
    """Drops the kept programs if there are more than `most`."""
    if len(_programs) > most:
        _programs.clear()


def count_work(program: LinearProgram) -> Work:
    """Counts a linear program: each op times the trip counts of the loops around it times its threads.

    Arithmetic on addresses and gates is not counted. A trip count that depends on a variable is taken at its
    maximum. Both branches of an IF count.
    """
    # from 0.13 on the CPU's threads are a variable
    counted = [thread for thread in program.threads if thread.op == "thread" or thread.name == "core_id"]
    threads = math.prod(thread.trips for thread in counted)
    addresses = find_address_arithmetic(program)
    ops = moved = 0
    for what, times in repeat_steps(program):
        if isinstance(what, Value):
            ops += times * what.operations * (what not in addresses)
        elif what.buffer.space in {"global", "image"}:
            moved += times * what.value.lanes * what.value.itemsize
    local = sum(buffer.size * buffer.itemsize for buffer in program.buffers if buffer.space == "local")
    return Work(ops * threads, moved * threads, local, threads)


def count_steps(program: LinearProgram, fixed: Container[UOp] = ()) -> int:
    """Returns how many ops a program runs in all its threads; of loops and threads in `fixed` one step runs."""
    threads = math.prod(thread.trips for thread in program.threads if thread.uop not in fixed)
    return threads * sum(times for _, times in repeat_steps(program, fixed))


def repeat_steps(program: LinearProgram, fixed: Container[UOp] = ()) -> Iterator[tuple[Value | MemoryAccess, int]]:
    """Yields each value and access of a program with how often one thread computes it."""
    repeated = [1]
    for step, what in program.steps:
        if step is Step.OPEN and isinstance(what, ProgramLoop):
            repeated.append(repeated[-1] * (1 if what.uop in fixed else what.trips))
        elif step is Step.CLOSE:
            repeated.pop()
        else:
            yield what, repeated[-1]


def find_address_arithmetic(program: LinearProgram) -> set[Value]:
    """Returns the values that addresses and gates are computed from, down to loads."""
    found: set[Value] = set()
    todo = list(program.addressing)
    while todo:
        value = todo.pop()
        if value not in found and value.op != "load":
            found.add(value)
            todo += value.sources
    return found


@functools.cache
def op_weight(op: Any, dtype: Any, target: str) -> int:
    """Returns how many ops the target executes for one `op` of the tensor graph.

    An op that the target has counts as one. For any other op (EXP2 on the CPU is a polynomial) a kernel of that op
    alone is rendered and counted.
    """
    from tinygrad.helpers import Context

    if op in make_renderer(target).code_for_op or op.name == "MULACC":
        return 1
    try:
        with Context(NOOPT=1):
            compiled = compile_kernel(_kernel_of(op, dtype), target)
    except Exception:  # a dtype that the target does not have: the op cannot be measured alone
        return 1
    return max(1, count_work(read_linear(compiled.uops)).ops)


def _kernel_of(op: Any, dtype: Any) -> UOp:
    from tinygrad.uop import GroupOp
    from tinygrad.uop.ops import KernelInfo, UOp

    groups = (GroupOp.Unary, GroupOp.Binary, GroupOp.Ternary)
    arity = next(count for count, group in enumerate(groups, 1) if op in group)
    inputs = [first_element(UOp.placeholder((1,), dtype, slot), False) for slot in range(1, arity + 1)]
    value = inputs[0].alu(op, *inputs[1:])
    output = UOp.placeholder((1,), value.dtype, 0)
    return first_element(output, True).store(value).sink(arg=KernelInfo())
