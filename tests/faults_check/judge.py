"""Compares the evidence of all faults with the numpy reference, in one process, without the overlay.

`python -m tests.faults_check.judge FOLDER` prints one JSON object a line.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

from vmapdbg.child.compare.schedule_checker import ScheduleChecker
from vmapdbg.child.evidence.evidence import EvidenceFolder
from vmapdbg.model.store import list_fields


def judge(folder: Path) -> None:
    for one in sorted(path for path in folder.iterdir() if path.name != "blobs"):
        checks = []
        evidence_folder = EvidenceFolder(one)
        for file in evidence_folder.find_files():
            evidence = pickle.loads(file.read_bytes())
            checks.append(ScheduleChecker(evidence, evidence_folder).check())
        print(json.dumps({"name": one.name, "report": {"schedules": checks}}, default=list_fields), flush=True)


if __name__ == "__main__":
    judge(Path(sys.argv[1]))
