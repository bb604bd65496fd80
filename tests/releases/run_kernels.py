"""Prints, as JSON, whether the linear programs of kernels compute what their ASTs say: run whole by tinygrad's PYTHON
device, and once for some elements with loops fixed to the steps that write them."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from observed import compile_kernels

MOST_STEPS = 20_000
"""A longer program runs for some elements only."""


def compare(ast: Any, uops: Any) -> dict[str, Any]:
    from vmapdbg.child.compare import kernel_rerun
    from vmapdbg.child.evidence.evidence import KernelRun, WrittenBuffer
    from vmapdbg.child.evidence.loop_packer import pack_kernel
    from vmapdbg.child.program.linear_reader import read_memories
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
    wrong = kernel_rerun.WrongBuffer(written, right, right, (), tolerance, lambda found: None, blobs.__getitem__)  # type: ignore[arg-type,return-value]
    linear = kernel_rerun.LinearRun(wrong, keep_program(uops, {}))
    said: dict[str, Any] = {"whole": True}
    expected = decode(right)
    is_wrong = np.ones(out.size, np.bool_)
    if count_steps(linear.program) <= MOST_STEPS:
        whole = decode(Array(linear.compute(is_wrong)[0], out.dtype, (out.size,)))
        said["whole"] = bool(np.allclose(whole, expected, rtol=1e-3, equal_nan=True))
    data, is_computed = linear.compute_some(is_wrong)
    parts = decode(Array(data, out.dtype, (out.size,)))
    said["parts"] = bool(np.allclose(parts[is_computed], expected[is_computed], rtol=1e-3, equal_nan=True))
    said["computed"] = int(is_computed.sum())
    return said


if __name__ == "__main__":
    kernels = compile_kernels(sys.argv[1], sys.argv[2:])
    print(json.dumps([{"of": name, **compare(ast, compiled.uops)} for name, ast, compiled in kernels]))
