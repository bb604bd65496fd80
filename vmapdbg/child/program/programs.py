"""Renders kernels for a target, without its device or compiler, counts what they execute, and runs them: tinygrad's
PYTHON program runs them op after op, from 0.12.0 on. One process keeps a program, and another without the overlay runs
it. Only what runs it imports tinygrad."""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import math
import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vmapdbg.child.listen.releases import first_element
from vmapdbg.child.listen.rendering import CompiledKernel, compile_kernel, make_renderer
from vmapdbg.child.program import linear_reader
from vmapdbg.child.program.linear import CORE, LinearProgram, ProgramLoop, UOp, walk
from vmapdbg.model.wording import first_line
from vmapdbg.reference.graph import Unknown


def target_limit(target: str) -> int | None:
    """Returns the bytes of LOCAL memory that a group of threads has, None if the target has no such memory."""
    renderer = make_renderer(target)
    if not (renderer.has_shared and renderer.has_local):
        return None
    return renderer.shared_max


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


def count_steps(program: LinearProgram) -> int:
    """Returns how many ops a program runs in all its threads."""
    around = [loops for _, loops in program.computed] + [access.loops for access in program.accesses]
    return sum(math.prod(loop.trips for loop in loops) for loops in around)


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


# *** running a linear program


class LeavesMemory(Exception):
    """A linear program writes outside of its buffers."""


class CannotRun(Unknown):
    """tinygrad's PYTHON device does not run a linear program."""


def keep_program(uops: Sequence[UOp], variables: Mapping[str, int]) -> bytes:
    """Returns a linear program and the values of its variables in a form that another process can load."""
    import tinygrad

    folder = str(Path(inspect.getfile(tinygrad)).parent.parent)
    # a list in order: the sources of each op are pickled before it, so that nothing recurses
    return pickle.dumps((folder, dict(variables), pickle.dumps(list(uops))))


def load_program(data: bytes) -> tuple[list[UOp], dict[str, int]]:
    """Returns the linear UOps and the values of their variables. Raises Unknown."""
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
        raise Unknown(f"its linear program cannot be loaded: {type(error).__name__}: {error}") from error


def run_program(uops: Sequence[UOp], variables: Mapping[str, int], memories: Mapping[int, bytearray]) -> None:
    """Runs a linear program on `memories` (by argument). Raises Unknown, CannotRun, LeavesMemory."""
    buffers = linear_reader.read_memories(uops)
    if any(buffer.space == "image" for buffer in buffers):
        raise Unknown("its linear program reads or writes an image")
    arguments = [memories[buffer.slot] for buffer in buffers if buffer.space == "global"]
    sizes = {"g": [1, 1, 1], "l": [1, 1, 1]}
    for u in uops:
        if u.op.name == "SPECIAL":
            size = linear_reader.find_constant(u.src[0])
            if size is None:
                raise Unknown("the number of its threads depends on a variable")
            kind, axis = str(u.arg)[0], int(str(u.arg)[-1])
            sizes[kind][axis] = int(size)
    program = _make_program(_drop_order(uops))
    for values in _list_values([u for u in uops if linear_reader.is_variable(u)], variables):
        views = list(map(memoryview, arguments))
        try:
            program(*views, global_size=tuple(sizes["g"]), local_size=tuple(sizes["l"]), vals=values)
        except IndexError as error:
            if "store out of bounds" in str(error):
                raise LeavesMemory("it writes outside of its buffer") from error
            raise Unknown("its linear program reads outside of its buffers") from error
        except Exception as error:  # an op or a dtype that this release does not run
            reason = f"{type(error).__name__}: {first_line(error)}".rstrip(": ")
            raise CannotRun(f"tinygrad's PYTHON device cannot run its linear program: {reason}") from error


def _list_values(declared: Sequence[UOp], variables: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
    """Yields the values of the variables, in their order, once for each thread of the CPU."""
    choices: list[Sequence[int]] = []
    for u in declared:
        name = linear_reader.loop_name(u)
        if name == CORE:
            choices.append(range(int(u.vmax) + 1))
        elif name in variables:
            choices.append([variables[name]])
        else:
            raise Unknown(f"its variable {name} has no value")
    return itertools.product(*choices)


def _drop_order(uops: Sequence[UOp]) -> list[UOp]:
    """Returns a program without what loops and AFTERs wait for: it may be a loop that has ended, which has no value."""
    made: dict[UOp, UOp] = {}
    # equal ops are one op: the tag keeps ops apart that differ in what they wait for
    for tag, u in enumerate(uops):
        is_order = u.op.name in {"AFTER", "RANGE"}
        src = tuple(made.get(source, source) for source in u.src[: 1 if is_order else None])
        made[u] = u.replace(src=src, tag=tag) if is_order else u.replace(src=src)
    return list(made.values())


def _make_program(uops: list[UOp]) -> Any:
    from tinygrad.runtime.ops_python import PythonCompiler, PythonProgram, PythonRenderer
    from tinygrad.uop import Ops
    from tinygrad.uop.ops import python_alu

    # renderers have it, the PYTHON device has not
    python_alu.setdefault(Ops.FDIV, lambda x, y: x * python_alu[Ops.RECIPROCAL](y))
    renderer = object.__new__(PythonRenderer)  # its constructor only chooses tensor cores
    lib = PythonCompiler().compile(renderer.render(uops))
    make: Any = PythonProgram
    if "obj" in inspect.signature(PythonProgram.__init__).parameters:
        return make(None, SimpleNamespace(lib=lib))  # 0.14 on
    return make("kernel", lib)
