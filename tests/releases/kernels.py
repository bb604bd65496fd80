"""Prints, as JSON, what the neutral view says of the kernels of programs and what running it by hand stores (`said`).
Also whether the tool computes the same of the ASTs and the linear programs as the PYTHON device of tinygrad (`ran`).

python kernels.py TARGET PROGRAM...
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from typing import Any

import numpy as np
from observed import compile_kernels
from python_device import run_program

from vmapdbg.model.ops import ARITHMETIC

OPS = {"cast": int} | {op.name: op.on_integers for op in ARITHMETIC.values() if op.on_integers is not None}


def evaluate(value: Any, steps: dict[Any, int]) -> int:
    if value in steps:
        return steps[value]
    if value.constant is not None:
        return value.constant
    return OPS[value.op](*(evaluate(s, steps) for s in value.sources))


def reached(access: Any) -> list[int]:
    """Every element that an access touches, gone through step by step."""
    found = []
    for step in itertools.product(*(range(loop.trips) for loop in access.loops)):
        steps = dict(zip(access.loops, step, strict=True))
        if access.gate is None or evaluate(access.gate, steps):
            first = evaluate(access.index, steps)
            found += range(first, first + access.width)
    return found


def is_decided(access: Any) -> bool:
    """Not where the data says what is read: an index that is loaded itself."""
    parts = [part for root in (access.index, access.gate) if root is not None for part in walk(root)]
    return not any(source.op == "load" for part in parts for source in (part, *part.sources))


def describe(compiled: Any) -> dict[str, Any]:
    from vmapdbg.child.program.linear_reader import read_linear

    program = read_linear(compiled.uops)
    stores = [a for a in program.accesses if a.is_store and a.buffer.space == "global"]
    written = {a.buffer.slot: set[int]() for a in stores}
    for access in stores:
        written[access.buffer.slot] |= set(reached(access))
    loads = [a for a in program.accesses if not a.is_store and a.buffer.space == "global"]
    return {
        "sizes": {b.slot: b.size for b in program.buffers if b.space == "global"},
        "written": {slot: [len(found), min(found), max(found)] for slot, found in written.items()},
        "read": sorted({a.buffer.slot for a in loads}),
        "outside": [
            a.buffer.name for a in loads if is_decided(a) and any(not 0 <= i < a.buffer.size for i in reached(a))
        ],
        "open": [loop.name for loop in program.open_loops],
        "outs": list(compiled.outs),
        "ins": list(compiled.ins),
        "trips": math.prod(loop.trips for loop in (*program.loops, *program.threads)),
    }


def walk(value: Any) -> list[Any]:
    if value.op == "load":
        return []
    return [value, *(part for source in value.sources for part in walk(source))]


MOST_TRIPS = 20_000
"""The PYTHON device runs no longer program."""


def compare(ast: Any, uops: Any, trips: int) -> dict[str, Any]:
    from vmapdbg.child.program.interpret import Interpreter, run_kernel
    from vmapdbg.child.program.linear_reader import read_memories
    from vmapdbg.reference.arithmetic import load
    from vmapdbg.values.numbers import Array, decode, encode

    arguments: dict[int, Array] = {}
    for buffer in read_memories(uops):
        if buffer.space == "global":
            numbers = np.random.default_rng(buffer.slot).integers(0, 4, buffer.size)
            arguments[buffer.slot] = encode(numbers, buffer.dtype)
    contents = {number: load(array) for number, array in arguments.items()}
    by_ast = run_kernel(ast, 0, {}, contents)
    run = Interpreter(contents, {})
    run.text = uops
    by_program = run.run_strictly(uops[-1], 0, np.ones(by_ast.size, np.bool_))
    said = {"alike": bool(np.allclose(by_ast, by_program, rtol=1e-3, equal_nan=True)), "whole": None}
    if trips < MOST_TRIPS:
        memories = {number: bytearray(array.data) for number, array in arguments.items()}
        run_program(uops, {}, memories)
        right = decode(Array(bytes(memories[0]), arguments[0].dtype, arguments[0].shape))
        said["whole"] = bool(np.allclose(by_program, right, rtol=1e-3, equal_nan=True))
    return said


if __name__ == "__main__":
    kernels = compile_kernels(sys.argv[1], sys.argv[2:])
    found = [(name, ast, made.uops, describe(made)) for name, ast, made in kernels]
    print(
        json.dumps(
            [{"of": name, "said": said, "ran": compare(ast, uops, said["trips"])} for name, ast, uops, said in found]
        )
    )
