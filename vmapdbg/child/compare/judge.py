"""Compares what the processes of a program realize with the numpy reference while they run: `vmapdbg run --check`
starts it with a ProgramCheckRequest.

It reads the evidence of one schedule after the other (`vmapdbg.child.evidence.suite`), removes it, and writes a
line to `judged.jsonl`. It ends when the program has ended and no evidence is left. Nothing of tinygrad takes part.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

from vmapdbg.check.blame import name_wrong
from vmapdbg.check.result import ExpectedOutput
from vmapdbg.check.suite import CheckedSchedule
from vmapdbg.child.compare.schedule_checker import ScheduleChecker, expected_outputs
from vmapdbg.child.evidence.folder import EvidenceFolder
from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.child.failures.lifeline import hold
from vmapdbg.install.job import ProgramCheckRequest, load_request
from vmapdbg.model.data import to_data
from vmapdbg.model.wording import first_line

_POLL = 0.05
_MOST_SECONDS = 120
"""The most seconds for one schedule."""


class TookTooLong(Exception):
    """The comparison of a schedule takes too long."""


def main() -> None:
    request = load_request(ProgramCheckRequest, sys.argv[1])
    hold(request.lifeline)
    assert request.evidence is not None
    root = Path(request.evidence)
    signal.signal(signal.SIGALRM, _give_up)
    with (root / "judged.jsonl").open("a", encoding="utf-8") as file:
        while True:
            is_over = (root / "over").exists()
            waiting = sorted((root / "ready").iterdir())
            for folder in waiting:
                file.write(json.dumps(to_data(judge(folder))) + "\n")
                file.flush()
                shutil.rmtree(folder)
            if not waiting and is_over:
                return
            if not waiting:
                time.sleep(_POLL)


def judge(folder: Path) -> CheckedSchedule:
    """Returns how the schedule of a folder compares."""
    test = (folder / "test.txt").read_text(encoding="utf-8", errors="surrogatepass")
    evidence: Evidence = pickle.loads((folder / "evidence.pickle").read_bytes())
    result = CheckedSchedule(test, evidence.line, evidence.replay, unchecked=tuple(evidence.unchecked))
    if evidence.is_endless:
        return judge_endless(result, evidence, EvidenceFolder(folder))
    if evidence.schedule < 0:
        return replace(result, is_note=True)
    if evidence.failed is not None:
        return replace(result, unchecked=(f"it raised {evidence.failed}", *evidence.unchecked))
    try:
        with limited_time():
            found = ScheduleChecker(evidence, EvidenceFolder(folder)).check()
    except TookTooLong:
        return replace(result, unchecked=(f"it takes more than {_MOST_SECONDS} s",))
    except Exception as error:  # the other schedules are compared all the same
        return replace(result, unchecked=(f"the comparison failed: {type(error).__name__}: {first_line(error)}",))
    codes = tuple(name_wrong(found, output) for output in found.wrong)
    return replace(result, compared=len(found.outputs), wrong=found.wrong, codes=codes, unchecked=found.unchecked)


def judge_endless(result: CheckedSchedule, evidence: Evidence, folder: EvidenceFolder) -> CheckedSchedule:
    """Returns the result for a call that was stopped because tinygrad rewrote a graph without end."""
    result = replace(result, replay=None, crash=evidence.crash)
    if evidence.schedule < 0:
        return replace(result, unchecked=(), is_note=True)
    expected: tuple[ExpectedOutput, ...] = ()
    with contextlib.suppress(TookTooLong), limited_time():
        expected = expected_outputs(evidence, folder.read_data)
    return replace(result, unchecked=(f"it raised {evidence.failed}", *evidence.unchecked), expected=expected)


@contextlib.contextmanager
def limited_time() -> Iterator[None]:
    """Raises TookTooLong in a block that takes too long."""
    signal.alarm(_MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def _give_up(number: int, frame: FrameType | None) -> None:
    raise TookTooLong


if __name__ == "__main__":
    main()
