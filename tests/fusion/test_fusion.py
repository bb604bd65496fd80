"""Fusion that pays: fewer kernels, the same values, within every target's limits, and no work done twice. Under vmap:
the values of the stock pass, and as many kernels as the batch that is written by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import choose_device
from lanes import make_once

sys.path.insert(0, str(Path(__file__).parent))  # `patterns`, which importlib mode would not find

from patterns import DIFFERENT, LARGE, LIMITED, PATTERNS, TABLE, TARGETS

# each process runs many patterns; in every run there are vmap and the guard, in tests/overlay
pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
BUDGET = "fuse-broadcast,local-budget"
# the processes that the tests read from: (patches, WHAT of programs.py, device; None for the device that runs kernels)
RUNS = {
    "none": ("none", "values", None),
    "all": ("all", "values", None),
    "vmapped": ("all", "vmapped", None),
    "by hand, on the stock pass": ("none", "by hand", None),
    "counts": ("all", "counts", "NULL"),
    "change alone": ("fuse-broadcast", "forward", None),
    "targets": ("all", "targets", "NULL"),
    "large": ("all", "large", "NULL"),
    "local, guarded": ("all", "local", "NULL"),
    "local, budget alone": (BUDGET, "local", "NULL"),
    "local, change alone": ("fuse-broadcast", "local", "NULL"),
}


def run_process(patches: str, script: Path, *arguments: str, **variables: str) -> str:
    """Runs `script` in a process of its own with these patches, and returns what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    for name in ("BEAM", "JIT", "NOOPT", "PCONTIG", "VMAPDBG_PATCHES"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "vmapdbg", "run", "--patches", patches, str(script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def run_programs(out: Path, patches: str, what: str, device: str | None, *names: str, **variables: str) -> None:
    """Runs WHAT of programs.py, which writes OUT."""
    device = device or choose_device()
    run_process(patches, FOLDER / "programs.py", what, str(out), *names, DEV=device, **variables)


class Result:
    """What one process wrote."""

    def __init__(self, out: Path):
        self.data: dict[str, Any] = json.loads(out.with_suffix(".json").read_text())
        values = out.with_suffix(".npz")
        self.values = dict(np.load(values)) if values.exists() else {}


Results = dict[str, Result]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Results:
    """Runs all processes, two at a time, when the first test asks."""

    def run_all(folder: Path) -> None:
        with ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(lambda item: run_programs(folder / item[0], *item[1]), RUNS.items()))

    folder = make_once(tmp_path_factory, worker_id, "fusion", run_all)
    return {name: Result(folder / name) for name in RUNS}


def assert_close(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    # sums in another order: the largest term gives the error
    assert found.shape == expected.shape
    assert np.abs(found - expected).max(initial=0) <= 1e-4 * max(1.0, np.abs(expected).max(initial=0)), what


@pytest.mark.parametrize("name", TABLE)
def test_table(results: Results, name: str) -> None:
    """What the change alone does to the number of kernels."""
    _, before, after = TABLE[name]
    assert (results["none"].data[name], results["change alone"].data[name]) == (before, after)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TABLE)
def test_table_with_all_patches(results: Results, name: str, target: str) -> None:
    """The guard refuses none of these. On a GPU softmax is one kernel; a CPU does not compute exp again: two."""
    expected = TABLE[name][2] if target == "c" or name != "softmax" else 1
    assert len(results["targets"].data[target]["kernels"][name]) == expected
    if name == "softmax":
        assert len(results["large"].data[target]["kernels"]["softmax of 256"]) == expected


@pytest.mark.parametrize("side", ["all", "change alone"])
def test_values_and_gradients_equal_the_stock_pass(results: Results, side: str) -> None:
    expected = results["none"].values
    assert len(expected) > 100
    assert all(np.isfinite(value).all() for value in expected.values())
    for name, value in results[side].values.items():
        assert_close(value, expected[name], name)


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
@pytest.mark.parametrize("run", ["local, guarded", "local, budget alone"])
def test_local_memory_stays_within_the_target(results: Results, run: str, target: str) -> None:
    """With the guard and without it."""
    assert find_over(results[run].data[target]) == {}


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
    # the batch and the rows are workgroups
    run_programs(tmp_path / "vmapped", "all", "vmapped", "CL", "softmax of wide rows")
    values = Result(tmp_path / "vmapped").values
    assert values
    for name, value in values.items():
        assert_close(value, results["by hand, on the stock pass"].values[name], name)


def require_opencl() -> None:
    """Skips the test if OpenCL cannot run anything, and names what is missing."""
    probe = "from tinygrad import Tensor; print((Tensor([1.0], device='CL') + 1).tolist())"
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=120, check=False)
    if found.returncode != 0:
        reason = (found.stderr.strip().splitlines() or [f"exit code {found.returncode}"])[-1]
        pytest.skip(f"no OpenCL device here: {reason} (on Debian, pocl-opencl-icd is one)")
    assert found.stdout == "[2.0]\n"


def check_device(results: Results, folder: Path, device: str, **variables: str) -> None:
    run_programs(folder / device, "all", "forward", device, *DEVICE_PATTERNS, **variables)
    values = Result(folder / device).values
    assert len(values) == len(DEVICE_PATTERNS)
    for name, value in values.items():
        assert_close(value, results["none"].values[name], name)


# *** under vmap


def test_values_equal_the_hand_written_batch_on_the_stock_pass(results: Results) -> None:
    found, expected = results["vmapped"].values, results["by hand, on the stock pass"].values
    assert len(expected) > 100
    assert found.keys() == expected.keys()
    assert all(np.isfinite(value).all() for value in expected.values())
    for name, value in found.items():
        assert_close(value, expected[name], name)


def test_as_many_kernels_as_batched_by_hand(results: Results) -> None:
    """With the same patches, on each target. Those that differ are listed, with a reason and both counts."""
    counts = results["counts"].data
    assert len(counts) > 200
    listed = {f"{target}: {name}": pair for name, pairs in DIFFERENT.items() for target, pair in pairs.items()}
    assert {name: pair for name, pair in counts.items() if pair[0] != pair[1]} == listed
    for name in ROW_PROGRAMS:
        assert counts[f"metal: large {name}"] == counts[f"cuda: large {name}"] == [1, 1]


# *** the guard's attempts end, and end in the same kernels each time

RANDOM_GRAPH = """
import hashlib, json
from bench.schedule import random_graph, schedule

done = schedule(lambda: random_graph(500, 1))
print(json.dumps([len(done.keys), hashlib.sha1(b"".join(done.keys)).hexdigest(), done.runs, done.most]))
"""


def test_a_random_graph_settles_in_the_same_kernels_each_time(tmp_path: Path) -> None:
    """`runs` is how often the stages ran for the whole graph, `most` how many attempts the guard has."""
    script = tmp_path / "program.py"
    script.write_text(RANDOM_GRAPH)

    def schedule(patches: str, hash_seed: str) -> list[Any]:
        # each process decides, not only the first
        return json.loads(run_process(patches, script, DEV="NULL", PYTHONHASHSEED=hash_seed, CACHELEVEL="0"))

    kernels, digest, runs, most = schedule("all", "1")
    assert schedule("all", "2") == [kernels, digest, runs, most]
    assert runs <= most, "the stages ran for the whole graph more often than the guard has attempts"
    assert kernels < schedule("none", "1")[0]
