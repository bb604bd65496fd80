"""Values that are computed while the snippet runs are those that the comparison would compute."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from reference_graphs import Maker

from vmapdbg.child.compare import prefetch as module
from vmapdbg.child.compare.prefetch import Prefetch
from vmapdbg.child.compare.reference_values import DOUBLE, MOVED, ReferenceValues
from vmapdbg.child.evidence.folder import EvidenceFolder
from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.reference.graph import Graph

PRECISIONS = [None, DOUBLE, *MOVED]
Change = Callable[[EvidenceFolder, Prefetch, Evidence], None]
SOME = 5
"""Nodes that are computed before somebody asks."""


@pytest.fixture
def folder(tmp_path: Path) -> EvidenceFolder:
    return EvidenceFolder(tmp_path)


def make_graph(folder: EvidenceFolder) -> Graph:
    """A chain of matrix products whose rows are made to add up to one."""
    maker = Maker()
    rows = total = maker.input(np.random.default_rng(1).random((9, 9)), "float")
    for _ in range(3):
        left, right = maker.view("reshape", rows, (9, 9, 1)), maker.view("reshape", rows, (1, 9, 9))
        wide = [maker.view("expand", one, (9, 9, 9)) for one in (left, right)]
        product = maker.reduce("add", maker.op("mul", *wide), (1,), keep=False)
        total = maker.view("expand", maker.reduce("add", product, (1,)), (9, 9))
        rows = maker.op("mul", product, maker.op("reciprocal", total))
    names = {name: folder.keep_data(data) for name, data in maker.contents.items()}
    maker.graph.inputs = {slot: tuple(names[name] for name in kept) for slot, kept in maker.graph.inputs.items()}
    maker.graph.roots = [rows, total]
    return maker.graph


def begin(folder: EvidenceFolder, graph: Graph) -> tuple[Prefetch, Evidence]:
    """Hands a graph on, and has it taken up."""
    evidence = Evidence(0, None, graphs={"asked": graph}, asked=folder.write_asked(graph, ()))
    prefetch = Prefetch(folder)
    prefetch.start()
    return prefetch, evidence


def evaluate(values: ReferenceValues) -> list[bytes]:
    found = values.evaluate(list(values.roots))
    return [array.data for array in found if not isinstance(array, str)]


def test_values_are_the_same_to_the_bit(folder: EvidenceFolder) -> None:
    graph = make_graph(folder)
    prefetch, evidence = begin(folder, graph)
    assert not prefetch.work_until(time.monotonic() + 600)
    for precision in PRECISIONS:
        values = prefetch.take(evidence, precision)
        assert values is not None
        assert values.evaluations == 0
        right = evaluate(ReferenceValues(graph, folder.read_data, precision))
        assert len(right) == 2
        assert evaluate(values) == right
        assert values.evaluations == 1
        # it is not counted twice
        assert prefetch.take(evidence, precision) is None


def test_what_was_begun_is_gone_on_with(folder: EvidenceFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_graph(folder)
    prefetch, evidence = begin(folder, graph)
    steps = iter(range(SOME))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(steps, None) is None))
    assert prefetch.work_until(0.5)
    values = prefetch.take(evidence, None)
    assert values is not None
    computed: list[int] = []
    monkeypatch.setattr(values._evaluator, "_check_room", computed.append)
    assert evaluate(values) == evaluate(ReferenceValues(graph, folder.read_data))
    whole = ReferenceValues(graph, folder.read_data)
    both: list[int] = []
    monkeypatch.setattr(whole._evaluator, "_check_room", both.append)
    evaluate(whole)
    assert len(computed) == len(both) - SOME - 1


def _other_call(folder: EvidenceFolder, prefetch: Prefetch, evidence: Evidence) -> None:
    evidence.asked = folder.write_asked(Graph(), ())


def _node_more(folder: EvidenceFolder, prefetch: Prefetch, evidence: Evidence) -> None:
    graph = evidence.graphs["asked"]
    graph.add(graph.nodes[0])


def _compared(folder: EvidenceFolder, prefetch: Prefetch, evidence: Evidence) -> None:
    prefetch.end(evidence)


def _replay(folder: EvidenceFolder, prefetch: Prefetch, evidence: Evidence) -> None:
    evidence.asked = None


@pytest.mark.parametrize("change", [_other_call, _node_more, _compared, _replay])
def test_values_of_another_graph_are_not_taken(change: Change, folder: EvidenceFolder) -> None:
    prefetch, evidence = begin(folder, make_graph(folder))
    prefetch.work_until(time.monotonic() + 600)
    change(folder, prefetch, evidence)
    assert prefetch.take(evidence, None) is None


def test_what_has_no_room_beside_the_snippet_is_computed_later(
    folder: EvidenceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROOM_BESIDE", 100)
    prefetch, evidence = begin(folder, make_graph(folder))
    prefetch.work_until(time.monotonic() + 600)
    assert prefetch.take(evidence, None) is None


def test_files_are_named_when_they_are_there(folder: EvidenceFolder) -> None:
    """A line that is being written is not read before it is whole."""
    assert folder.read_written(0) == ([], 0)
    folder.write_asked(Graph(), ())
    folder.write(Evidence(0, None))
    names, place = folder.read_written(0)
    assert names == ["asked.pickle", "schedule-000000.pickle"]
    with (folder.path / "written").open("a") as file:
        file.write("schedule-0000")
    assert folder.read_written(place) == ([], place)
    folder.write(Evidence(7, None, replay=2))
    names, place = folder.read_written(place)
    assert names[0].endswith("schedule-000007.replay-000002.pickle")
    if os.fork() == 0:
        folder.close()
        os._exit(0)
    os.wait()
    assert folder.read_written(place) == ([], place)
    folder.close()
    assert folder.read_written(place)[0] == ["closed"]


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
