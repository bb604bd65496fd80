"""Runs the programs of this folder in processes of their own, each on one state of the patches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import choose_device

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent


def run_programs(
    out: Path, script: str, patches: str, what: str, device: str | None, *names: str, **variables: str
) -> None:
    """Runs WHAT of `script` with these patches; it writes OUT. `device`: None for the device that runs kernels here."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DEV": device or choose_device(), **variables}
    for name in ("BEAM", "JIT", "NOOPT", "PCONTIG", "VMAPDBG_PATCHES"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "vmapdbg", "run", "--patches", patches, str(FOLDER / script), what, str(out)]
    done = subprocess.run([*command, *names], env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


class Result:
    """What one process wrote."""

    def __init__(self, out: Path):
        data, values = out.with_suffix(".json"), out.with_suffix(".npz")
        self.data: dict[str, Any] = json.loads(data.read_text()) if data.exists() else {}
        self.values = dict(np.load(values)) if values.exists() else {}


def run_all(
    runs: dict[str, tuple[Any, ...]], script: str, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> dict[str, Result]:
    """Runs name -> (patches, WHAT, device, NAMES...) of `script`, two at a time. Workers of pytest-xdist share that."""
    shared = tmp_path_factory.getbasetemp() if worker_id == "master" else tmp_path_factory.getbasetemp().parent
    group = f"fusion-{script}-{next(iter(runs))}"
    folder, done = shared / group, shared / f"{group}-done"
    try:
        folder.mkdir()
    except FileExistsError:
        wait_for(done)
    else:
        try:
            with ThreadPoolExecutor(max_workers=2) as pool:
                list(pool.map(lambda item: run_programs(folder / item[0], script, *item[1]), runs.items()))
        finally:
            done.touch()
    return {name: Result(folder / name) for name in runs}


def wait_for(done: Path) -> None:
    deadline = time.monotonic() + 900
    while not done.exists():
        assert time.monotonic() < deadline, "the other worker did not finish"
        time.sleep(0.2)


def require_opencl() -> None:
    """Skips the test if OpenCL cannot run anything, and names what is missing."""
    probe = "from tinygrad import Tensor; print((Tensor([1.0], device='CL') + 1).tolist())"
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=120, check=False)
    if found.returncode != 0:
        reason = (found.stderr.strip().splitlines() or [f"exit code {found.returncode}"])[-1]
        pytest.skip(f"no OpenCL device here: {reason} (on Debian, pocl-opencl-icd is one)")
    assert found.stdout == "[2.0]\n"


def assert_close(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    # sums in another order: the largest term gives the error
    assert found.shape == expected.shape
    assert np.abs(found - expected).max(initial=0) <= 1e-4 * max(1.0, np.abs(expected).max(initial=0)), what
