"""Each patch, switched off alone, shows the bug that it repairs; switched on, the same program is right.

One state of the patches is one process: each test runs programs through `python -m vmapdbg run`. What is shown of the
vmap patches is shown without fuse-broadcast: a buffer that it saves cannot lose its range.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lanes import one_of
from tinygrad import Device

ROOT = Path(__file__).parent.parent.parent

PROGRAM = """
import json
import numpy as np
from scopes import LOOP, OUTER, ZERO, vmap
from tinygrad import Tensor, UOp
from tinygrad.codegen import get_program
from tinygrad.engine.schedule import complete_create_schedule_with_vars
from tinygrad.renderer.cstyle import ClangRenderer
from tinygrad.uop.ops import Ops

def fixed(array): return Tensor(array).realize()

x = np.arange(12, dtype=np.float64).reshape(3, 4)
y = np.arange(8, dtype=np.float64).reshape(2, 4) + 20
cube = np.sin(np.arange(24, dtype=np.float64)).reshape(2, 3, 4)
w = np.cos(np.arange(16, dtype=np.float64)).reshape(4, 4)
wide = np.arange(30, dtype=np.float32).reshape(10, 3)

def stack_index(a): return Tensor.stack(a[:2].sum(), a[2:].sum())[[0, 1]]
def stack_index_no_reduce(a): return Tensor.stack(a[0] * 2, a[3] + 1)[[0, 1]]
def matmul_index(a): return (a @ fixed(w))[[0, 2]]
def contiguous(a): return (a * 2).contiguous() + 1
def stack_scalars(a):
    flat = Tensor.stack(*[a * Tensor(row) for row in np.eye(3, dtype=np.float32).tolist()]).flatten()
    return Tensor.stack(flat[0], flat[1])
def softmax(v):
    e = np.exp(v - v.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
def halves(v): return np.stack([v[..., :2].sum(-1), v[..., 2:].sum(-1)], -1)

scalars = np.stack([wide[:, 0], wide[:, 0] * 0], 1)
programs = {
    "stack index, no reduce": (lambda: vmap(stack_index_no_reduce)(fixed(x)), np.stack([x[:, 0]*2, x[:, 3]+1], 1)),
    "matmul index": (lambda: vmap(matmul_index)(fixed(x)), (x @ w)[:, [0, 2]]),
    "elementwise": (lambda: vmap(lambda a: a * 2)(fixed(x)), x * 2),
    "nested contiguous": (
        lambda: vmap(lambda b: vmap(lambda a: (a * b).contiguous() + 1)(fixed(x)))(fixed(y)),
        x[None] * y[:, None] + 1,
    ),
    "nested softmax": (lambda: vmap(vmap(Tensor.softmax))(fixed(cube)), softmax(cube)),
    "nested stack index": (lambda: vmap(vmap(stack_index))(fixed(cube)), halves(cube)),
}
for kind, place in ((LOOP, ""), (OUTER, "outer ")):
    programs |= {
        f"{place}stack index": (lambda k=kind: vmap(stack_index, axis_type=k)(fixed(x)), halves(x)),
        f"{place}softmax": (lambda k=kind: vmap(Tensor.softmax, axis_type=k)(fixed(x)), softmax(x)),
        f"{place}contiguous": (lambda k=kind: vmap(contiguous, axis_type=k)(fixed(x)), x * 2 + 1),
        f"{place}stack of scalars": (lambda k=kind: vmap(stack_scalars, axis_type=k)(fixed(wide)), scalars),
    }

def outcome(name):
    program, want = programs[name]
    try: got = program().numpy()
    except Exception as error: return {"error": f"{type(error).__name__}: {error}"}
    return {"right": bool(np.allclose(got, want, rtol=1e-5)), "got": got.tolist(), "want": want.tolist()}

# the kernels of an index into a stack as C, which wants no compiler; its input has the batch as the last axis
r = UOp.range(3, -100, LOOP)
sink = UOp.sink(stack_index(fixed(np.ascontiguousarray(x.T)).vmapin((ZERO, r))).vmapout((r, ZERO)).uop)
try:
    items = complete_create_schedule_with_vars(sink)[1]
    source = [get_program(i.ast, ClangRenderer()).src for i in items if i.ast.op is Ops.SINK]
except RuntimeError as error:
    source = [str(error)]
print(json.dumps({"source": source, "outcomes": {name: outcome(name) for name in programs}}))
"""
SINGLE = ["stack index", "matmul index", "contiguous", "stack of scalars"]
NESTED = ["nested contiguous", "nested softmax", "nested stack index"]
WITH_OUTER_BUFFER = ["outer stack index", "outer softmax", "outer contiguous", "outer stack of scalars"]
RIGHT, WRONG = "right", "wrong values"
LAST_ROW = f"{WRONG}: every row is the last one"  # which step wins is the device's choice, on the CPU it is the last
NOT_A_BUFFER = "input to kernel must be AFTER or BUFFER, not Ops.INDEX"
ALL_BUT = "all,-fuse-broadcast,-"

# patches -> what a program gives -> the names of the programs
EXPECTED: dict[str, dict[str, list[str]]] = {
    "all": {RIGHT: [*SINGLE, *NESTED, *WITH_OUTER_BUFFER, "softmax", "elementwise", "stack index, no reduce"]},
    # an intermediate buffer has no batch axis, so the last step of the loop wins, silently
    f"{ALL_BUT}ambient-ranges": {LAST_ROW: SINGLE, RIGHT: ["elementwise", "stack index, no reduce"]},
    # a node that depends on two RANGEs has a buffer with only one of them
    f"{ALL_BUT}nested-ranges": {WRONG: NESTED, RIGHT: [*SINGLE, "softmax", "outer stack index"]},
    # an open range in a store; with ambient-ranges the address of every buffer closes the RANGEs of a LOOP already
    f"{ALL_BUT}close-ranges": {
        NOT_A_BUFFER: WITH_OUTER_BUFFER,
        RIGHT: ["stack of scalars", "stack index", "softmax", "nested softmax"],
    },
    f"{ALL_BUT}close-ranges,-ambient-ranges": {NOT_A_BUFFER: ["stack of scalars"], RIGHT: ["elementwise"]},
    "none": {NOT_A_BUFFER: ["stack of scalars"], RIGHT: ["elementwise"]},
    # the store closes its range, but the buffer has no batch axis
    "close-ranges": {WRONG: ["stack of scalars"]},
}


def run_program(patches: str, folder: Path) -> dict[str, Any]:
    script = folder / "program.py"
    script.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}", "DEV": Device.DEFAULT}
    command = [sys.executable, "-m", "vmapdbg", "run", "--patches", patches, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def describe(outcome: dict[str, Any]) -> str:
    if "error" in outcome:
        return NOT_A_BUFFER if NOT_A_BUFFER in outcome["error"] else outcome["error"]
    if outcome["right"]:
        return RIGHT
    got, want = outcome["got"], outcome["want"]
    is_last = Device.DEFAULT != "CPU" or np.allclose(got[0], want[-1])
    return LAST_ROW if is_last and got == [got[0]] * len(want) else WRONG


@pytest.mark.parametrize("patches", one_of(EXPECTED, 3))
def test_what_programs_give(patches: str, tmp_path: Path) -> None:
    outcomes = run_program(patches, tmp_path)["outcomes"]
    for outcome, names in EXPECTED[patches].items():
        assert [name for name in names if not describe(outcomes[name]).startswith(outcome)] == []


@pytest.mark.slow
def test_the_store_uses_the_loop_variable_if_its_buffer_has_the_batch(tmp_path: Path) -> None:
    """Two listings of an index into a stack: `r_3_2_2_2` with `data0_2`, the store at a fixed place; and `data0_6`."""
    without, fixed = (store_kernel(patches, tmp_path) for patches in (f"{ALL_BUT}ambient-ranges", ALL_BUT[:-2]))
    assert "double* restrict data0_2," in without
    assert "for (int Lidx2 = 0; Lidx2 < 3; Lidx2++)" in without
    assert sorted(re.findall(r"\*\(data0_2\+(.*?)\) = ", without)) == ["0", "1"]
    assert "alu0 = (Lidx2<<1)" not in without
    assert "double* restrict data0_6," in fixed
    assert "int alu0 = (Lidx2<<1);" in fixed
    assert sorted(re.findall(r"\*\(data0_6\+(.*?)\) = ", fixed)) == ["(alu0+1)", "alu0"]


def store_kernel(patches: str, folder: Path) -> str:
    sources = run_program(patches, folder)["source"]
    (found,) = [source for source in sources if "void r_3_2_2_2(" in source]
    return found
