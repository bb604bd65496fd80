"""Each rule, by a capture with a finding and a capture without; selecting, ignoring, and the formats."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from captures import lost_range, make_capture, make_kernel, make_node, make_schedule, to_data
from rendered import flatten, print_to_text

from vmapdbg.lint import CODES, RULES, lint_capture
from vmapdbg.lint.ignores import list_mistakes, split_ignored
from vmapdbg.model.capture import Access, Bufferize, Capture, Finding, Loop, Outside, Range, Reset, Versions, WrongTime
from vmapdbg.model.store import build_data
from vmapdbg.model.vocabulary import AccessKind
from vmapdbg.page.text.lint import dump_github, dump_sarif, print_concise, print_explanation, print_text

SCOPE = (Range("rm1", 3, "LOOP", True),)


def make_access(kind: AccessKind = "store", size: int = 6, **changes: Any) -> Access:
    """An access that is right: a store to each element of data0_6."""
    access = Access("data0_6", kind, "GLOBAL", size, 0, size - 1, "Lidx0", None, 3, (), size, size, None)
    if kind == "load":
        access = replace(access, buffer="data1_6", stores=None, elements=None)
    return replace(access, **changes)


def one_kernel(*accesses: Access, ranges: tuple[Range, ...] = (), **changes: Any) -> Capture:
    """A capture of one kernel, which writes node 1."""
    changes = {"outputs": (1,), "nodes": (0, 1), "fresh": True, **changes}
    kernel = make_kernel("r_3_2", "a\nb\n  *(data0_6+Lidx0) = val0;\n", accesses=accesses, **changes)
    nodes = (make_node(0, "BUFFER"), make_node(1, "ADD", src=(0,), line="a.py:7"))
    return make_capture(make_schedule(0, nodes=nodes, ranges=ranges, kernels=(kernel,)))


def codes_of(capture: Capture, baseline: Capture | None = None) -> list[str]:
    return [finding.code for finding in lint_capture(capture, baseline)]


LOOP = Loop("Lidx0", 3, "loop")


FINE = {
    "right": (make_access(), make_access("load")),
    "undecided": (make_access(lowest=None, highest=None, stores=None, elements=None),),
    "an unknown number of elements": (make_access(stores=8, elements=None),),
    "LOCAL memory is used again": (make_access(addrspace="LOCAL", stores=12, missing=3),),
    "too many elements to count": (make_access(stores=6, elements=None),),
}


@pytest.mark.parametrize("what", FINE)
def test_no_finding(what: str) -> None:
    assert codes_of(one_kernel(*FINE[what])) == []


def test_lost_loop() -> None:
    capture = one_kernel(make_access(lost=(LOOP,), address="0"))
    (found,) = lint_capture(capture)
    assert found.message == (
        "kernel r_3_2 loops over Lidx0 (3) but its store to data0_6 does not use it: only one of 3 iterations survives"
    )
    place = (found.code, found.kernel, found.node, found.line, found.schedule, found.number, found.source_line)
    assert place == ("VD101", "r_3_2", 1, "a.py:7", 0, 0, 3)
    assert found.advice == "vmapdbg why 0/1 (the ranges its buffer closes)"


def test_lost_loop_has_the_name_of_the_range_and_the_patch() -> None:
    lost = Bufferize(1, ("r4",), ("rm1",), 2, 16, "GLOBAL", "kept", "")
    (schedule,) = one_kernel(make_access(lost=(LOOP,)), ranges=SCOPE).schedules
    patches = {"ambient-ranges": False, "nested-ranges": True}
    (found,) = lint_capture(make_capture(replace(schedule, bufferizes=(lost,)), patches=patches))
    assert "loops over rm1 (3, Lidx0 in the source)" in found.message
    assert found.advice == "turn ambient-ranges on (--patches all)"


USES = "its store to data0_6 does not use"


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        ([Loop("gidx0", 4, "thread")], f"runs threads over gidx0 (4) but {USES} it: only one of 4 threads"),
        ([Loop("gidx0", 4, "launch")], f"is launched for each step of gidx0 (4) but {USES} it: only the last of 4"),
        ([LOOP, Loop("Lidx1", 5, "loop")], "does not use them: only one of 15 iterations survives"),
    ],
)
def test_lost_threads_launches_and_several_loops(lost: list[Loop], words: str) -> None:
    (found,) = lint_capture(one_kernel(make_access(lost=tuple(lost))))
    assert words in found.message


def test_stores_that_meet() -> None:
    (found,) = lint_capture(one_kernel(make_access(stores=8)))
    assert found.code == "VD101"
    assert "stores 8 values to 6 elements of data0_6: 2 values are overwritten" in found.message


def test_a_schedule_that_failed_has_its_buffers() -> None:
    lost = Bufferize(1, ("r4",), ("rm1",), 2, 16, "GLOBAL", "kept", "")
    capture = one_kernel(make_access())
    failed = make_schedule(1, nodes=capture.schedules[0].nodes, bufferizes=(lost,), ranges=SCOPE)
    (found,) = lint_capture(replace(capture, schedules=(*capture.schedules, failed)))
    assert (found.code, found.kernel, found.node, found.schedule) == ("VD101", None, 1, 1)


def test_local_memory() -> None:
    over = one_kernel(make_access(), local_bytes=40960, local_limit=32768, target="metal")
    (found,) = lint_capture(over)
    assert found.code == "VD102"
    assert "needs 40,960 bytes of LOCAL memory, a group of threads has 32,768 on metal" in found.message
    assert codes_of(one_kernel(make_access(), local_bytes=32768, local_limit=32768)) == []
    # a target without such memory
    assert codes_of(one_kernel(make_access(), local_bytes=40960)) == []


def test_parallelism_needs_a_baseline() -> None:
    after = one_kernel(make_access(), threads=1, executed_ops=2000)
    before = one_kernel(make_access(), threads=64, executed_ops=2000)
    assert codes_of(after) == []
    (found,) = lint_capture(after, before)
    assert found.code == "VD103"
    assert "runs 1 thread where the baseline's r_3_2 runs 64: each does 2,000 ops instead of 31" in found.message
    assert codes_of(before, after) == []

    # fewer threads for less work
    assert codes_of(one_kernel(make_access(), threads=1, executed_ops=31), before) == []
    # a kernel without a program has no threads to lose
    refused = one_kernel(make_access(), threads=0, executed_ops=0)
    assert codes_of(refused, before) == []
    assert codes_of(before, refused) == []


def test_another_graph_is_not_compared() -> None:
    after = one_kernel(make_access(), threads=1, executed_ops=2000)
    before = one_kernel(make_access(), threads=64, executed_ops=2000)
    other = replace(before.schedules[0], nodes=(make_node(0, "BUFFER"), make_node(1, "MUL")))
    assert codes_of(after, replace(before, schedules=(other,))) == []


def test_redundant_work() -> None:
    twice = one_kernel(make_access(), executed_ops=50_000, redundancy=5.0)
    (found,) = lint_capture(twice)
    assert found.code == "VD104"
    assert "executes 50,000 ops where the graph asks for 10,000: 5.0 times the work" in found.message
    # as the baseline does
    assert codes_of(twice, twice) == []
    assert codes_of(one_kernel(make_access(), executed_ops=50_000, redundancy=3.9)) == []
    assert codes_of(one_kernel(make_access(), executed_ops=900, redundancy=90.0)) == []
    assert codes_of(one_kernel(make_access(), executed_ops=50_000, redundancy=None)) == []


def copied(*others: Any, load: str = "Lidx0", method: str | None = "custom_kernel", ops: int = 0) -> Capture:
    """A kernel that copies node 0 to node 1, and a kernel that reads the copy; `others` are further nodes."""
    nodes = make_node(0, "PARAM"), make_node(1, "RESHAPE", src=(0,), method=method), make_node(2, "ADD", src=(1,))
    accesses = make_access("load", address=load), make_access()
    copy = make_kernel("E_6", accesses=accesses, nodes=(1,), outputs=(1,), executed_ops=ops)
    reader = make_kernel("E_6n1", nodes=(2,), outputs=(2,), executed_ops=6)
    return make_capture(make_schedule(nodes=(*nodes, *others), kernels=(copy, reader)))


def test_a_copy_whose_readers_could_read_the_original() -> None:
    (found,) = lint_capture(copied())
    assert (found.code, found.node, found.advice) == ("VD111", 1, "see what made the copy: vmapdbg why 0/1")
    assert found.message == "kernel E_6 only copies 6 elements: its readers could read the original"
    # in another order, asked for, or it computes something
    assert codes_of(copied(load="Lidx0+1")) == []
    assert codes_of(copied(method="contiguous")) == []
    assert codes_of(copied(ops=6)) == []
    # the original is overwritten
    assert codes_of(copied(make_node(3, "STORE", src=(0, 2)))) == []


def written_aside(read: str = "Lidx0+2") -> Capture:
    """A kernel that reads a slice, and a kernel that copies its result to the slice."""
    nodes = make_node(0, "PARAM"), make_node(1, "ADD", src=(0,)), make_node(2, "STORE", src=(0, 1), method="assign")
    result = make_access(size=2, buffer="data0_2")
    first = make_access("load", size=4, address=read, lowest=2), result
    second = make_access("load", size=2), make_access(size=4, address="Lidx0+2", lowest=2, stores=2, elements=2)
    add = make_kernel("E_2", accesses=first, nodes=(1,), outputs=(1,), fresh=True, executed_ops=2)
    copy = make_kernel("E_2n1", accesses=second, nodes=(2,), outputs=(2,), executed_ops=0)
    return make_capture(make_schedule(nodes=nodes, kernels=(add, copy)))


def test_a_copy_that_the_kernel_before_could_do() -> None:
    (found,) = lint_capture(written_aside())
    assert found.message == "kernel E_2n1 only copies 2 elements: kernel E_2 #0 could write there"
    # it reads what another step would have replaced
    assert codes_of(written_aside("Lidx0+1")) == []


@pytest.mark.parametrize(
    ("method", "size", "ops", "is_found"),
    [
        ("cumsum", 2048, 2048 * 2048, True),
        ("logcumsumexp", 2048, 2048 * 2048, True),
        ("sum", 2048, 2048 * 2048, False),
        ("cumsum", 512, 512 * 512, False),
        # replaced by a formula
        ("cumsum", 2048, 4096, False),
    ],
)
def test_a_scan_that_reads_all_elements_for_each_result(method: str, size: int, ops: int, is_found: bool) -> None:
    nodes = make_node(0, "PARAM", (size, size)), make_node(1, "REDUCE_AXIS", (size, 1), src=(0,), method=method)
    kernel = make_kernel("r_1", nodes=(1,), outputs=(1,), executed_ops=ops)
    found = lint_capture(make_capture(make_schedule(nodes=nodes, kernels=(kernel,))))
    assert [one.code for one in found] == ["VD112"] * is_found
    if is_found:
        assert found[0].message == f"{method} reads 4,194,304 elements for 2,048 results: 2,048 for each"


def redundant(*off: str, version: str | None = None) -> Capture:
    """A kernel that does too much work, with some patches off; or observed in a release."""
    capture = one_kernel(make_access(), executed_ops=50_000, redundancy=5.0)
    if version is not None:
        return replace(capture, patches={}, versions=Versions("0.1.0", version, "3.11.7"))
    names = ("fuse-broadcast", "fusion-guard", "realize-reused")
    return replace(capture, patches={name: name not in off for name in names})


def cheaper(*off: str) -> Capture:
    """A baseline that does with two kernels what `redundant` does with one."""
    before = redundant(*off)
    (kernel,) = before.schedules[0].kernels
    first, second = replace(kernel, executed_ops=9000, outputs=(0,)), replace(kernel, executed_ops=9000)
    return replace(before, schedules=(replace(before.schedules[0], kernels=(first, second)),))


UNFUSED = cheaper("fuse-broadcast")
OWN_BUFFER = ".contiguous() after the value that should be a buffer of its own (which: vmapdbg tune)"
REUSE_ON = "turn realize-reused on (--patches all)"
BOTH_ON = "turn fusion-guard and realize-reused on (--patches all)"
ADVICES = {
    "every patch on": (redundant(), None, OWN_BUFFER),
    "the guard off": (redundant("fusion-guard"), UNFUSED, "turn fusion-guard on (--patches all)"),
    "reuse off": (redundant("realize-reused"), None, REUSE_ON),
    "both off": (redundant("fusion-guard", "realize-reused"), None, BOTH_ON),
    # there is no fusion that a guard could refuse
    "none on": (redundant("fuse-broadcast", "fusion-guard", "realize-reused"), None, REUSE_ON),
    "fused": (redundant(), UNFUSED, OWN_BUFFER),
    # .contiguous() makes no buffer if its source has only constants
    "from 0.14 on": (redundant(version="0.14.0"), None, OWN_BUFFER.replace(".contiguous()", ".clone()")),
    "0.13": (redundant(version="0.13.0"), None, OWN_BUFFER),
    "unknown": (redundant(version="main"), None, OWN_BUFFER),
}


@pytest.mark.parametrize("case", ADVICES)
def test_the_advice_names_the_patches_that_are_off(case: str) -> None:
    after, before, advice = ADVICES[case]
    (found,) = lint_capture(after, before)
    assert (found.code, found.advice) == ("VD104", advice)


@pytest.mark.parametrize(("lowest", "highest", "worst"), [(-1, 4, -1), (0, 6, 6)])
def test_address_outside(lowest: int, highest: int, worst: int) -> None:
    wrong = make_access("load", lowest=lowest, highest=highest, gate="Lidx0<9")
    (found,) = lint_capture(one_kernel(make_access(), wrong))
    assert found.code == "VD105"
    assert f"loads element {worst} of data1_6, which has 6 elements" in found.message
    assert f"its address Lidx0 where Lidx0<9 goes from {lowest} to {highest}" in found.message


def test_range_outside_names_the_node_that_made_it() -> None:
    """A node hands its ranges on: those above it have the same wrong index."""
    outside = (Outside(0, "(r0+1)", 1, 5, 5),)
    nodes = (
        make_node(0, "BUFFER"),
        make_node(1, "ADD", src=(0,), outside=outside),
        make_node(2, "SHRINK", src=(1,), outside=outside, line="a.py:9"),
        make_node(3, "MUL", src=(2,)),
    )
    buffer = Bufferize(0, ("r0",), (), 5, 20, "GLOBAL", "kept", "", outside=outside)
    kernel = make_kernel("E_5", accesses=(make_access("load", highest=6),), nodes=(1, 2, 3), outputs=(3,))
    capture = make_capture(make_schedule(0, nodes=nodes, bufferizes=(buffer,), kernels=(kernel,)))
    (found,) = lint_capture(capture)
    assert (found.code, found.node, found.line, found.kernel) == ("VD105", 2, "a.py:9", "E_5")
    assert "node 2 SHRINK takes element 5 of axis 0 of its source (node 1), which has 5 elements there" in found.message


def test_elements_never_written() -> None:
    partly = make_access(stores=4, elements=4, missing=2)
    (found,) = lint_capture(one_kernel(partly))
    assert found.code == "VD106"
    assert found.message == "kernel r_3_2 writes 4 of the 6 elements of data0_6: element 2 is never written"
    # an assign to a slice
    assert codes_of(one_kernel(partly, fresh=False)) == []
    # too many to count, and still too few
    assert codes_of(one_kernel(make_access(stores=5, elements=None))) == ["VD106"]


def test_open_range() -> None:
    buffer = Bufferize(1, ("r4",), (), 2, 16, "GLOBAL", "kept", "", left_open=("rm1",))
    (schedule,) = one_kernel(make_access()).schedules
    (found,) = lint_capture(make_capture(replace(schedule, bufferizes=(buffer,))))
    assert (found.code, found.node, found.kernel) == ("VD107", 1, "r_3_2")
    assert found.message.startswith("range rm1 is left open: node 1 ADD is stored to a buffer, its value depends on it")
    for fine in ({"outcome": "removed"}, {"addrspace": "LOCAL"}, {"left_open": ()}):
        assert codes_of(make_capture(replace(schedule, bufferizes=(replace(buffer, **fine),)))) == []


def test_loop_without_end() -> None:
    (found,) = lint_capture(one_kernel(make_access(), open_loops=("Lidx0",)))
    assert found.message == "kernel r_3_2 opens Lidx0 and never ends it"


def test_accumulator_that_is_initialised_in_its_loop() -> None:
    capture = one_kernel(make_access(), resets=(Reset("acc0", (Loop("Ridx2", 12, "loop"),), 3),))
    (found,) = lint_capture(capture)
    assert found.message == (
        "kernel r_3_2 initialises acc0 in each step of the loop that adds to it (Ridx2, 12 steps): "
        "only the last step is left in it"
    )
    assert (found.code, found.node, found.line, found.source_line) == ("VD108", 1, "a.py:7", 3)
    loops = (Loop("Ridx2", 12, "loop"), Loop("Ridx3", 3, "loop"))
    (found,) = lint_capture(one_kernel(make_access(), resets=(Reset("acc0", loops, None),)))
    assert "in each step of the loops that add to it (Ridx2, Ridx3, 36 steps)" in found.message


def two_kernels(writer: Access, reader: Access, early: tuple[int, ...] = (), late: tuple[int, ...] = ()) -> Capture:
    """A capture with a kernel that assigns to node 0, and a kernel that reads it at the wrong time."""
    wrong = WrongTime("data1_6", 0, early, late)
    kernels = (
        make_kernel("E_6", accesses=(writer,), outputs=(2,)),
        make_kernel("E_6n1", accesses=(make_access(), reader), outputs=(1,), wrong_times=(wrong,)),
    )
    nodes = (make_node(0, "BUFFER"), make_node(1, "ADD", src=(0,), line="a.py:7"), make_node(2, "ASSIGN"))
    return make_capture(make_schedule(0, nodes=nodes, kernels=kernels))


def test_a_read_at_the_wrong_time() -> None:
    load = make_access("load")
    (found,) = lint_capture(two_kernels(make_access(), load, early=(0,)))
    assert (found.code, found.node, found.line, found.number) == ("VD109", 1, "a.py:7", 1)
    assert found.message == (
        "kernel E_6n1 reads data1_6 after kernel E_6 #0 has written it: the graph asks for what BUFFER 0 held before"
    )
    (found,) = lint_capture(two_kernels(make_access(), load, late=(0,)))
    assert found.message == (
        "kernel E_6n1 reads data1_6 before kernel E_6 #0 writes it: the graph asks for what BUFFER 0 holds then"
    )


def test_a_read_of_other_elements_may_be_at_any_time() -> None:
    half = make_access(lowest=3, stores=3, elements=3)
    assert codes_of(two_kernels(half, make_access("load", lowest=3), early=(0,))) == ["VD109"]
    assert codes_of(two_kernels(half, make_access("load", highest=2), early=(0,))) == []
    # every second element is stored, and it is unknown which elements are read
    assert codes_of(two_kernels(make_access(stores=3, elements=3), make_access("load"), early=(0,))) == []
    undecided = make_access("load", lowest=None, highest=None)
    assert codes_of(two_kernels(make_access(), undecided, early=(0,))) == ["VD109"]
    assert codes_of(two_kernels(half, undecided, early=(0,))) == []


def test_an_input_that_is_overwritten() -> None:
    (found,) = lint_capture(one_kernel(make_access(), overwrites=0))
    assert (found.code, found.node, found.line) == ("VD110", 1, "a.py:7")
    assert found.message == "kernel r_3_2 writes ADD 1 to the memory of BUFFER 0, which nothing assigns to"


def test_faults_come_before_costs_and_repeats_are_one_finding() -> None:
    capture = one_kernel(make_access(stores=8), executed_ops=50_000, redundancy=5.0)
    again = replace(capture, schedules=(*capture.schedules, replace(capture.schedules[0], index=1)))
    assert codes_of(again) == ["VD101", "VD104"]
    assert [f.code for f in lint_capture(again, codes=["VD104"])] == ["VD104"]


def test_a_capture_without_facts() -> None:
    """Captures from before have no accesses: nothing is said about memory."""
    assert codes_of(lost_range(fixed=False)) == []
    data = to_data(one_kernel(make_access()))
    for field in ("accesses", "fresh", "open_loops", "local_limit", "resets", "races"):
        del data["schedules"][0]["kernels"][0][field]
    assert build_data(Capture, data).schedules[0].kernels[0].accesses is None


def test_ignore_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ["a = 1  # vmapdbg: ignore[VD104]", "b = 2  # vmapdbg: ignore", "c = 3  #vmapdbg:ignore[VD101, VD105]"]
    Path("a.py").write_text("\n".join([*lines, "d = 4"]), encoding="utf-8")

    def stays(code: str, line: str | None) -> bool:
        stay, ignored = split_ignored([Finding(code, None, None, line, "")])
        assert len(stay) + len(ignored) == 1
        return bool(stay)

    assert not stays("VD104", "a.py:1")
    assert stays("VD101", "a.py:1")
    assert not stays("VD101", "a.py:2")
    assert not stays("VD105", "a.py:3")
    assert stays("VD104", "a.py:3")
    for elsewhere in ("a.py:4", "a.py:9", "a.py:0", "gone.py:1", "<string>:1", None):
        assert stays("VD104", elsewhere)


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("ignore[VD999]", "unknown code 'VD999' in ignore[VD999]: choose from VD101, VD102"),
        ("ignore[VD101,VD1]", "unknown code 'VD1' in ignore[VD101,VD1]: choose from VD101, VD102"),
        ("ignore[]", "unknown code '' in ignore[]: choose from VD101, VD102"),
        ("ignore[VD104", "# vmapdbg: ignore[VD104 has no ] at its end"),
    ],
)
def test_a_comment_that_hides_no_finding_by_mistake_is_told(comment: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(f"x = 1  # vmapdbg: {comment}\n", encoding="utf-8")
    finding = Finding("VD104", None, None, f"{file}:1", "")
    assert split_ignored([finding]) == ((finding,), ())
    assert list(list_mistakes([finding, finding], ("VD101", "VD102"))) == [f"{file}:1: {words}"]


def test_a_file_without_an_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for file in ("/dev/zero", str(tmp_path / "fifo")):
        finding = Finding("VD101", None, None, f"{file}:1", "")
        assert split_ignored([finding]) == ((finding,), ())


@pytest.mark.parametrize("width", [24, 60, 80, 200])
def test_text_fits(width: int) -> None:
    capture = one_kernel(make_access(lost=(LOOP,)))
    linted = replace(capture, findings=lint_capture(capture))
    output = print_to_text(lambda page: print_text(linted, 2, page), width)
    assert max(len(line) for line in output.splitlines()) <= width
    flat = flatten(output)
    source = "c:3 | *(data0_6+Lidx0) = val0;"
    for words in ("a.py:7 VD101 overlapping stores", "1 finding in 1 kernel", "2 ignored", source, "node 0/1 ADD"):
        assert words in flat or width == 24


def test_concise_is_one_line() -> None:
    found = Finding("VD101", "k", 1, "a.py:7", "message " * 30)
    output = print_to_text(lambda console: print_concise([found], console, "a.py"), 60)
    assert output.count("\n") == 1
    assert output.startswith("a.py:7: VD101 message")


@pytest.mark.parametrize("rule", RULES, ids=CODES)
def test_every_rule_is_explained(rule: Any) -> None:
    output = print_to_text(
        lambda console: print_explanation(rule.code, rule.name, rule.severity, rule.explanation, console)
    )
    assert output.startswith(f"{rule.code}  {rule.name} ({rule.severity})\n\n")
    assert all(word in output for word in ("How it decides", "What to try"))


def test_github_escapes() -> None:
    found = Finding("VD104", None, None, "a,b:c.py:7", "100% more\nwork", advice="try")
    assert dump_github([found], RULES) == (
        "::warning file=a%2Cb%3Ac.py,line=7,title=VD104 redundant work::100%25 more%0Awork - try: try\n"
    )
    assert dump_github([replace(found, line=None)], RULES).startswith("::warning title=")


def test_sarif() -> None:
    found = Finding("VD105", "k", 3, "/x/a b.py:7", "outside", schedule=0, advice="look")
    run = json.loads(dump_sarif([found, replace(found, line=None)], RULES))["runs"][0]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == list(CODES)
    first, second = run["results"]
    assert run["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == first["ruleId"] == "VD105"
    location = first["locations"][0]["physicalLocation"]
    assert location == {"artifactLocation": {"uri": "file:///x/a%20b.py"}, "region": {"startLine": 7}}
    assert first["message"]["text"] == "outside. Try: look"
    assert "locations" not in second
