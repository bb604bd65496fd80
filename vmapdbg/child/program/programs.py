"""Renders kernels for a target, without its device or compiler, and counts what they execute. One process keeps a
kernel, and another without the overlay loads it: only then that process imports tinygrad."""

import functools
import importlib
import inspect
import math
import pickle
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmapdbg.child.listen.releases import first_element
from vmapdbg.child.listen.rendering import CompiledKernel, compile_kernel, make_renderer
from vmapdbg.child.program import linear_reader
from vmapdbg.child.program.linear import LinearProgram, ProgramLoop, UOp, walk
from vmapdbg.reference.graph import Unknown


def target_limit(target: str) -> int | None:
    """Returns the bytes of LOCAL memory that a group of threads has, None if the target has no such memory."""
    renderer = make_renderer(target)
    return renderer.shared_max if renderer.has_shared and renderer.has_local else None


@dataclass(frozen=True)
class Work:
    """The work of one launch: arithmetic ops, bytes to and from GLOBAL memory, bytes of LOCAL memory, threads, elements
    of the widest access."""

    ops: int
    bytes: int
    local_bytes: int
    threads: int
    lanes: int


@dataclass(frozen=True)
class RenderedProgram:
    """A rendered kernel, its linear program and the work of one launch of it."""

    compiled: CompiledKernel
    linear: LinearProgram
    work: Work


def render_program(ast: UOp, target: str) -> RenderedProgram:
    """Returns the program of a kernel's AST. Raises what tinygrad raises for a kernel that the target cannot have."""
    key = ast.key, target
    if key not in _programs:
        compiled = compile_kernel(ast, target)
        linear = linear_reader.read_linear(compiled.uops)
        _programs[key] = RenderedProgram(compiled, linear, count_work(linear))
    return _programs[key]


_programs: dict[tuple[bytes, str], RenderedProgram] = {}


def forget_programs(most: int) -> None:
    """Drops the kept programs if there are more than `most`."""
    if len(_programs) > most:
        _programs.clear()


def count_work(program: LinearProgram) -> Work:
    """Counts a linear program: each op times the trip counts of the loops around it times its threads. Arithmetic on
    addresses and gates is not counted. A symbolic trip count is its maximum. Both branches of an IF count."""
    addresses = set(walk(program.addressing, ()))

    def count(loops: Iterable[ProgramLoop]) -> int:
        # a variable that launches go through has one value in a launch
        return math.prod(loop.trips for loop in loops if loop.op == "loop" or loop.is_thread)

    ops = sum(value.operations * count(loops) for value, loops in program.computed if value not in addresses)
    accesses = [access for access in program.accesses if access.buffer.space in {"global", "image"}]
    moved = sum(access.value.lanes * access.value.itemsize * count(access.loops) for access in accesses)
    lanes = max((access.value.lanes for access in accesses), default=1)
    local = sum(buffer.size * buffer.itemsize for buffer in program.buffers if buffer.space == "local")
    return Work(ops, moved, local, count(program.threads), lanes)


@functools.cache
def op_weight(op: Any, dtype: Any, target: str) -> int:
    """Returns how many ops `target` executes for `op`: 1 if it has the op, else by a kernel of it (EXP2 on CPU)."""
    from tinygrad.helpers import Context
    from tinygrad.uop import GroupOp
    from tinygrad.uop.ops import KernelInfo, UOp

    if op in make_renderer(target).code_for_op or op.name == "MULACC":
        return 1
    try:
        groups = (GroupOp.Unary, GroupOp.Binary, GroupOp.Ternary)
        arity = next(count for count, group in enumerate(groups, 1) if op in group)
        first, *others = [first_element(UOp.placeholder((1,), dtype, slot), False) for slot in range(1, arity + 1)]
        value = first.alu(op, *others)
        output = UOp.placeholder((1,), value.dtype, 0)
        kernel = first_element(output, True).store(value).sink(arg=KernelInfo())
        with Context(NOOPT=1):
            compiled = compile_kernel(kernel, target)
    except Exception:  # a dtype that the target does not have: the op cannot be measured alone
        return 1
    return max(1, count_work(linear_reader.read_linear(compiled.uops)).ops)


def keep_program(uops: Iterable[UOp], variables: Mapping[str, int]) -> bytes:
    """Returns a kernel, as UOps with its root last, and the values of its variables, for another process."""
    import tinygrad

    folder = str(Path(inspect.getfile(tinygrad)).parent.parent)
    # a list in order: the sources of each op are pickled before it, so that nothing recurses
    return pickle.dumps((folder, dict(variables), pickle.dumps(list(uops))))


def load_program(data: bytes) -> tuple[list[UOp], dict[str, int]]:
    """Returns the UOps of a kernel, its root last, and the values of its variables. Raises Unknown."""
    folder, variables, uops = pickle.loads(data)
    try:
        if "tinygrad" not in sys.modules:
            sys.path.insert(0, folder)
            try:
                importlib.import_module("tinygrad")
            finally:
                sys.path.remove(folder)
        return pickle.loads(uops), variables
    except Exception as error:  # an older Python, or a different tinygrad
        raise Unknown(f"it cannot be loaded: {type(error).__name__}: {error}") from error
