"""What `run --check` sums up, and the folder that its evidence goes through."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vmapdbg.check.findings import CheckedSchedule, count_reason, sum_up
from vmapdbg.check.result import Comparison, OutputCheck, ScheduleCheck
from vmapdbg.child.compare.checker import check_folder
from vmapdbg.child.evidence.evidence import Evidence
from vmapdbg.child.evidence.suite import SuiteFolder
from vmapdbg.commands.run import read_found
from vmapdbg.model.crash import Crash, RewriteStep
from vmapdbg.page.check_sentences import add_messages
from vmapdbg.reference.graph import OpGraph, OpNode
from vmapdbg.values.tolerance import make_tolerance

WRONG = Comparison("wrong", 6, 4, (0, 0), 7.0, 3.0, None, make_tolerance("float", 1, 1.0))
OUTPUT = OutputCheck(number=0, shape=(2, 3), dtype="float", comparison=WRONG)
NOTHING = ScheduleCheck(schedule=0, line=None, outputs=(), buffers=(), unchecked=(), failed=None, evaluations=0)


def make_checked(test: str, compared: int = 0, **fields: Any) -> CheckedSchedule:
    return CheckedSchedule(test, compared, replace(NOTHING, **fields))


def test_a_value_that_two_tests_get_wrong_is_one_finding() -> None:
    judged = [make_checked(test, 1, line="model.py:3", outputs=(OUTPUT,)) for test in ("a", "b", "a")]
    elsewhere = make_checked("a", 1, line="model.py:4", outputs=(OUTPUT,))
    found = sum_up([*judged, make_checked("c", 2, line="model.py:9"), elsewhere])
    assert [(w.code, w.line, w.tests, w.times) for w in found.findings] == [
        ("VD201", "model.py:3", ("a", "b"), 3),
        ("VD201", "model.py:4", ("a",), 1),
    ]
    assert (found.schedules, found.compared, found.values) == (5, 5, 6)
    message = add_messages(found).findings[0].message
    assert message == "output 0 (2, 3) float: 4 of 6 elements are wrong, the first at [0, 0]: 7.0, should be 3.0"


def test_an_endless_rewrite_of_two_tests_is_one_finding() -> None:
    steps = (RewriteStep("SIN float", "SIN float", "rules.py:3", ("SIN float",)),)
    crash = Crash(
        "waits", "codegen", "ops.py:9", "unified_rewrite", "add control flow", schedule=4, steps=steps, done=7
    )
    later = replace(crash, schedule=9, done=8)
    judged = [make_checked(test, line="model.py:3", crash=one) for test, one in (("a", crash), ("b", later))]
    elsewhere = make_checked("b", line="model.py:5", crash=later, schedule=-1)
    found = sum_up([*judged, elsewhere])
    assert [(call.code, call.line, call.tests, call.times) for call in found.endless] == [
        ("VD205", "model.py:3", ("a", "b"), 2),
        ("VD205", "model.py:5", ("b",), 1),
    ]
    assert found.schedules == 2
    message = add_messages(found).endless[0].message
    assert 'the rewrite "add control flow" has no end, while a kernel was compiled' in message
    assert "SIN float gets SIN float as a source, by the rule at rules.py:3" in message


def test_replays_are_counted_separately_and_notes_are_not_schedules() -> None:
    note = make_checked("a", unchecked=("3 of 6 replays of it by TinyJit: enough",), schedule=-1)
    found = sum_up([make_checked("a", 1), make_checked("a", 1, replay=1), note])
    assert (found.schedules, found.replays, found.replays_compared) == (1, 1, 1)
    assert found.unchecked == {"replays of it by TinyJit: enough": 3}


def test_reasons_are_distinguished_only_by_their_text() -> None:
    assert count_reason("output 3: it is too large") == count_reason("output 4: it is too large")
    assert count_reason("1,200 elements that C leaves undefined") == {"elements that C leaves undefined": 1200}


def make_folder(path: Path) -> SuiteFolder:
    (path / "ready").mkdir()
    return SuiteFolder(path)


def make_evidence(folder: SuiteFolder, data: bytes, got: bytes) -> Evidence:
    graph = OpGraph([OpNode("buffer", "uchar", (len(data),)), OpNode("neg", "uchar", (len(data),), (0,))], [1])
    graph.inputs[0] = (folder.keep_data(data),)
    held = OpGraph([OpNode("buffer", "uchar", (len(got),))], inputs={0: (folder.keep_data(got),)})
    return Evidence(0, "model.py:3", {"asked": graph, "got": held}, outputs={0: 0})


def test_evidence_is_handed_on_whole_and_nothing_of_it_stays(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    folder.begin("test_one")
    folder.write(make_evidence(folder, b"\1\2", b"\xff\xfe"))
    folder.begin("test_two")
    folder.write(make_evidence(folder, b"\1\3", b"\xff\x03"))
    folder.begin("")
    # a call that begins lets go of what the last one kept
    assert not list((folder.path / "blobs").iterdir())
    right, wrong = (check_folder(ready) for ready in sorted((tmp_path / "ready").iterdir()))
    assert (right.test, right.compared, right.check.outputs, right.check.line) == ("test_one", 1, (), "model.py:3")
    assert (wrong.test, wrong.check.outputs[0].comparison.index) == ("test_two", (1,))


def test_a_call_that_is_stopped_is_judged_by_what_it_should_have_computed(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    crash = Crash("waits", "codegen", None, None)
    folder.begin("test_one")
    evidence = make_evidence(folder, b"\1\2", b"")
    folder.write(replace(evidence, failed="EndlessRewrite: without end", crash=crash, is_endless=True))
    stopped = Evidence(-1, "model.py:8", failed="EndlessRewrite: without end", crash=crash, is_endless=True)
    folder.hand_on(stopped, "test_two")
    called, outside = (check_folder(ready) for ready in sorted((tmp_path / "ready").iterdir()))
    check, without_call = called.check, outside.check
    assert (called.test, check.schedule, check.line, check.crash) == ("test_one", 0, "model.py:3", crash)
    assert check.unchecked == ("it raised EndlessRewrite: without end",)
    assert check.expected[0].first == (255, 254)
    assert (outside.test, without_call.schedule, without_call.line) == ("test_two", -1, "model.py:8")
    assert (without_call.crash, without_call.unchecked) == (crash, ())


def test_a_call_that_raises_is_not_compared(tmp_path: Path) -> None:
    """A program may expect the error: then what the call should have computed, and the place, are no news."""
    folder = make_folder(tmp_path)
    folder.begin("test_one")
    evidence = make_evidence(folder, b"\1\2", b"")
    folder.write(replace(evidence, failed="ValueError: no", crash=Crash("error", "schedule", None, None)))
    (checked,) = (check_folder(ready) for ready in (tmp_path / "ready").iterdir())
    check = checked.check
    assert (check.crash, check.expected, check.unchecked) == (None, (), ("it raised ValueError: no",))


def test_a_repeated_finding_only_says_why(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    folder.begin("test_one")
    evidence = make_evidence(folder, b"\1", b"\xff")
    folder.write(evidence)
    evidence.unchecked.append("2 replays by TinyJit: enough")
    folder.write(evidence)
    _, note = (check_folder(ready) for ready in sorted((tmp_path / "ready").iterdir()))
    check = note.check
    assert (check.schedule, note.compared, check.unchecked) == (-1, 0, ("2 replays by TinyJit: enough",))


@pytest.mark.parametrize(("died", "why"), [(True, "the comparing process died"), (False, "the run was stopped")])
def test_uncompared_outputs_have_a_reason(died: bool, why: str, tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / "ready" / name).mkdir(parents=True)
    assert read_found(tmp_path, "", died).unchecked == {f"it was not compared: {why}": 2}
