"""What `run --check` sums up, the folder that its evidence goes through, and the process that compares it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vmapdbg.check.findings import CheckedSchedule, sum_up
from vmapdbg.check.result import Comparison, KernelFault, OutputCheck, ScheduleCheck
from vmapdbg.child.compare.checker import RunChecker, check_folder
from vmapdbg.child.compare.reference_values import DOUBLE, MOVED
from vmapdbg.child.evidence.evidence import Evidence, EvidenceFolder
from vmapdbg.child.evidence.suite import SuiteFolder
from vmapdbg.commands.run import read_found
from vmapdbg.install.job import CheckRequest, Job
from vmapdbg.model.account import Left
from vmapdbg.model.crash import Crash, RewriteStep
from vmapdbg.page.check_sentences import add_messages, describe_maker
from vmapdbg.reference.graph import DEVICES, OpGraph, OpNode
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


def test_a_schedule_is_on_several_devices_if_a_graph_of_the_reference_is() -> None:
    """`check` does not promise that `why --value` finds the rewrite there. Without a graph nothing is known."""
    plain, spread = OpGraph(), OpGraph(ranges={DEVICES: 2})
    assert not Evidence(0, None).is_sharded
    assert Evidence(0, None, {"asked": plain, "passed": spread}).is_sharded
    assert not Evidence(0, None, {"asked": plain, "got": spread}).is_sharded


def test_an_endless_rewrite_of_two_tests_is_one_finding() -> None:
    steps = (RewriteStep("SIN float", "SIN float", "rules.py:3", ("SIN float",)),)
    place = ("waits", "codegen", "ops.py:9", "unified_rewrite", "add control flow")
    crash = Crash(*place, schedule=4, steps=steps, done=7)
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
    note = make_checked("a", left=(Left("replays", 3, "enough"),), schedule=-1)
    found = sum_up([make_checked("a", 1), make_checked("a", 1, replay=1), note])
    assert (found.schedules, found.replays, found.replays_compared) == (1, 1, 1)
    assert found.unchecked == {"replays of it by TinyJit: enough": 3}


def test_reasons_are_distinguished_only_by_their_text() -> None:
    lefts = [Left("outputs", 1, f"it has {size} bytes", number) for number, size in enumerate((10, 2000))]
    lefts.append(Left("elements", 1200, "C leaves them undefined"))
    lefts += [Left("replays", count, "enough") for count in (3, 1)]
    found = sum_up([make_checked("a", left=tuple(lefts))]).unchecked
    assert found == {
        "elements: C leaves them undefined": 1200,
        "replays of it by TinyJit: enough": 4,
        "it has N bytes": 2,
    }


@pytest.fixture
def suite(tmp_path: Path) -> SuiteFolder:
    (tmp_path / "ready").mkdir()
    return SuiteFolder(tmp_path)


def check_ready(folder: Path) -> list[CheckedSchedule]:
    return [check_folder(ready) for ready in sorted((folder / "ready").iterdir())]


def make_negation(folder: EvidenceFolder, data: bytes) -> OpGraph:
    graph = OpGraph([OpNode("buffer", "uchar", (len(data),)), OpNode("neg", "uchar", (len(data),), (0,))], [1])
    graph.inputs[0] = (folder.keep_data(data),)
    return graph


def make_evidence(folder: EvidenceFolder, graph: OpGraph, got: bytes) -> Evidence:
    held = OpGraph([OpNode("buffer", "uchar", (len(got),))], inputs={0: (folder.keep_data(got),)})
    return Evidence(0, "model.py:3", {"asked": graph, "got": held}, outputs={0: 0})


def test_evidence_is_handed_on_whole_and_nothing_of_it_stays(tmp_path: Path, suite: SuiteFolder) -> None:
    suite.begin("test_one")
    suite.write(make_evidence(suite, make_negation(suite, b"\1\2"), b"\xff\xfe"))
    suite.begin("test_two")
    suite.write(make_evidence(suite, make_negation(suite, b"\1\3"), b"\xff\x03"))
    suite.begin("")
    # a call that begins lets go of what the last one kept
    assert not list((suite.path / "blobs").iterdir())
    right, wrong = check_ready(tmp_path)
    assert (right.test, right.compared, right.check.outputs, right.check.line) == ("test_one", 1, (), "model.py:3")
    assert (wrong.test, wrong.check.outputs[0].comparison.index) == ("test_two", (1,))


def test_a_stopped_call_is_judged_by_what_it_should_have_computed(tmp_path: Path, suite: SuiteFolder) -> None:
    crash = Crash("waits", "codegen", None, None)
    suite.begin("test_one")
    evidence = make_evidence(suite, make_negation(suite, b"\1\2"), b"")
    suite.write(replace(evidence, failed="EndlessRewrite: without end", crash=crash, is_endless=True))
    stopped = Evidence(-1, "model.py:8", failed="EndlessRewrite: without end", crash=crash, is_endless=True)
    suite.hand_on(stopped, "test_two")
    called, outside = check_ready(tmp_path)
    check, without_call = called.check, outside.check
    assert (called.test, check.schedule, check.line, check.crash) == ("test_one", 0, "model.py:3", crash)
    assert check.unchecked == ("it raised EndlessRewrite: without end",)
    assert check.expected[0].first == (255, 254)
    assert (outside.test, without_call.schedule, without_call.line) == ("test_two", -1, "model.py:8")
    assert (without_call.crash, without_call.unchecked) == (crash, ())


def test_a_call_that_raises_is_not_compared(tmp_path: Path, suite: SuiteFolder) -> None:
    """A program may expect the error: then what the call should have computed, and the place, are no news."""
    suite.begin("test_one")
    evidence = make_evidence(suite, make_negation(suite, b"\1\2"), b"")
    suite.write(replace(evidence, failed="ValueError: no", crash=Crash("error", "schedule", None, None)))
    (checked,) = check_ready(tmp_path)
    check = checked.check
    assert (check.crash, check.expected, check.unchecked) == (None, (), ("it raised ValueError: no",))


def test_a_repeated_finding_only_says_why(tmp_path: Path, suite: SuiteFolder) -> None:
    suite.begin("test_one")
    evidence = make_evidence(suite, make_negation(suite, b"\1"), b"\xff")
    suite.write(evidence)
    evidence.left.append(Left("replays", 2, "enough"))
    suite.write(evidence)
    _, note = check_ready(tmp_path)
    check = note.check
    assert (check.schedule, note.compared, check.unchecked) == (-1, 0, ("2 replays of it by TinyJit: enough",))


@pytest.mark.parametrize(("died", "why"), [(True, "the comparing process died"), (False, "the run was stopped")])
def test_uncompared_outputs_have_a_reason(died: bool, why: str, tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / "ready" / name).mkdir(parents=True)
    assert read_found(tmp_path, "", died).unchecked == {f"it was not compared: {why}": 2}


BY_CODEGEN = "code generation made the fault"
BY_LOWERING = "the kernel as scheduled computes it right: code generation or the compiler made the fault"
LATER = "the renderer, the compiler or the machine made the fault"
FAULTS = [
    (
        KernelFault("codegen", is_same=True),
        f"the kernel as scheduled computes it right, its linear program the same wrong values: {BY_CODEGEN}",
    ),
    (
        KernelFault("codegen", is_same=False),
        "the kernel as scheduled computes it right, its linear program wrong values, but others: "
        "code generation made a fault",
    ),
    (
        KernelFault("codegen", "it writes outside of its buffer"),
        "the kernel as scheduled computes it right, its linear program does not (it writes outside of its buffer): "
        + BY_CODEGEN,
    ),
    (KernelFault("compiler"), f"the kernel as scheduled and its linear program compute it right: {LATER}"),
    (
        KernelFault("compiler", "it writes one buffer in two ways"),
        f"the kernel's linear program computes it right: {LATER}",
    ),
    (KernelFault("lowering", "it is long"), f"{BY_LOWERING} (it is long)"),
    (KernelFault("lowering"), BY_LOWERING),
]


@pytest.mark.parametrize(("fault", "sentence"), FAULTS)
def test_the_report_says_who_made_a_wrong_buffer(fault: KernelFault, sentence: str) -> None:
    assert describe_maker(fault) == sentence


# *** the process that compares


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


@pytest.fixture
def checker(tmp_path: Path) -> RunChecker:
    (tmp_path / "evidence").mkdir()
    return RunChecker(CheckRequest(job=Job("net.py"), folder=str(tmp_path)), EvidenceFolder(tmp_path / "evidence"))


def test_outputs_that_are_computed_while_a_schedule_runs_are_not_computed_again(checker: RunChecker) -> None:
    """The graph may get more nodes while the schedule runs, for example by an item assignment."""
    folder = checker.folder
    graph = make_negation(folder, b"\1\2")
    folder.write_asked(graph)
    checker.read_news()
    assert checker.next_precisions == [None, DOUBLE, *MOVED]
    checker.compute_asked(None)
    # from here on the inputs cannot be read
    (folder.path / "blobs" / graph.inputs[0][0]).unlink()
    graph.add(OpNode("const", "uchar", (), arg=1))
    check = checker.compare(make_evidence(folder, graph, b"\xff\xfe"))
    assert [output.comparison.status for output in check.outputs] == ["equal"]
    assert check.evaluations == 2


@pytest.mark.parametrize("change", ["inputs", "nodes", "ranges"])
def test_a_schedule_with_another_graph_uses_no_value_of_the_last(checker: RunChecker, change: str) -> None:
    """Its outputs would be compared with values of another schedule."""
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
    check = checker.compare(make_evidence(folder, graph, b"\xff\xfe"))
    expected = "equal" if change == "ranges" else "wrong"
    assert [output.comparison.status for output in check.outputs] == [expected]


def test_only_a_schedule_that_runs_now_is_computed(checker: RunChecker) -> None:
    """Once it has run, it is compared instead."""
    checker.folder.write_asked(make_negation(checker.folder, b"\1\2"))
    checker.folder.write(Evidence(0, None))
    checker.read_news()
    assert (checker.next_precisions, checker.waiting) == ([], ["schedule-000000.pickle"])
