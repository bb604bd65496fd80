"""Runs linear programs by tinygrad's PYTHON program, op after op, for any release from 0.12.0 on. Runs in the child.

One process keeps a program and another runs it, which has no overlay: only what runs it imports tinygrad.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vmapdbg.child.program.linear import UOp, find_constant, find_space, is_memory, is_variable, loop_name
from vmapdbg.model.wording import first_line

_CORE = "core_id"
"""The variable that counts the threads of the CPU, from 0.13 on."""


class CannotRun(Exception):
    """A linear program cannot be run; the message says why, as a sentence."""


class LeavesMemory(Exception):
    """A linear program writes outside of its buffers."""


def keep_program(uops: Sequence[UOp], variables: Mapping[str, int]) -> bytes:
    """Returns a linear program and the values of its variables in a form that another process can load."""
    import tinygrad

    folder = str(Path(inspect.getfile(tinygrad)).parent.parent)
    # a list in order: the sources of each op are pickled before it, so that nothing recurses
    return pickle.dumps((folder, dict(variables), pickle.dumps(list(uops))))


def load_program(data: bytes) -> tuple[list[UOp], dict[str, int]]:
    """Returns the linear UOps and the values of their variables. Raises CannotRun."""
    folder, variables, uops = pickle.loads(data)
    try:
        import_tinygrad(folder)
        return pickle.loads(uops), variables
    except Exception as error:  # an older Python, or a different tinygrad
        raise CannotRun(f"its linear program cannot be loaded: {type(error).__name__}: {error}") from error


def import_tinygrad(folder: str) -> None:
    """Imports the tinygrad in a folder, unless one is imported already."""
    if "tinygrad" in sys.modules:
        return
    sys.path.insert(0, folder)
    try:
        importlib.import_module("tinygrad")
    finally:
        sys.path.remove(folder)


def run_program(
    uops: Sequence[UOp],
    variables: Mapping[str, int],
    memories: Mapping[int, bytearray],
    fixed: Mapping[UOp, int] = {},
) -> None:
    """Runs a linear program on its arguments, which `memories` has by their numbers. `fixed` maps loops and threads to
    the only step that runs. Raises CannotRun and LeavesMemory."""
    if any(is_memory(u) and find_space(u) == "image" for u in uops):
        raise CannotRun("its linear program reads or writes an image")
    arguments = [memories[_find_slot(u)] for u in uops if is_memory(u) and find_space(u) == "global"]
    sizes = {"g": [1, 1, 1], "l": [1, 1, 1]}
    for u in uops:
        if u.op.name == "SPECIAL" and u not in fixed:
            kind, axis = str(u.arg)[0], int(str(u.arg)[-1])
            sizes[kind][axis] = _find_size(u)
    program = _make_program(_fix_loops(uops, fixed))
    for values in _list_values([u for u in uops if is_variable(u)], variables, fixed):
        views = [memoryview(memory) for memory in arguments]
        try:
            program(*views, global_size=tuple(sizes["g"]), local_size=tuple(sizes["l"]), vals=values)
        except IndexError as error:
            if "store out of bounds" in str(error):
                raise LeavesMemory("it writes outside of its buffer") from error
            raise CannotRun("its linear program reads outside of its buffers") from error
        except Exception as error:  # an op or a dtype that this release does not run
            reason = f"{type(error).__name__}: {first_line(error)}".rstrip(": ")
            raise CannotRun(f"tinygrad's PYTHON device cannot run its linear program: {reason}") from error


def _find_slot(memory: UOp) -> int:
    return memory.arg if isinstance(memory.arg, int) else memory.arg.slot


def _find_size(thread: UOp) -> int:
    size = find_constant(thread.src[0])
    if size is None:
        raise CannotRun("how many threads it has depends on a variable")
    return int(size)


def _list_values(
    declared: Sequence[UOp], variables: Mapping[str, int], fixed: Mapping[UOp, int]
) -> Iterator[tuple[int, ...]]:
    """Yields the values of the variables, in their order, once for each thread of the CPU."""
    choices: list[Sequence[int]] = []
    for u in declared:
        name = loop_name(u)
        if u in fixed:
            choices.append([fixed[u]])
        elif name == _CORE:
            choices.append(range(int(u.vmax) + 1))
        elif name in variables:
            choices.append([variables[name]])
        else:
            raise CannotRun(f"its variable {name} has no value")
    return itertools.product(*choices)


def _fix_loops(uops: Sequence[UOp], fixed: Mapping[UOp, int]) -> list[UOp]:
    """Returns a program in which loops and threads are replaced by one of their steps."""
    from tinygrad.uop import Ops
    from tinygrad.uop.ops import UOp as TinygradUOp

    made: dict[UOp, UOp] = {}
    # equal ops are one op: the tag keeps ops apart that differ in what they wait for
    for tag, u in enumerate(uops):
        if u in fixed and not is_variable(u):
            made[u] = TinygradUOp(Ops.CONST, u.dtype, (), fixed[u])
        elif u.op.name == "END" and u.src[1] in fixed:
            made[u] = TinygradUOp(Ops.NOOP, u.dtype, tag=tag)
        elif u.op.name in {"AFTER", "RANGE"}:
            # what they wait for may be a loop that has ended, which has no value
            made[u] = u.replace(src=tuple(made.get(source, source) for source in u.src[:1]), tag=tag)
        else:
            made[u] = u.replace(src=tuple(made.get(source, source) for source in u.src))
    return list(made.values())


def _make_program(uops: list[UOp]) -> Any:
    """Returns tinygrad's PYTHON program of linear UOps."""
    from tinygrad.runtime.ops_python import PythonCompiler, PythonProgram, PythonRenderer
    from tinygrad.uop import Ops
    from tinygrad.uop.ops import python_alu

    # renderers have it, the PYTHON device has not
    python_alu.setdefault(Ops.FDIV, lambda x, y: x * python_alu[Ops.RECIPROCAL](y))
    # its constructor only chooses tensor cores
    renderer = object.__new__(PythonRenderer)
    lib = PythonCompiler().compile(renderer.render(uops))
    make: Any = PythonProgram
    if "obj" in inspect.signature(PythonProgram.__init__).parameters:
        # 0.14 on
        return make(None, SimpleNamespace(lib=lib))
    return make("kernel", lib)
