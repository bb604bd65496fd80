"""Each rule has its sentence: what `show`, `why` and the JSON say about a decision, to the letter."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import captures
import pytest

from vmapdbg.diff.pairing import Renaming
from vmapdbg.model.capture import Capture, Condition, Decision, Realized, Reason
from vmapdbg.model.vocabulary import Rule
from vmapdbg.page.sentences import Names, fill_sentences, say_realized, say_reason

FUSED = {"kernels": 1, "stock_kernels": 2}
STORED = {"evaluations": 4096, "elements": 64, "bytes": 256, "ns": 2500.0, "stock_ns": 80000.0, "target": "Clang"}
DECIDED = Decision(
    "schedule/indexing.py",
    278,
    "run_rangeify",
    "realize_map[x] = axes",
    (
        Condition(270, "PCONTIG < 2", True, {"PCONTIG": "0"}),
        Condition(275, "x in out_rngs", None, {"out_rngs": "[r0, r1]", "x": "SHRINK" * 20}),
    ),
)
SENTENCES = [
    # a node is realized
    (Reason("output"), "an output of the schedule"),
    (Reason("always", (3,)), "CONTIGUOUS always asks for a buffer"),
    (Reason("kept-scope", (7,)), "VMAPOUT asks for a buffer if a CONTIGUOUS reads it"),
    (Reason("source-of", (3,)), "source of CONTIGUOUS 3"),
    (Reason("assign"), "an ASSIGN"),
    (Reason("assigned-value", (5,)), "the value of ASSIGN 5"),
    (Reason("outer-reduce"), "a REDUCE over an OUTER range"),
    (Reason("consumers-disagree", (1, 2), ("r2", "(r1+1)"), axis=1), "axis 1: MUL 1 asks r2, ADD 2 asks (r1+1)"),
    (
        Reason("consumers-disagree", (1, 2, 1, 2, 1), ("r1", "r2", "r3", "r4", "r5"), axis="rm1"),
        "rm1: MUL 1 asks r1, ADD 2 asks r2, MUL 1 asks r3 and 2 more",
    ),
    (
        Reason("loops-not-shared", (1, 2, 3, 5), ("rm1",), axis="rm1"),
        "rm1: MUL 1, ADD 2, CONTIGUOUS 3 do not share one loop over rm1",
    ),
    (Reason("ending-ranges", (4,), ("r1",)), "r1 ends at EXPAND 4"),
    (Reason("ending-ranges", (4, 6, 4), ("r1", "r2", "(r3*2)")), "r1, (r3*2) end at EXPAND 4; r2 ends at EXPAND 6"),
    (Reason("forced"), "forced to be a buffer, by bisect --decisions"),
    (Reason("stock"), "stock tinygrad does not say why"),
    # observed: where tinygrad's own code decided
    (Reason("output", at=DECIDED), "an output of the schedule (indexing.py:278)"),
    (Reason("ending-ranges", (4,), ("r1",), at=DECIDED), "r1 ends at EXPAND 4 (indexing.py:278)"),
    (
        Reason("decided-at", at=DECIDED),
        "decided at indexing.py:278: realize_map[x] = axes [PCONTIG=0, out_rngs=[r0, r1], "
        "x=SHRINKSHRINKSHRINKSHRINKSHRINKSHRINKS...]",
    ),
    (Reason("decided-at", at=replace(DECIDED, conditions=())), "decided at indexing.py:278: realize_map[x] = axes"),
    (Reason("decided-at"), "decided-at"),
    # a fusion is refused
    (
        Reason("local-too-large", numbers={"bytes": 40960, "limit": 32768}),
        "its LOCAL buffer needs 40,960 bytes, the target has 32,768",
    ),
    (
        Reason("local-over-budget", numbers={"buffers": 2, "bytes": 40960, "limit": 32768}),
        "the 2 LOCAL buffers of its kernel need 40,960 bytes, the target has 32,768",
    ),
    (
        Reason("local-read-often", numbers={"reads": 65536, "limit": 16384}),
        "its LOCAL buffer would be read 65,536 times, in a kernel that gets no opts (16,384 reads are allowed)",
    ),
    (Reason("reduce-at-two-places"), "its kernel would run the loop of one reduce at two places"),
    (Reason("not-settled", numbers={"attempts": 7}), "not settled after 7 attempts"),
    (
        Reason("not-tried", numbers={"nodes": 2100, "limit": 1500}),
        "not tried: it is in a part of 2,100 nodes, and parts of 1,500 nodes are tried in one graph",
    ),
    (
        Reason("stored-once", numbers={**STORED, "kernels": 2}),
        "computed 4,096 times for 64 elements in 2 kernels: stored once, predicted to take 0.03 times as long on Clang",
    ),
    (
        Reason("not-paid", numbers={**STORED, "kernels": 1}),
        "computed 4,096 times for 64 elements; stored once, predicted to take 0.03 times as long on Clang, which is too"
        " little",
    ),
    (
        Reason("over-memory", numbers={**STORED, "kernels": 1, "peak": 4096, "stock_peak": 128}),
        "computed 4,096 times for 64 elements; stored once, predicted to take 0.03 times as long on Clang, but buffers"
        " would take 4,096 bytes at the peak instead of 128",
    ),
    (
        Reason("codegen-fails", numbers={**FUSED, "error": "no end"}),
        "fused: 1 kernel for 2 kernels, but codegen fails on it (no end)",
    ),
    (
        Reason("no-kernel-saved", numbers={"kernels": 3, "stock_kernels": 1}),
        "fused: 3 kernels for 1 kernel: it saves no kernel",
    ),
    (
        Reason("more-memory", numbers={"peak": 4096, "stock_peak": 128}),
        "fused, its buffers would take 4,096 bytes at the peak instead of 128, and it saves too little time for that",
    ),
    (
        Reason("more-work", numbers={**FUSED, "ops": 21_000, "stock_ops": 7_000, "limit": 2.0}),
        "fused: 1 kernel for 2 kernels, but 3.0 times the work (7,000 -> 21,000 ops; 2 times is allowed)",
    ),
    (
        Reason("more-work", numbers={**FUSED, "ops": 5_000, "stock_ops": 0, "limit": 2.0}),
        "fused: 1 kernel for 2 kernels, but 5000.0 times the work (0 -> 5,000 ops; 2 times is allowed)",
    ),
    (
        Reason("fewer-threads", numbers={**FUSED, "threads": 1, "stock_threads": 1024, "limit": 0.25}),
        "fused: 1 kernel for 2 kernels, but 1,024 -> 1 threads in the least parallel one (a quarter is allowed)",
    ),
    (
        Reason("slower", numbers={**FUSED, "ns": 2_345_600.0, "stock_ns": 1250.0, "target": "Metal"}),
        "fused: 1 kernel for 2 kernels, but predicted to take 1876.48 times as long on Metal",
    ),
    (
        Reason("no-faster", numbers={**FUSED, "ns": 1240.0, "stock_ns": 1250.0, "target": "Clang"}),
        "fused: 1 kernel for 2 kernels, but predicted no faster on Clang (0.99 times as long)",
    ),
    # a BUFFERIZE is kept or removed
    (Reason("never-removed", numbers={"op": "COPY"}), "COPY is never removed"),
    (Reason("not-removable"), "not removable: a COPY reads it, or it is a buffer by its op"),
    (
        Reason("computed-again"),
        "its readers are in one kernel and share its rows: each computes it again, which is cheaper than memory",
    ),
    (Reason("never-buffered", numbers={"op": "THREEFRY"}), "THREEFRY is never buffered"),
    (Reason("many-buffers", numbers={"buffers": 4, "limit": 3}), "its value reads 4 buffers, more than 3"),
    (
        Reason("reduce-reads-buffer", numbers={"reduces": 1}),
        "a reduce in its value reads a buffer: it would run again for each element read",
    ),
    (
        Reason("reduce-reads-buffer", numbers={"reduces": 2}),
        "2 reduces in its value read a buffer: it would run again for each element read",
    ),
    (
        Reason("reduce-computed-again", numbers={"reduces": 1}),
        "a reduce in its value reads a buffer: removed anyway, by PCONTIG",
    ),
    (Reason("cost-function"), "kept by the cost function"),
    (
        Reason("few-buffers", numbers={"buffers": 1, "limit": 3}),
        "its value reads 1 buffer (3 are allowed), none of them in a reduce",
    ),
    (
        Reason("few-buffers", numbers={"buffers": 2, "limit": 3}),
        "its value reads 2 buffers (3 are allowed), none of them in a reduce",
    ),
    (Reason("no-rule"), "no rule removed it"),
    (Reason("same-index"), "no buffer is needed: its reader uses the same index"),
    (Reason("constant"), "its value is a constant"),
    (Reason("buffer-limit"), "added later: its reader reads as many buffers as the device allows in one kernel"),
    (Reason("folded"), "no buffer is needed: its reader uses the same index, or its value is a constant"),
    (Reason("schedule-failed"), "the schedule failed before its buffers were made"),
    (Reason("not-followed"), "what became of it was not seen"),
]
OPS = {1: "MUL", 2: "ADD", 3: "CONTIGUOUS", 4: "EXPAND", 5: "ASSIGN", 6: "EXPAND", 7: "VMAPOUT"}
NAMES = Names(OPS.__getitem__)


@pytest.mark.parametrize(("reason", "sentence"), SENTENCES, ids=lambda value: getattr(value, "rule", ""))
def test_rule_has_its_sentence(reason: Reason, sentence: str) -> None:
    assert say_reason(reason, NAMES) == sentence


def test_no_rule_is_without_a_sentence() -> None:
    rules = get_args(get_args(Rule)[1])
    assert {reason.rule for reason, _ in SENTENCES} == set(rules)
    assert len(rules) == len(set(rules))


def test_rule_of_a_newer_version_is_named() -> None:
    """A saved capture of a newer vmapdbg is read: what it does not know it names, with its operands."""
    newer = replace(Reason("output", (1,), ("r4",), {"steps": 3}), rule="of-tomorrow")  # type: ignore[arg-type]
    assert say_reason(newer, NAMES) == "of-tomorrow (MUL 1, r4, steps 3)"
    # nor does a rule without its operands crash
    assert say_reason(Reason("source-of"), NAMES) == "source-of"
    assert say_reason(Reason("more-work", numbers={"ops": 3}), NAMES) == "more-work (ops 3)"


def test_reasons_of_one_node_are_one_sentence_the_refusal_first() -> None:
    refused = Reason("not-settled", numbers={"attempts": 7})
    said = say_realized(Realized((0,), "ending-ranges", "", (refused, Reason("ending-ranges", (4,), ("r1",)))), NAMES)
    assert said == "not settled after 7 attempts; r1 ends at EXPAND 4"


def with_reasons(capture: Capture) -> Capture:
    schedule = capture.schedules[0]
    expand = next(node.id for node in schedule.nodes if node.op == "EXPAND")
    realized = Realized((0,), "ending-ranges", "", (Reason("ending-ranges", (expand,), ("r1",)),))
    nodes = tuple(replace(node, realized=realized) if node.op == "ADD" else node for node in schedule.nodes)
    made = Reason("many-buffers", numbers={"buffers": 4, "limit": 3})
    buffers = tuple(replace(item, reason="", decided=made) for item in schedule.bufferizes)
    return replace(capture, schedules=(replace(schedule, nodes=nodes, bufferizes=buffers),))


def test_sentences_are_added_to_the_reasons() -> None:
    schedule = fill_sentences(with_reasons(captures.lost_range())).schedules[0]
    details = [node.realized.detail for node in schedule.nodes if node.op == "ADD" and node.realized is not None]
    assert details == ["r1 ends at EXPAND 20"]
    assert {item.reason for item in schedule.bufferizes} == {"its value reads 4 buffers, more than 3"}
    # an older capture keeps the sentences that it has
    capture = captures.lost_range()
    assert fill_sentences(capture) == capture


def test_a_diff_names_the_operands_of_before_as_after_does() -> None:
    """A node without a partner in the after has a mark, so that the user does not look for it there."""
    names = Names(OPS.__getitem__, Renaming({"r1": "r7"}, {4: 40}, ("r2",)))
    reason = Reason("ending-ranges", (4, 6), ("(r1*2)", "r2"))
    assert say_reason(reason, names) == "(r7*2) ends at EXPAND 40; r2' ends at EXPAND 6'"
    disagree = Reason("consumers-disagree", (4, 6), ("r1", "r2"), axis="r1")
    assert say_reason(disagree, names) == "r7: EXPAND 40 asks r7, EXPAND 6' asks r2'"
