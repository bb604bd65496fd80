"""The process that compares: what it reads while the snippet runs, and its priority."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vmapdbg.child.compare.checker import RunChecker
from vmapdbg.child.compare.reference_values import DOUBLE, MOVED
from vmapdbg.child.evidence.evidence import Evidence, EvidenceFolder
from vmapdbg.install.job import CheckRequest, Job
from vmapdbg.reference.graph import OpGraph, OpNode


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


def make_checker(tmp_path: Path) -> RunChecker:
    folder = tmp_path / "evidence"
    folder.mkdir()
    return RunChecker(CheckRequest(job=Job("net.py"), evidence=str(folder), folder=str(tmp_path)))


def make_negation(folder: EvidenceFolder, data: bytes) -> OpGraph:
    graph = OpGraph([OpNode("buffer", "uchar", (len(data),)), OpNode("neg", "uchar", (len(data),), (0,))], [1])
    graph.inputs[0] = (folder.keep_data(data),)
    return graph


def test_outputs_that_are_computed_while_a_schedule_runs_are_not_computed_again(tmp_path: Path) -> None:
    """The graph may get more nodes while the schedule runs, for example by an item assignment."""
    checker = make_checker(tmp_path)
    folder = checker.folder
    graph = make_negation(folder, b"\1\2")
    folder.write_asked(graph)
    checker.read_news()
    assert checker.next_precisions == [None, DOUBLE, *MOVED]
    checker.compute_asked(None)
    # from here on the inputs cannot be read
    (folder.path / "blobs" / graph.inputs[0][0]).unlink()
    held = OpGraph([OpNode("buffer", "uchar", (2,))], inputs={0: (folder.keep_data(b"\xff\xfe"),)})
    graph.add(OpNode("const", "uchar", (), arg=1))
    evidence = Evidence(0, None, {"asked": graph, "got": held}, outputs={0: 0})
    check = checker.compare(evidence)
    assert [output.comparison.status for output in check.outputs] == ["equal"]
    assert check.evaluations == 2


@pytest.mark.parametrize("change", ["inputs", "nodes", "ranges"])
def test_a_schedule_with_another_graph_uses_no_value_of_the_last(tmp_path: Path, change: str) -> None:
    """Its outputs would be compared with values of another schedule."""
    checker = make_checker(tmp_path)
    folder = checker.folder
    folder.write_asked(make_negation(folder, b"\1\2"))
    checker.read_news()
    checker.compute_asked(None)
    graph = make_negation(folder, b"\1\2")
    if change == "inputs":
        graph = make_negation(folder, b"\1\3")
    elif change == "nodes":
        graph.nodes[1] = OpNode("same", "uchar", (2,), (0,))
    else:
        checker.asked.ranges[-1] = 2
    assert not graph.extends(checker.asked)
    held = OpGraph([OpNode("buffer", "uchar", (2,))], inputs={0: (folder.keep_data(b"\xff\xfe"),)})
    check = checker.compare(Evidence(0, None, {"asked": graph, "got": held}, outputs={0: 0}))
    expected = "equal" if change == "ranges" else "wrong"
    assert [output.comparison.status for output in check.outputs] == [expected]


def test_only_a_schedule_that_runs_now_is_computed(tmp_path: Path) -> None:
    """Once it has run, it is compared instead."""
    checker = make_checker(tmp_path)
    checker.folder.write_asked(make_negation(checker.folder, b"\1\2"))
    checker.folder.write(Evidence(0, None))
    checker.read_news()
    assert (checker.next_precisions, checker.waiting) == ([], ["schedule-000000.pickle"])


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
    """If each session is scheduled as a whole, a priority counts only within the process's session."""
    command = [sys.executable, "-c", f"import os\nif os.fork(): os.wait(); os._exit(0)\n{GROUPS}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "10", "10", "0"], done.stderr
