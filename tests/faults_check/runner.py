"""Runs every fault that changes values, and compares the evidence with the numpy reference. Both steps print one JSON
object a line for each fault.

`python -m tests.faults_check.runner run FOLDER [NAME ...]` leaves the evidence of each in a folder of its own there.
Inputs (Tensor.empty in the snippets) get numbers that are all different. `judge FOLDER` compares, without the overlay.
"""

from __future__ import annotations

import json
import math
import pickle
import random
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest

from tests.faults.runner import FILE, Laboratory, find_line
from vmapdbg.child.compare.schedule_checker import ScheduleChecker
from vmapdbg.child.evidence.collector import Collector
from vmapdbg.child.evidence.evidence import EvidenceFolder
from vmapdbg.model.store import list_fields


def fill_inputs(patch: pytest.MonkeyPatch) -> None:
    """Gives Tensor.empty contents, without a kernel that a fault could change."""
    from tinygrad import Device, Tensor, dtypes
    from tinygrad.uop.ops import UOp

    chance = random.Random(3)

    def filled(*shape: Any, **_: Any) -> Tensor:
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        numbers = array("f", [chance.uniform(-4, 4) for _ in range(math.prod(sizes))])
        u = UOp.new_buffer(Device.DEFAULT, len(numbers), dtypes.float)
        memory: Any = u.buffer
        memory.allocate()
        memory.copyin(memoryview(bytearray(numbers.tobytes())))
        return Tensor(u.reshape(sizes), device=Device.DEFAULT)

    patch.setattr(Tensor, "empty", staticmethod(filled))


def run(folder: Path, names: list[str]) -> None:
    laboratory = Laboratory()
    import tinygrad.tensor

    from tests.faults import runner
    from tests.faults.table import FAULTS

    recorder = laboratory.recorder
    collector = Collector(folder, recorder)
    collector.watch(tinygrad.tensor)
    lazy = runner.schedule_lazy
    # check runs what the snippet leaves lazy
    runner.schedule_lazy = lambda values, realize: lazy(values, realize=True)
    for name, fault in FAULTS.items():
        # what is planted for another target does not run here
        if not fault.wrong_values or fault.target != "c" or (names and name not in names):
            continue
        collector.folder.path = folder / name
        collector.folder.path.mkdir()
        (collector.folder.path / "blobs").symlink_to(folder / "blobs")
        with pytest.MonkeyPatch.context() as patch:
            fill_inputs(patch)
            fault.plant(patch)
            capture = laboratory.capture(fault.snippet, fault.target)
        line = find_line(fault.snippet).removeprefix(f"{FILE}:")
        row = {"name": name, "what": fault.what, "op": fault.op, "line": line, "capture": capture}
        print(json.dumps(row, default=list_fields), flush=True)


def judge(folder: Path) -> None:
    for one in sorted(path for path in folder.iterdir() if path.name != "blobs"):
        evidence = EvidenceFolder(one)
        found = [pickle.loads(file.read_bytes()) for file in evidence.find_files()]
        checks = [ScheduleChecker(schedule, evidence).check() for schedule in found]
        print(json.dumps({"name": one.name, "report": {"schedules": checks}}, default=list_fields), flush=True)


if __name__ == "__main__":
    step, given, *chosen = sys.argv[1:]
    if step == "run":
        run(Path(given), chosen)
    else:
        judge(Path(given))
