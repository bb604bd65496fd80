"""Prints, as JSON, what the neutral view says of the kernels of programs and what running it by hand stores (`said`).
Also whether the linear programs compute what their ASTs say (`ran`): run whole by the PYTHON device of tinygrad, and
once for some elements with loops fixed to the steps that write them.

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


MOST_STEPS = 20_000
"""A longer program runs for some elements only."""


def compare(ast: Any, uops: Any) -> dict[str, Any]:
    from vmapdbg.child.compare import kernel_rerun
    from vmapdbg.child.evidence.evidence import KernelRun, WrittenBuffer
    from vmapdbg.child.evidence.loop_packer import pack_kernel
    from vmapdbg.child.program.linear_reader import read_linear, read_memories
    from vmapdbg.child.program.programs import count_steps, keep_program
    from vmapdbg.reference.arithmetic import load
    from vmapdbg.reference.kernels import run_kernel
    from vmapdbg.values.numbers import Array, decode, encode
    from vmapdbg.values.tolerance import make_tolerance

    buffers = [buffer for buffer in read_memories(uops) if buffer.space == "global"]
    arguments: dict[int, Array] = {}
    for buffer in buffers:
        numbers = np.random.default_rng(buffer.slot).integers(0, 4, buffer.size)
        arguments[buffer.slot] = encode(numbers, buffer.dtype)
    out = next(buffer for buffer in buffers if buffer.slot == 0)
    contents = {number: load(array) for number, array in arguments.items()}
    right = encode(run_kernel(pack_kernel(ast, {}), contents)[0].numbers, out.dtype)
    count = max(arguments) + 1
    names = tuple(str(slot) if slot in arguments else None for slot in range(count))
    blobs = {str(slot): array.data for slot, array in arguments.items()}
    run = KernelRun(None, names, None, "linear")
    written = WrittenBuffer(1, 0, (0,), ((0, out.size),), out.dtype, out.size, "got", run=run)
    tolerance = make_tolerance(out.dtype, 100, 100.0)
    # all of it is wrong, so that as a graph it is computed for some of it
    got = Array(bytes(byte ^ 0x55 for byte in right.data), out.dtype, right.shape)
    wrong = kernel_rerun.WrongBuffer(written, got, right, (), tolerance, lambda found: None, blobs.__getitem__)  # type: ignore[arg-type,return-value]
    said: dict[str, Any] = {"whole": True}
    expected, program = decode(right), keep_program(uops, {})
    for kind, most in (("whole", MOST_STEPS), ("parts", 0)):
        if kind == "whole" and count_steps(read_linear(uops)) > most:
            continue
        kernel_rerun.MOST_STEPS = most
        found, is_computed = kernel_rerun._run_linear(wrong, program)
        said[kind] = bool(np.allclose(found[is_computed], expected[is_computed], rtol=1e-3, equal_nan=True))
    said["computed"] = int(is_computed.sum())
    return said


if __name__ == "__main__":
    kernels = compile_kernels(sys.argv[1], sys.argv[2:])
    said = [{"of": name, "said": describe(made), "ran": compare(ast, made.uops)} for name, ast, made in kernels]
    print(json.dumps(said))
