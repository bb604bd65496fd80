"""Multiplies matrices by a tensor core, and prints, as JSON, which stages of code generation have a WMMA (`wmma`), in
which stages what the tool computes is not what numpy computes (`wrong`), and whether tinygrad's PYTHON device is right.

    python stages.py USED CORE            emulated: the list that the device uses gets the first core of a list, for floats
    python stages.py TARGET IN OUT        rendered for a target, with these dtypes; nothing runs
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import tinygrad.codegen as codegen
from tinygrad import Tensor, dtypes
from tinygrad.codegen.opt import tc

from vmapdbg.child.program.interpret import run_kernel

stock, stages = codegen.graph_rewrite, []


def graph_rewrite(sink: Any, *arguments: Any, **options: Any) -> Any:
    made = stock(sink, *arguments, **options)
    stages.append((options.get("name"), made))
    return made


codegen.graph_rewrite = graph_rewrite


def multiply(columns: int, rows: int, depth: int, dtype_in: str, dtype_out: str) -> tuple[list[Any], Any, Any]:
    """Returns what the two matrices hold, their product to be, and the right product: all numbers are small integers."""
    random = np.random.default_rng(0)
    held = [random.integers(-4, 5, shape).astype(np.float32) for shape in ((rows, depth), (depth, columns))]
    a, b = (Tensor(one).cast(dtype_in).contiguous().realize() for one in held)
    stages.clear()
    return held, a.matmul(b, dtype=dtype_out) + 1, held[0] @ held[1] + 1


def judge(held: list[Any], right: Any) -> dict[str, Any]:
    contents = {0: np.zeros(right.size, np.float32)} | {slot: one.ravel() for slot, one in enumerate(held, 1)}
    wrong, wmma = [], []
    for name, graph in stages:
        ops = {u.op.name for u in graph.toposort()}
        if "STORE" not in ops:
            continue
        if "WMMA" in ops:
            wmma.append(name)
        try:
            found = run_kernel(graph, 0, {}, contents)
        except Exception as error:
            wrong.append(f"{name}: {error}")
        else:
            if not np.array_equal(found, right.ravel()):
                wrong.append(name)
    return {"wmma": wmma, "wrong": wrong}


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    if len(others) == 1:
        core = replace(getattr(tc, others[0])[0], dtype_in=dtypes.float, dtype_out=dtypes.float)
        getattr(tc, first)[:] = [core]
        held, product, right = multiply(*(2 * size for size in core.dims), "float", "float")
        device = bool(np.array_equal(product.numpy(), right))
        print(json.dumps({"device": device, **judge(held, right)}))
