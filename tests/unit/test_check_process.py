"""The process that compares: what it reads while the snippet runs, and its priority."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vmapdbg.child.evidence.folder import EvidenceFolder
from vmapdbg.child.evidence.graphs import Evidence


def test_files_are_named_when_they_are_there(tmp_path: Path) -> None:
    """A line that is being written is not read before it is whole."""
    folder = EvidenceFolder(tmp_path)
    assert folder.read_written(0) == ([], 0)
    folder.write(Evidence(0, None))
    names, place = folder.read_written(0)
    assert names == ["schedule-000000.pickle"]
    with (folder.path / "written").open("a") as file:
        file.write("schedule-0000")
    assert folder.read_written(place) == ([], place)
    folder.write(Evidence(7, None, replay=2))
    names, place = folder.read_written(place)
    assert names[0].endswith("schedule-000007.replay-000002.pickle")


GROUPS = """
import os
os.setsid()
from pathlib import Path
from vmapdbg.child.compare.start import lower_thread, set_session_priority
group = Path("/proc/self/autogroup")
print(group.read_text().split()[-1])
lower_thread()
set_session_priority(10)
print(group.read_text().split()[-1], os.getpriority(os.PRIO_PROCESS, 0))
import time
# Linux lets a user change it ten times a second
time.sleep(0.2)
set_session_priority(0)
print(group.read_text().split()[-1])
"""


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="sessions have no priority of their own here")
def test_the_priority_is_that_of_the_session() -> None:
    """Where each session is scheduled as one, that of a process counts only in its own."""
    command = [sys.executable, "-c", f"import os\nif os.fork(): os.wait(); os._exit(0)\n{GROUPS}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "10", "10", "0"], done.stderr
