"""Kernels are packed where the oracle, which works beside the snippet, does not say that a schedule is right."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from vmapdbg.check.result import Comparison, OutputCheck, ScheduleCheck
from vmapdbg.child.compare.checker import RunChecker
from vmapdbg.child.evidence import late as module
from vmapdbg.child.evidence import passed
from vmapdbg.child.evidence.folder import EvidenceFolder, Verdict, name_file
from vmapdbg.child.evidence.graphs import Evidence, KernelRun, WrittenBuffer
from vmapdbg.child.evidence.late import LateKernels
from vmapdbg.install.job import CheckRequest, Job
from vmapdbg.values.tolerance import Tolerance

PACKED = KernelRun(kernel=7)


@dataclass
class Launches:
    """Stands for those of a schedule: notes which of them are packed."""

    packed: list[int] = field(default_factory=list[int])

    def pack_run(self, index: int, kernels: list[Any], known: dict[Any, int]) -> KernelRun:
        self.packed.append(index)
        return PACKED


@pytest.fixture
def folder(tmp_path: Path) -> EvidenceFolder:
    return EvidenceFolder(tmp_path)


def make_evidence(schedule: int, replay: int | None = None) -> Evidence:
    evidence = Evidence(schedule, None, replay=replay, is_late=True)
    evidence.buffers = [WrittenBuffer(3, 0, (), (), "float", 4, "name", run=passed._LATE, launch=5)]
    return evidence


def write(folder: EvidenceFolder, late: LateKernels, schedule: int) -> Launches:
    """Writes a schedule whose kernels wait."""
    launches, evidence = Launches(), make_evidence(schedule)
    folder.write(evidence)
    late.add(evidence, launches)  # type: ignore[arg-type]
    return launches


def read(folder: EvidenceFolder, schedule: int) -> Evidence:
    return pickle.loads((folder.path / name_file(Evidence(schedule, None))).read_bytes())


def judge(folder: EvidenceFolder, schedule: int, verdict: Verdict, replay: int | None = None) -> None:
    folder.watch()
    folder.note_judged(name_file(Evidence(schedule, None, replay=replay)), verdict)


def test_what_is_right_is_never_packed(folder: EvidenceFolder) -> None:
    late = LateKernels(folder)
    launches = write(folder, late, 0)
    judge(folder, 0, "right")
    late.end()
    assert launches.packed == []
    assert folder.read_written(0)[0] == ["schedule-000000.pickle"]


@pytest.mark.parametrize("verdict", ["wrong", "later"])
def test_what_is_not_is_packed_and_written_again(verdict: Verdict, folder: EvidenceFolder) -> None:
    late = LateKernels(folder)
    launches = write(folder, late, 0)
    assert read(folder, 0).is_late
    judge(folder, 0, verdict)
    # as soon as somebody looks
    write(folder, late, 1)
    assert launches.packed == [5]
    assert folder.read_written(0)[0].count("packed:schedule-000000.pickle") == 1
    packed = read(folder, 0)
    assert packed.buffers[0].run == PACKED
    assert not packed.is_late


def test_where_no_oracle_works_beside_it_nobody_waits(folder: EvidenceFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 600)
    late = LateKernels(folder)
    launches = write(folder, late, 0)
    late.end()
    assert launches.packed == [5]


def test_an_oracle_that_says_nothing_is_waited_for_a_moment(
    folder: EvidenceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.05)
    folder.watch()
    late = LateKernels(folder)
    launches = write(folder, late, 0)
    began = time.monotonic()
    late.end()
    assert launches.packed == [5]
    assert time.monotonic() - began > 0.05


def test_few_of_them_wait(folder: EvidenceFolder) -> None:
    late = LateKernels(folder)
    kept = [write(folder, late, schedule) for schedule in range(12)]
    assert [len(launches.packed) for launches in kept] == [1] * 4 + [0] * 8


def test_a_part_of_several_devices_is_packed_too() -> None:
    evidence, launches = make_evidence(0), Launches()
    part = evidence.buffers[0]
    whole = WrittenBuffer(3, 0, (), (), "float", 8, "both", run=passed._DEVICES, launch=4, parts=(part, part))
    evidence.buffers = [whole]
    passed.pack_runs(evidence, launches)  # type: ignore[arg-type]
    assert evidence.buffers[0].run is passed._DEVICES
    assert [one.run for one in evidence.buffers[0].parts] == [PACKED, PACKED]


@pytest.mark.parametrize(("is_wrong", "count"), [(False, 1), (True, 2)])
def test_what_is_right_is_not_compared_again(
    is_wrong: bool, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the oracle was still at it when the snippet was done, its kernels are packed beside it."""
    request = CheckRequest(job=Job("x.py"), folder=str(tmp_path), evidence=str(tmp_path))
    checker = RunChecker(request)
    compared: list[bool] = []

    def compare(evidence: Evidence, walks: bool = True) -> ScheduleCheck:
        compared.append(walks)
        status = "wrong" if is_wrong else "equal"
        comparison = Comparison(status, 1, int(is_wrong), None, None, None, None, Tolerance(1, 0.0, 0.0))
        output = OutputCheck(number=0, shape=(1,), dtype="float", comparison=comparison)
        return ScheduleCheck(
            schedule=0, line=None, outputs=(output,), buffers=(), unchecked=(), failed=None, evaluations=1
        )

    monkeypatch.setattr(checker, "compare", compare)
    folder, evidence = checker.folder, make_evidence(0)
    folder.write(evidence)
    checker.read_news()
    checker.compare_first()
    passed.pack_runs(evidence, Launches())  # type: ignore[arg-type]
    folder.write_packed(evidence)
    checker.read_news()
    while checker.waiting:
        checker.compare_first()
    folder.close()
    checker.read_news()
    assert len(compared) == count
    assert compared[0] is False
    assert checker.is_complete
    assert not checker.wrong_early


def test_a_schedule_is_settled_with_all_its_replays(folder: EvidenceFolder) -> None:
    for schedule, replay in [(0, None), (1, None), (1, 1), (2, None), (2, 1), (3, None)]:
        folder.write(make_evidence(schedule, replay))
    assert LateKernels(folder).find_settled() == frozenset()
    judge(folder, 0, "right")
    judge(folder, 1, "right")
    judge(folder, 1, "right", replay=1)
    judge(folder, 2, "right")
    judge(folder, 2, "wrong", replay=1)
    assert LateKernels(folder).find_settled() == {0, 1}


def test_a_verdict_that_is_being_written_is_not_read(folder: EvidenceFolder) -> None:
    judge(folder, 0, "right")
    with (folder.path / "judged").open("a") as file:
        file.write("schedule-000001.pickle ri")
    assert folder.read_judged() == {"schedule-000000.pickle": "right"}


GROUPS = """
import os
os.setsid()
from pathlib import Path
from vmapdbg.child.compare.priority import lower_session, lower_thread, restore_session
group = Path("/proc/self/autogroup")
print(group.read_text().split()[-1])
lower_thread()
lower_session()
print(group.read_text().split()[-1], os.getpriority(os.PRIO_PROCESS, 0))
import time
# Linux lets a user change it ten times a second
time.sleep(0.2)
restore_session()
print(group.read_text().split()[-1])
"""


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="sessions have no priority of their own here")
def test_the_priority_is_that_of_the_session() -> None:
    """Where each session is scheduled as one, that of a process counts only in its own."""
    command = [sys.executable, "-c", f"import os\nif os.fork(): os.wait(); os._exit(0)\n{GROUPS}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "10", "10", "0"], done.stderr
