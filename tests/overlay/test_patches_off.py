"""Each patch, switched off alone, shows the bug that its seed describes; switched on, the same program is right.

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

import numpy as np
import pytest
from tinygrad import Device

ROOT = Path(__file__).parent.parent.parent
NOT_A_BUFFER = "input to kernel must be AFTER or BUFFER, not Ops.INDEX"

PROGRAM = """
import itertools, json
import numpy as np
from tinygrad import Tensor, UOp, dtypes
from tinygrad.codegen import get_program
from tinygrad.engine.schedule import complete_create_schedule_with_vars
from tinygrad.renderer.cstyle import ClangRenderer
from tinygrad.uop.ops import AxisType, Ops

ids, zero = itertools.count(1), UOp.const(dtypes.index, 0)

def vmap(f, axis_type=AxisType.LOOP):
    def wrapped(x):
        r = UOp.range(x.shape[0], -next(ids), axis_type)
        y = f(x.vmapin((r,) + (zero,) * (x.ndim - 1)))
        return y.vmapout((r,) + (zero,) * y.ndim)
    return wrapped

def fixed(array): return Tensor(array).realize()

x = np.arange(12, dtype=np.float64).reshape(3, 4)
y = np.arange(8, dtype=np.float64).reshape(2, 4) + 20
cube = np.sin(np.arange(24, dtype=np.float64)).reshape(2, 3, 4)
w = np.cos(np.arange(16, dtype=np.float64)).reshape(4, 4)
wide = np.arange(30, dtype=np.float32).reshape(10, 3)

def stack_index(a): return Tensor.stack(a[:2].sum(), a[2:].sum())[[0, 1]]
def stack_index_no_reduce(a): return Tensor.stack(a[0] * 2, a[3] + 1)[[0, 1]]
def matmul_index(a): return (a @ fixed(w))[[0, 2]]
def stack_scalars(a):
    flat = Tensor.stack(*[a * Tensor(row) for row in np.eye(3, dtype=np.float32).tolist()]).flatten()
    return Tensor.stack(flat[0], flat[1])
def softmax(v):
    e = np.exp(v - v.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
def halves(v): return np.stack([v[..., :2].sum(-1), v[..., 2:].sum(-1)], -1)

OUTER = AxisType.OUTER
programs = {
    "stack index": (lambda: vmap(stack_index)(fixed(x)), halves(x)),
    "stack index, no reduce": (lambda: vmap(stack_index_no_reduce)(fixed(x)), np.stack([x[:, 0]*2, x[:, 3]+1], 1)),
    "matmul index": (lambda: vmap(matmul_index)(fixed(x)), (x @ w)[:, [0, 2]]),
    "softmax": (lambda: vmap(lambda a: a.softmax())(fixed(x)), softmax(x)),
    "contiguous": (lambda: vmap(lambda a: (a * 2).contiguous() + 1)(fixed(x)), x * 2 + 1),
    "elementwise": (lambda: vmap(lambda a: a * 2)(fixed(x)), x * 2),
    "stack of scalars": (lambda: vmap(stack_scalars)(fixed(wide)), np.stack([wide[:, 0], wide[:, 0] * 0], 1)),
    "nested contiguous": (
        lambda: vmap(lambda b: vmap(lambda a: (a * b).contiguous() + 1)(fixed(x)))(fixed(y)),
        x[None] * y[:, None] + 1,
    ),
    "nested softmax": (lambda: vmap(vmap(lambda a: a.softmax()))(fixed(cube)), softmax(cube)),
    "nested stack index": (lambda: vmap(vmap(stack_index))(fixed(cube)), halves(cube)),
    "outer stack index": (lambda: vmap(stack_index, OUTER)(fixed(x)), halves(x)),
    "outer softmax": (lambda: vmap(lambda a: a.softmax(), OUTER)(fixed(x)), softmax(x)),
    "outer contiguous": (lambda: vmap(lambda a: (a * 2).contiguous() + 1, OUTER)(fixed(x)), x * 2 + 1),
    "outer stack of scalars": (
        lambda: vmap(stack_scalars, OUTER)(fixed(wide)),
        np.stack([wide[:, 0], wide[:, 0] * 0], 1),
    ),
}

def outcome(name):
    program, want = programs[name]
    try: got = program().numpy()
    except Exception as error: return {"error": f"{type(error).__name__}: {error}"}
    return {"right": bool(np.allclose(got, want, rtol=1e-5)), "got": got.tolist(), "want": want.tolist()}

report = {}
# the kernels of seed 000 as C, which wants no compiler; its input has the batch as the last axis
r = UOp.range(3, -100, AxisType.LOOP)
sink = UOp.sink(stack_index(fixed(np.ascontiguousarray(x.T)).vmapin((zero, r))).vmapout((r, zero)).uop)
try:
    items = complete_create_schedule_with_vars(sink)[1]
    report["source"] = [get_program(i.ast, ClangRenderer()).src for i in items if i.ast.op is Ops.SINK]
except RuntimeError as error:
    report["source"] = [str(error)]
report |= {name: outcome(name) for name in programs}

print(json.dumps(report))
"""


def run_program(patches: str, folder: Path) -> dict:
    script = folder / "program.py"
    script.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DEV": Device.DEFAULT}
    done = subprocess.run(
        [sys.executable, "-m", "vmapdbg", "run", "--patches", patches, str(script)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory):
    """Patches -> what each program gave under them. Each state is run once, when a test first asks for it."""
    known: dict[str, dict] = {}

    def get(patches: str) -> dict:
        if patches not in known:
            known[patches] = run_program(patches, tmp_path_factory.mktemp("patches"))
        return known[patches]

    return get


def is_right(outcome: dict) -> bool:
    return outcome.get("right", False)


def test_with_all_patches_every_program_is_right(outcomes) -> None:
    report = outcomes("all")
    assert {name: outcome for name, outcome in report.items() if name != "source" and not is_right(outcome)} == {}


SINGLE = ["stack index", "matmul index", "contiguous", "stack of scalars"]


@pytest.mark.parametrize("name", SINGLE)
def test_without_ambient_ranges_every_row_is_the_last_one(outcomes, name: str) -> None:
    """Seed 000: an intermediate buffer has no batch axis, so the last step of the loop wins, silently."""
    outcome = outcomes("all,-fuse-broadcast,-ambient-ranges")[name]
    assert not is_right(outcome)
    assert outcome["got"] == [outcome["got"][0]] * len(outcome["want"])
    if Device.DEFAULT == "CPU":  # which step wins is the device's choice
        np.testing.assert_allclose(outcome["got"][0], outcome["want"][-1])


@pytest.mark.parametrize("name", ["elementwise", "stack index, no reduce"])
def test_without_ambient_ranges_a_program_without_intermediate_buffer_is_right(outcomes, name: str) -> None:
    assert is_right(outcomes("all,-fuse-broadcast,-ambient-ranges")[name])


def store_kernel(report: dict) -> str:
    found = [source for source in report["source"] if "void r_3_2_2_2(" in source]
    assert len(found) == 1, report["source"]
    return found[0]


def test_without_ambient_ranges_the_store_does_not_use_the_loop_variable(outcomes) -> None:
    """The two listings of seed 000: `r_3_2_2_2` with `data0_2`, the store at a fixed place."""
    source = store_kernel(outcomes("all,-fuse-broadcast,-ambient-ranges"))
    assert "double* restrict data0_2," in source
    assert "for (int Lidx2 = 0; Lidx2 < 3; Lidx2++)" in source
    stores = re.findall(r"\*\(data0_2\+(.*?)\) = ", source)
    assert sorted(stores) == ["0", "1"]
    assert "alu0 = (Lidx2<<1)" not in source


def test_with_ambient_ranges_the_store_uses_the_loop_variable(outcomes) -> None:
    source = store_kernel(outcomes("all,-fuse-broadcast"))
    assert "double* restrict data0_6," in source
    assert "int alu0 = (Lidx2<<1);" in source
    assert sorted(re.findall(r"\*\(data0_6\+(.*?)\) = ", source)) == ["(alu0+1)", "alu0"]


@pytest.mark.parametrize("name", ["nested contiguous", "nested softmax", "nested stack index"])
def test_without_nested_ranges_a_nested_scope_is_wrong(outcomes, name: str) -> None:
    """Seed 001: a node that depends on two RANGEs has a buffer with only one of them."""
    assert not is_right(outcomes("all,-fuse-broadcast,-nested-ranges")[name])


@pytest.mark.parametrize("name", [*SINGLE, "softmax", "outer stack index"])
def test_without_nested_ranges_one_level_is_right(outcomes, name: str) -> None:
    assert is_right(outcomes("all,-fuse-broadcast,-nested-ranges")[name])


@pytest.mark.parametrize("name", ["outer stack index", "outer softmax", "outer contiguous", "outer stack of scalars"])
def test_without_close_ranges_an_outer_scope_with_a_buffer_cannot_be_scheduled(outcomes, name: str) -> None:
    """The error of seed 003."""
    assert NOT_A_BUFFER in outcomes("all,-fuse-broadcast,-close-ranges")[name]["error"]


@pytest.mark.parametrize("name", ["stack of scalars", "stack index", "softmax", "nested softmax"])
def test_without_close_ranges_alone_a_loop_scope_is_right(outcomes, name: str) -> None:
    """With ambient-ranges the address of every buffer closes the RANGEs already."""
    assert is_right(outcomes("all,-fuse-broadcast,-close-ranges")[name])


@pytest.mark.parametrize(
    "patches", [pytest.param("all,-fuse-broadcast,-close-ranges,-ambient-ranges", marks=pytest.mark.slow), "none"]
)
def test_the_loop_program_of_seed_003_without_both_patches(outcomes, patches: str) -> None:
    report = outcomes(patches)
    assert NOT_A_BUFFER in report["stack of scalars"]["error"]
    assert is_right(report["elementwise"])


def test_with_close_ranges_alone_the_loop_program_of_seed_003_is_scheduled(outcomes) -> None:
    """But its values are seed 000's."""
    outcome = outcomes("close-ranges")["stack of scalars"]
    assert "error" not in outcome
    assert not is_right(outcome)
