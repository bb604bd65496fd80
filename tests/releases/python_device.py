"""Runs a linear program by tinygrad's PYTHON device, op after op: what the tool computes by numpy must be the same."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

UOp = Any


def run_program(uops: Sequence[UOp], variables: Mapping[str, int], memories: Mapping[int, bytearray]) -> None:
    """Runs a linear program on `memories` (by argument)."""
    from vmapdbg.child.program import linear_reader

    buffers = linear_reader.read_memories(uops)
    arguments = [memories[buffer.slot] for buffer in buffers if buffer.space == "global"]
    sizes = {"g": [1, 1, 1], "l": [1, 1, 1]}
    for u in uops:
        if u.op.name == "SPECIAL":
            size = linear_reader.find_constant(u.src[0])
            kind, axis = str(u.arg)[0], int(str(u.arg)[-1])
            sizes[kind][axis] = int(size)
    program = make_program(drop_order(uops))
    for values in list_values([u for u in uops if linear_reader.is_variable(u)], variables):
        views = list(map(memoryview, arguments))
        program(*views, global_size=tuple(sizes["g"]), local_size=tuple(sizes["l"]), vals=values)


def list_values(declared: Sequence[UOp], variables: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
    """Yields the values of the variables, in their order, once for each thread of the CPU."""
    from vmapdbg.child.program.linear import CORE
    from vmapdbg.child.program.linear_reader import loop_name

    names = {loop_name(u): u for u in declared}
    yield from itertools.product(
        *(range(int(u.vmax) + 1) if name == CORE else [variables[name]] for name, u in names.items())
    )


def drop_order(uops: Sequence[UOp]) -> list[UOp]:
    """Returns a program without what loops and AFTERs wait for: it may be a loop that has ended, which has no value."""
    made: dict[UOp, UOp] = {}
    # equal ops are one op: the tag keeps ops apart that differ in what they wait for
    for tag, u in enumerate(uops):
        is_order = u.op.name in {"AFTER", "RANGE"}
        src = tuple(made.get(source, source) for source in u.src[: 1 if is_order else None])
        made[u] = u.replace(src=src, tag=tag) if is_order else u.replace(src=src)
    return list(made.values())


def make_program(uops: list[UOp]) -> Any:
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
