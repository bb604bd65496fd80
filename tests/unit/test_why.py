"""`why` names the cause of a buffer, the lost range, and what would have to change."""

from __future__ import annotations

import captures
import pytest
from rendered import print_to_text

from vmapdbg.render.text.why import print_explanations
from vmapdbg.why import Explanation, UnknownSubject, explain


def sentences(explanation: Explanation) -> dict[str, tuple[str, ...]]:
    return {step.heading: step.sentences for step in explanation.steps}


def find_add() -> str:
    nodes = captures.lost_range().schedules[0].nodes
    return str(next(node.id for node in nodes if node.op == "ADD"))


def test_node_tells_each_decision_in_order() -> None:
    (explanation,) = explain(captures.lost_range(), find_add(), None)
    assert [step.heading for step in explanation.steps][:3] == ["read by", "ranges", "realized"]
    told = sentences(explanation)
    assert "ending-ranges" in told["realized"][0]
    assert told["ambient ranges"][0].startswith("rm1 (3, LOOP) from VMAPIN")
    assert "rm1*" in told["BUFFERIZE"][0]
    assert told["BUFFERIZE"][1].startswith("kept")
    assert "writes its buffer" in told["kernel"][0]
    assert not any("NOT closed" in s for s in told["BUFFERIZE"])


def test_lost_range_is_said() -> None:
    (explanation,) = explain(captures.lost_range(fixed=False), find_add(), None)
    assert any("ambient rm1 is NOT closed" in s for s in sentences(explanation)["BUFFERIZE"])


def test_kernel_by_name() -> None:
    (explanation,) = explain(captures.lost_range(), "r_3_2_2_2", None)
    assert "ADD" in sentences(explanation)["writes"][0]


def test_line_by_suffix() -> None:
    capture = captures.lost_range()
    line = next(node.line for node in capture.schedules[0].nodes if node.line and node.op == "ADD")
    assert explain(capture, line, None)
    assert explain(capture, line.rsplit("/", 1)[-1], None)


def test_without_a_subject_each_boundary_is_one_line() -> None:
    (explanation,) = explain(captures.lost_range(), None, None)
    (step,) = explanation.steps
    assert len(step.sentences) == len(set(step.sentences)) >= 1
    assert "not fused with" in step.sentences[0]


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
            output = print_to_text(lambda console, found=found: print_explanations(found, console), width)
            assert "\x1b" not in output
            assert max(map(len, output.splitlines())) <= width
