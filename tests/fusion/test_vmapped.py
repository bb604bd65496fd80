"""The patterns under vmap: the values of the stock pass, and as many kernels as the batch that is written by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `processes`, which importlib mode would not find

from patterns import DIFFERENT
from processes import Result, assert_close, require_opencl, run_all, run_programs

# each process runs many patterns; vmap itself is in every run, in tests/overlay
pytestmark = pytest.mark.slow

# run with the batch at each of its places; of every other pattern some places are
USUAL = ("softmax of wide rows", "RMSNorm", "attention")
RUNS = {
    "vmapped": ("all", "values", None, *USUAL),
    "by hand, on the stock pass": ("none", "twins", None, *USUAL),
    "counts": ("all", "counts", "NULL"),
}
SLOW_RUNS = {
    "every pattern vmapped": ("all", "values", None),
    "every pattern by hand, on the stock pass": ("none", "twins", None),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> dict[str, Result]:
    """All processes are run when the first test asks."""
    return run_all(RUNS, "vmapped.py", tmp_path_factory, worker_id)


def test_values_equal_the_hand_written_batch_on_the_stock_pass(results: dict[str, Result]) -> None:
    check_values(results["vmapped"], results["by hand, on the stock pass"], 20)


def test_values_of_every_pattern(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> None:
    results = run_all(SLOW_RUNS, "vmapped.py", tmp_path_factory, worker_id)
    check_values(results["every pattern vmapped"], results["every pattern by hand, on the stock pass"], 100)


def check_values(vmapped: Result, by_hand: Result, at_least: int) -> None:
    found, expected = vmapped.values, by_hand.values
    assert len(expected) > at_least
    assert found.keys() == expected.keys()
    assert all(np.isfinite(value).all() for value in expected.values())
    for name, value in found.items():
        assert_close(value, expected[name], name)


def test_as_many_kernels_as_batched_by_hand(results: dict[str, Result]) -> None:
    """With the same patches, on each target. Those that differ are listed, with a reason and both counts."""
    counts = results["counts"].data
    assert len(counts) > 200
    listed = {f"{target}: {name}": pair for name, pairs in DIFFERENT.items() for target, pair in pairs.items()}
    assert {name: pair for name, pair in counts.items() if pair[0] != pair[1]} == listed


@pytest.mark.parametrize("name", ["softmax", "RMSNorm", "LayerNorm"])
def test_a_large_norm_under_vmap_is_one_kernel_on_a_gpu(results: dict[str, Result], name: str) -> None:
    counts = results["counts"].data
    assert counts[f"metal: large {name}"] == counts[f"cuda: large {name}"] == [1, 1]


def test_values_on_opencl(results: dict[str, Result], tmp_path: Path) -> None:
    """The batch and the rows are workgroups, which PoCL runs with real barriers."""
    require_opencl()
    run_programs(tmp_path / "CL", "vmapped.py", "all", "values", "CL", "softmax of wide rows")
    found, expected = Result(tmp_path / "CL").values, results["by hand, on the stock pass"].values
    assert len(found.keys() & expected.keys()) > 0
    for name in found.keys() & expected.keys():
        assert_close(found[name], expected[name], name)
