"""Multiplies matrices by a tensor core, and prints, as JSON, which stages of code generation have a WMMA (`wmma`), in
which stages the tool computes something else than numpy (`wrong`), and whether the device is right (`device`).

    python stages.py emulated USED CORE   on the PYTHON device. CORE is a list of tensor cores: its first becomes the
                                          only one of the list that the device has, USED, for floats, because Python
                                          before 3.12 has no memory of halves
    python stages.py rendered TARGET PROGRAM    for a target, without its device
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np

stages: list[tuple[str, Any]] = []


def watch_stages() -> None:
    import tinygrad.codegen as codegen

    stock: Any = codegen.graph_rewrite

    def graph_rewrite(sink: Any, *arguments: Any, **options: Any) -> Any:
        made = stock(sink, *arguments, **options)
        stages.append((str(options.get("name")), made))
        return made

    codegen.graph_rewrite = graph_rewrite


def judge(held: list[Any], right: Any) -> dict[str, list[str]]:
    from vmapdbg.child.program.interpret import run_kernel

    contents = {0: np.zeros(right.size, np.float32)} | {slot: one.ravel() for slot, one in enumerate(held, 1)}
    said: dict[str, list[str]] = {"wmma": [], "wrong": []}
    for name, graph in stages:
        ops = {u.op.name for u in graph.toposort()}
        if "STORE" not in ops:
            continue
        if "WMMA" in ops:
            said["wmma"].append(name)
        try:
            if not np.array_equal(run_kernel(graph, 0, {}, contents), right.ravel()):
                said["wrong"].append(name)
        except Exception as error:
            said["wrong"].append(f"{name}: {error}")
    return said


def make_matrices(columns: int, rows: int, depth: int) -> list[Any]:
    """Returns matrices of small integers, which are exact in each dtype."""
    random = np.random.default_rng(0)
    return [random.integers(-4, 5, shape).astype(np.float32) for shape in ((rows, depth), (depth, columns))]


def emulate(used: str, of: str) -> dict[str, Any]:
    from tinygrad import Tensor, dtypes
    from tinygrad.codegen.opt import tc

    core = replace(getattr(tc, of)[0], dtype_in=dtypes.float, dtype_out=dtypes.float)
    getattr(tc, used)[:] = [core]
    held = make_matrices(*(2 * size for size in core.dims))
    a, b = (Tensor(one).realize() for one in held)
    watch_stages()
    right = held[0] @ held[1] + 1
    device = bool(np.array_equal((a @ b + 1).numpy(), right))
    return {"device": device, **judge(held, right)}


def render(target: str, program: str) -> dict[str, Any]:
    from observed import observe_programs

    from vmapdbg.child.listen.rendering import compile_kernel

    for _, recorder in observe_programs([program]):
        watch_stages()
        (ast,) = [kernel.ast for one in recorder.schedules for kernel in one.passed.kernels if kernel.is_compute]
        compile_kernel(ast, target)
    held = make_matrices(32, 32, 32)
    return judge(held, held[0] @ held[1] + 1)


if __name__ == "__main__":
    how, *names = sys.argv[1:]
    print(json.dumps((emulate if how == "emulated" else render)(*names)))
