"""A product of matrices by a tensor core: the tool computes it right at each stage of code generation, as tinygrad's
PYTHON device does, which emulates the cores. A fault after the WMMA is made is traced to its pass and rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from release_trees import HERE, NULL, find_tree, run_on, run_snippet

from tests.releases.test_why_value import find_wrong, follow, name_first_wrong

# list of the device, list with the core, and the device as 0.12.0 and as later releases name it
CORES = [
    ("metal", "metal", "METAL", "METAL"),
    ("cuda_sm80", "cuda_81616", "CUDA", "sm_80"),
    ("cuda_sm80", "cuda_8168_tf32", "CUDA", "sm_80"),
    ("amd_rdna3", "amd_rdna3", "AMD", "gfx1100"),
    ("amd_rdna4", "amd_rdna4", "AMD_RDNA4", "gfx1201"),
    ("amd_cdna4", "amd_cdna_161616", "AMD_MFMA", "gfx950"),
]
OLD_ONLY = [("intel", "intel", "INTEL", ""), ("cuda_sm89", "cuda_81632_f8", "CUDA_SM89", "")]
CASES = [("0.12.0", *core) for core in CORES + OLD_ONLY]
CASES += [(version, *core) for version in ("0.13.0", "0.14.0") for core in CORES[:4]]


def emulate(version: str, old: str, new: str) -> dict[str, str]:
    device = {"DEV": "PYTHON", "PYTHON": "1", "EMULATE": old} if version == "0.12.0" else {"DEV": f"PYTHON::{new}"}
    return {**device, "ALLOW_TF32": "1"}


@pytest.mark.parametrize(("version", "used", "of", "old", "new"), CASES)
def test_each_stage_is_right(version: str, used: str, of: str, old: str, new: str) -> None:
    said = json.loads(run_on(version, HERE / "stages.py", "emulated", used, of, **emulate(version, old, new)))
    assert said["device"]
    assert said["wrong"] == []
    assert len(said["wmma"]) > 12


HALVES = """
from tinygrad import Tensor, dtypes
a, b = Tensor.empty(32, 32, dtype=dtypes.half), Tensor.empty(32, 32, dtype=dtypes.half)
c = a.matmul(b, dtype=dtypes.{}) + 1
"""


@pytest.mark.parametrize("dtype", ["float", "half"])
@pytest.mark.parametrize("target", ["metal", "cuda", "hip"])
def test_each_stage_of_halves_is_right(release: str, target: str, dtype: str, tmp_path: Path) -> None:
    if (release, target) == ("0.12.0", "metal"):
        pytest.skip("its renderer has tensor cores on a Mac only")
    program = tmp_path / "halves.py"
    program.write_text(HALVES.format(dtype), encoding="utf-8")
    said = json.loads(run_on(release, HERE / "stages.py", "rendered", target, program, **NULL))
    assert said["wrong"] == []
    assert len(said["wmma"]) > 12


MATRICES = """
import numpy as np
from tinygrad import Tensor
a = Tensor(np.arange(256, dtype="float32").reshape(16, 16) % 7 - 2).realize()
b = Tensor(np.arange(256, dtype="float32").reshape(16, 16) % 5 - 1).realize()
(a @ b + 1).realize()
"""
# the first float ADD of a pass becomes a MAX; a rule takes no UOp twice
PLANT = """
import tinygrad.codegen as codegen
from tinygrad.uop.ops import Ops, PatternMatcher, UPat
seen, stock = set(), codegen.graph_rewrite

def rule(x):
    if x in seen or "float" not in str(x.dtype) or not any(u.op is Ops.WMMA for u in x.toposort()):
        return None
    made = x.src[0].alu(Ops.MAX, x.src[1])
    seen.update(made.toposort())
    return made

def graph_rewrite(sink, pm, *arguments, **options):
    if options.get("name") == {!r}:
        seen.clear()
        pm = PatternMatcher([(UPat(Ops.ADD, name="x"), rule)]) + pm
    return stock(sink, pm, *arguments, **options)

codegen.graph_rewrite = graph_rewrite
"""
OLD = ("expander", "add gpudims", "devectorize", "final rewrite")
NEW = ("expander", "add gpudims", "devectorize2", "final rewrite")
METAL = {version: emulate(version, "METAL", "METAL") for version in ("0.12.0", "0.13.0", "0.14.0")}
PLANTED = [(version, name) for version in METAL for name in (NEW if version == "0.14.0" else OLD)]


@pytest.mark.parametrize(("version", "name"), PLANTED)
def test_a_rule_after_the_wmma_is_named(version: str, name: str, tmp_path: Path) -> None:
    text = PLANT.format(name) + MATRICES
    output = find_wrong(follow(version, tmp_path, text, **METAL[version]))
    assert name_first_wrong(output) == name
    (line,) = [number for number, line in enumerate(text.splitlines(), 1) if "UPat(" in line]
    assert output["rewrite"]["rule"] == f"snippet.py:{line}"


@pytest.mark.parametrize("version", METAL)
def test_check_names_code_generation(version: str, tmp_path: Path) -> None:
    text = PLANT.format("add gpudims") + MATRICES
    done = run_snippet_on_metal(version, tmp_path, text)
    assert "code generation made the fault" in done


EMULATION = """
from tinygrad.runtime import ops_python
stock = ops_python.generic_wmma_helper
ops_python.generic_wmma_helper = lambda inp, *others: [[2 * x for x in lane] for lane in stock(inp, *others)]
"""


@pytest.mark.parametrize("version", METAL)
def test_check_names_the_device(version: str, tmp_path: Path) -> None:
    done = run_snippet_on_metal(version, tmp_path, EMULATION + MATRICES)
    assert "its linear program compute it right" in done


def run_snippet_on_metal(version: str, folder: Path, text: str) -> str:
    done = run_snippet(find_tree(version), folder, text, "check", **METAL[version])
    assert done.returncode == 1, done.stderr
    return " ".join(done.stdout.split())
