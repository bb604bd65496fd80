"""`why` names the cause of a buffer, the lost range, and what would have to change."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import captures
import pytest
from rendered import print_to_text

from vmapdbg.model.capture import Capture, Realized, Reason, Unsplit
from vmapdbg.page.sentences import fill_sentences
from vmapdbg.page.text.why import print_explanations
from vmapdbg.page.why import Explanation, UnknownSubject, explain


def sentences(explanation: Explanation) -> dict[str, tuple[str, ...]]:
    return {step.topic: (*step.sentences, *step.alerts) for step in explanation.steps}


def find_add() -> str:
    nodes = captures.lost_range().schedules[0].nodes
    return str(next(node.id for node in nodes if node.op == "ADD"))


def test_a_node_prints_each_decision_in_order() -> None:
    capture = captures.lost_range()
    (explanation,) = explain(capture, find_add(), None)
    assert [step.topic for step in explanation.steps][:3] == ["read by", "ranges", "realized"]
    told = sentences(explanation)
    assert "ending-ranges" in told["realized"][0]
    assert told["ambient ranges"][0].startswith("rm1 (3, LOOP) from VMAPIN")
    assert "rm1*" in told["BUFFERIZE"][0]
    assert told["BUFFERIZE"][1].startswith("kept")
    assert "writes its buffer" in told["kernel"][0]
    assert not any("NOT closed" in s for s in told["BUFFERIZE"])


def test_a_lost_range_is_printed() -> None:
    capture = captures.lost_range(fixed=False)
    (explanation,) = explain(capture, find_add(), None)
    assert any("ambient rm1 is NOT closed" in s for s in sentences(explanation)["BUFFERIZE"])
    assert [len(step.alerts) for step in explanation.steps if step.topic == "BUFFERIZE"] == [1]


def test_kernel_by_name() -> None:
    capture = captures.lost_range()
    (explanation,) = explain(capture, "r_3_2_2_2", None)
    assert "ADD" in sentences(explanation)["writes"][0]


def test_line_by_suffix() -> None:
    capture = captures.lost_range()
    line = next(node.line for node in capture.schedules[0].nodes if node.line and node.op == "ADD")
    assert explain(capture, line, None)
    assert explain(capture, line.rsplit("/", 1)[-1], None)


def test_without_a_subject_each_boundary_is_one_line() -> None:
    capture = captures.lost_range()
    (explanation,) = explain(capture, None, None)
    said = sentences(explanation)["boundaries"]
    assert len(said) == len(set(said)) >= 1
    assert "not fused with" in said[0]


UNSPLIT = Unsplit("gather", (1,), (), (5, 40000), (5, 1, 200), (5, 1))


def gather(unsplit: Unsplit) -> Capture:
    node = captures.make_node(3, "REDUCE_AXIS", (5, 1), line="net.py:3", arg="ADD (1,)", unsplit=unsplit)
    return fill_sentences(captures.make_capture(captures.make_schedule(nodes=(node,))))


def test_a_reduce_that_is_not_split_says_what_it_is_and_what_stock_would_do() -> None:
    capture = gather(UNSPLIT)
    (explanation,) = explain(capture, "3", None)
    assert sentences(explanation)["split"] == (
        "no: a gather, an index picks one element along axis 1 "
        "(stock makes two kernels: (5, 40000) -> (5, 1, 200) -> (5, 1))",
    )
    output = print_to_text(partial(print_explanations, [explanation]), 60)
    assert max(map(len, output.splitlines())) <= 60
    assert "  split          no: a gather" in output


def test_other_summed_axes_of_a_gather_are_printed() -> None:
    capture = gather(Unsplit("gather", (1, 2), (0,), (9, 4, 5), (1, 1, 1, 3), (1, 1, 1)))
    (explanation,) = explain(capture, "net.py:3", None)
    assert sentences(explanation)["split"] == (
        "no: a gather, an index picks one element along axes 1, 2, and what is added up along axis 0 is a reduce of "
        "its own (stock adds up all in two kernels: (9, 4, 5) -> (1, 1, 1, 3) -> (1, 1, 1))",
    )


def test_an_older_capture_has_no_remark_about_a_split() -> None:
    (explanation,) = explain(captures.lost_range(), find_add(), None)
    assert "split" not in sentences(explanation)


BECAUSE_OF = [
    ("many-buffers", "ending-ranges", "let it read at most 3 buffers"),
    ("reduce-reads-buffer", "ending-ranges", "let each element be read once"),
    ("reduce-reads-buffer", "consumers-disagree", "let its readers ask for the same ranges"),
    ("no-rule", "output", "the snippet asks for this value"),
]


@pytest.mark.parametrize(("kept_by", "realized", "advice"), BECAUSE_OF)
def test_advice_follows_from_the_rules_and_not_from_the_words(kept_by: Any, realized: Any, advice: str) -> None:
    """A sentence may be put in other words, or be in no language: what would have to change stays the same."""
    capture = captures.lost_range()
    schedule = capture.schedules[0]
    number = int(find_add())
    nodes = tuple(
        replace(node, realized=Realized((0,), realized, "")) if node.id == number else node for node in schedule.nodes
    )
    made = next(item for item in schedule.bufferizes if item.node == number)
    buffers = (replace(made, reason="", outcome="kept", decided=Reason(kept_by)),)
    changed = replace(capture, schedules=(replace(schedule, nodes=nodes, bufferizes=buffers),))
    (explanation,) = explain(changed, str(number), None)
    (said,) = sentences(explanation)["to fuse it"]
    assert said.startswith(advice)


@pytest.mark.parametrize(
    ("subject", "schedule", "message"),
    [("99999", None, "no node 99999"), ("r_nonsense", None, "'r_nonsense'"), (None, 7, "no schedule 7")],
)
def test_unknown_subject_is_one_sentence(subject: str | None, schedule: int | None, message: str) -> None:
    with pytest.raises(UnknownSubject, match=message) as raised:
        explain(captures.lost_range(), subject, schedule)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_text_keeps_to_the_width(width: int) -> None:
    for capture in (captures.lost_range(fixed=False), captures.long_graph()):
        for subject in (None, "3"):
            found = explain(capture, subject, None)
            output = print_to_text(partial(print_explanations, found), width)
            assert "\x1b" not in output
            assert max(map(len, output.splitlines())) <= width
