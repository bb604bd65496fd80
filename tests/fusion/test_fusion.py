"""Fusion that pays: fewer kernels, the same values, within every target's limits, and no work done twice."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `patterns`, which importlib mode would not find

from patterns import LARGE, LIMITED, PATTERNS, TABLE, TARGETS
from processes import Result, assert_close, require_opencl, run_all, run_programs

# each process runs many patterns; test_settles.py and tests/overlay/test_fusion_guard.py are in every run
pytestmark = pytest.mark.slow

BUDGET = "fuse-broadcast,local-budget"
# what -> the processes that the tests read from: (patches, WHAT of programs.py, device)
RUNS = {
    "none": ("none", "values", None),
    "all": ("all", "values", None),
    "change alone": ("fuse-broadcast", "forward", None),
    "targets": ("all", "targets", "NULL"),
    "large": ("all", "large", "NULL"),
    "local, guarded": ("all", "local", "NULL"),
    "local, budget alone": (BUDGET, "local", "NULL"),
    "local, change alone": ("fuse-broadcast", "local", "NULL"),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> dict[str, Result]:
    """All processes are run when the first test asks."""
    return run_all(RUNS, "programs.py", tmp_path_factory, worker_id)


Results = dict[str, Result]


@pytest.mark.parametrize("name", TABLE)
def test_table(results: Results, name: str) -> None:
    """Seed 002's table: what the change alone does to the number of kernels."""
    _, before, after = TABLE[name]
    assert (results["none"].data[name], results["change alone"].data[name]) == (before, after)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TABLE)
def test_table_with_all_patches(results: Results, name: str, target: str) -> None:
    """The guard refuses none of these. On a GPU softmax is one kernel; a CPU does not compute exp again: two."""
    expected = TABLE[name][2] if target == "c" or name != "softmax" else 1
    assert len(results["targets"].data[target]["kernels"][name]) == expected


@pytest.mark.parametrize(("target", "kernels"), [("metal", 1), ("cuda", 1), ("c", 2)])
def test_softmax_of_usual_rows(results: Results, target: str, kernels: int) -> None:
    assert len(results["large"].data[target]["kernels"]["softmax of 256"]) == kernels


@pytest.mark.parametrize("side", ["all", "change alone"])
def test_values_and_gradients_equal_the_stock_pass(results: Results, side: str) -> None:
    expected = results["none"].values
    assert len(expected) > 100
    assert all(np.isfinite(value).all() for value in expected.values())
    for name, value in results[side].values.items():
        assert_close(value, expected[name], name)


REFERENCES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "RMSNorm": lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5),
    "softmax": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    "LayerNorm": lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
    "log_softmax": lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True)),
    "min-max": lambda x: (x - x.min(-1, keepdims=True)) / (np.ptp(x, -1, keepdims=True) + 1e-5),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_values_equal_numpy(results: Results, name: str) -> None:
    (shape,) = PATTERNS[name][1]
    seed = list(PATTERNS).index(name)
    x = np.random.default_rng(seed).random(shape, dtype=np.float32) - np.float32(0.4)
    assert_close(results["all"].values[name], REFERENCES[name](x.astype(np.float64)), name)


@pytest.mark.parametrize("side", ["all", "change alone"])
def test_no_pattern_has_more_kernels_than_without(results: Results, side: str) -> None:
    before, after = results["none"].data, results[side].data
    more = {name: (before[name], count) for name, count in after.items() if count > before[name]}
    assert more == {}
    assert sum(after.values()) < 0.85 * sum(before[name] for name in after)


def find_over(found: dict[str, Any]) -> dict[str, list[int]]:
    """Returns the programs with a kernel that needs more LOCAL and GROUP memory than there is, in bytes a kernel."""
    needs = {name: [sum(buffers) for buffers in kernels] for name, kernels in found["kernels"].items()}
    return {name: kernels for name, kernels in needs.items() if max(kernels) > found["limit"]}


@pytest.mark.parametrize("target", LIMITED)
def test_local_memory_stays_within_the_target(results: Results, target: str) -> None:
    assert find_over(results["local, guarded"].data[target]) == {}


@pytest.mark.parametrize("target", LIMITED)
def test_local_memory_stays_within_the_target_without_the_guard(results: Results, target: str) -> None:
    assert find_over(results["local, budget alone"].data[target]) == {}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("run", ["targets", "large"])
def test_no_pattern_exceeds_local_memory(results: Results, run: str, target: str) -> None:
    found = results[run].data[target]
    over = {name: ks for name, ks in found["kernels"].items() if any(k[0] > found["limit"] for k in ks)}
    assert over == {}


@pytest.mark.parametrize("target", LIMITED)
def test_the_budget_is_what_keeps_it_there(results: Results, target: str) -> None:
    """Without it programs are over the limit. With it there are LOCAL buffers still, near the limit, and several in one
    kernel: otherwise the tests before would show nothing."""
    assert len(find_over(results["local, change alone"].data[target])) > 4
    found = results["local, budget alone"].data[target]
    kernels = [buffers for each in found["kernels"].values() for buffers in each]
    assert max(map(sum, kernels)) > 0.7 * found["limit"]
    assert max(map(len, kernels)) > 1


@pytest.mark.parametrize("target", TARGETS)
def test_the_guards_model_is_what_the_program_does(results: Results, target: str) -> None:
    """Threads and LOCAL bytes to the number, executed ops to a fifth: the verdicts rest on them."""
    counted = 0
    for run in ("targets", "large"):
        for name, kernels in results[run].data[target]["kernels"].items():
            for local, ops, threads, model_local, model_ops, model_threads in kernels:
                assert (local, threads) == (model_local, model_threads), name
                if ops > 4096:
                    assert 0.8 < model_ops / ops < 1.25, name
                    counted += 1
    assert counted > 50


ROW_PROGRAMS = ["softmax", "RMSNorm", "LayerNorm"]


@pytest.mark.parametrize("target", ["metal", "cuda"])
@pytest.mark.parametrize("name", ROW_PROGRAMS)
def test_a_row_is_a_workgroup_that_does_nothing_twice(results: Results, target: str, name: str) -> None:
    """One kernel, a workgroup for each row. A row reduce that each thread did again would be 37 times the work."""
    (kernel,) = results["large"].data[target]["kernels"][name]
    (shape,) = LARGE[name][1]
    local, ops, threads, *_ = kernel
    # the three of them do between 3 and 12 operations an element, each reduce once more for adding up its lanes
    assert ops < 14 * shape[0] * shape[1]
    assert threads >= 8 * shape[0]
    assert 0 < local <= 4096


# on a GPU a row of these is a workgroup, whose lanes share what they have reduced in LOCAL memory
WORKGROUPS = ["softmax of wide rows", "RMSNorm of wide rows", "LayerNorm of many rows"]
DEVICE_PATTERNS = [*WORKGROUPS, "softmax", "log_softmax", "attention", "x*sum(row)", "RMSNorm of 3 axes"]


@pytest.mark.parametrize("target", ["metal", "cuda"])
@pytest.mark.parametrize("name", WORKGROUPS)
def test_what_runs_on_the_devices_has_workgroups(results: Results, target: str, name: str) -> None:
    (kernel,) = results["targets"].data[target]["kernels"][name]
    local, _, threads, *_ = kernel
    assert local > 0
    assert threads > PATTERNS[name][1][0][0]


@pytest.mark.parametrize("emulated", ["", "METAL"])
def test_threads_in_groups_give_the_same_values_on_the_python_device(
    results: Results, tmp_path: Path, emulated: str
) -> None:
    """The PYTHON device runs the threads of a workgroup in lockstep, with their LOCAL memory."""
    variables = {"EMULATE": emulated} if emulated else {}
    check_device(results, tmp_path, "PYTHON", **variables)


def test_threads_in_groups_give_the_same_values_on_opencl(results: Results, tmp_path: Path) -> None:
    """PoCL runs the work items of a workgroup on the CPU, with real barriers between them."""
    require_opencl()
    check_device(results, tmp_path, "CL")


def check_device(results: Results, folder: Path, device: str, **variables: str) -> None:
    run_programs(folder / device, "programs.py", "all", "forward", device, *DEVICE_PATTERNS, **variables)
    values = Result(folder / device).values
    assert len(values) == len(DEVICE_PATTERNS)
    for name, value in values.items():
        assert_close(value, results["none"].values[name], name)
