"""`why` names the cause of a buffer, the lost range, and what would have to change. `why --value` prints how values
went through the passes, and what is doubted."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import captures
import pytest
from captures import make_capture, make_node, make_schedule
from rendered import flatten, print_to_text

from vmapdbg.check.result import Difference, OutputPath, PassValue, SchedulePath, ValueReport, WrongRewrite
from vmapdbg.child.passes.follow import without_doubtful
from vmapdbg.model.capture import Bufferize, Capture, Unsplit
from vmapdbg.page.sentences import fill_sentences
from vmapdbg.page.text.why import print_explanations, print_value_paths
from vmapdbg.page.why import UnknownSubject, explain

LOST = captures.lost_range()
(ADD,) = (node for node in LOST.schedules[0].nodes if node.op == "ADD")


def make_buffer(node: int) -> Bufferize:
    return Bufferize(node, (), (), 4, 32, "GLOBAL", "kept", "it is an output")


def sentences(subject: str | None, capture: Capture = LOST) -> dict[str, tuple[str, ...]]:
    """What `why` says about a subject, by topic."""
    (explanation,) = explain(capture, subject, None)
    return {step.topic: (*step.sentences, *step.alerts) for step in explanation.steps}


def test_a_node_prints_each_decision_in_order() -> None:
    said = sentences(str(ADD.id))
    assert list(said)[:3] == ["read by", "ranges", "decision"]
    assert "ending-ranges" in said["decision"][0]
    assert said["ambient ranges"][0].startswith("rm1 (3, LOOP) from VMAPIN")
    assert "rm1*" in said["BUFFERIZE"][0]
    assert said["BUFFERIZE"][1].startswith("kept")
    assert "writes its buffer" in said["kernel"][0]
    assert not any("NOT closed" in s for s in said["BUFFERIZE"])
    # a capture of an older version has no remark about a split
    assert "split" not in said


def test_a_lost_range_is_printed() -> None:
    (explanation,) = explain(captures.lost_range(fixed=False), str(ADD.id), None)
    (alerts,) = (step.alerts for step in explanation.steps if step.topic == "BUFFERIZE")
    assert len(alerts) == 1
    assert "ambient rm1 is NOT closed" in alerts[0]


def test_other_subjects() -> None:
    assert "ADD" in sentences("r_3_2_2_2")["writes"][0]
    assert ADD.line
    assert explain(LOST, ADD.line, None)
    assert explain(LOST, ADD.line.rsplit("/", 1)[-1], None)
    # without a subject, each boundary
    boundaries = explain(LOST, None, None)
    assert boundaries
    for boundary in boundaries:
        kernels, why = boundary.steps
        assert "not fused with" in kernels.sentences[0]
        assert why.sentences


def test_a_node_is_named_with_its_schedule() -> None:
    """A number alone is another node in each schedule."""
    (alone,) = explain(LOST, str(ADD.id), None)
    (named,) = explain(LOST, f"0/{ADD.id}", None)
    assert alone == named
    assert f"node 0/{ADD.id} ADD" in named.title
    for unknown in ("7/1", "0/99999"):
        with pytest.raises(UnknownSubject):
            explain(LOST, unknown, None)


def test_what_costs_most_is_explained_first_and_equal_things_once() -> None:
    """Else a line of a network prints thousands of lines, in the order of the graph."""
    large = make_node(900, "ADD", (128, 128), line="net.py:3")
    same = [make_node(n, "ADD", (128, 128), line="net.py:3") for n in range(901, 904)]
    small = [make_node(n, "MUL", (n % 50 + 1, n), line="net.py:3") for n in range(1, 200)]
    nodes = (*small, large, *same)
    buffers = tuple(make_buffer(node.id) for node in nodes)
    capture = make_capture(make_schedule(nodes=nodes, bufferizes=buffers))
    found = explain(capture, "net.py:3", None)
    assert {one.node for one in found[:4]} == {900, 901, 902, 903}
    lines = print_to_text(partial(print_explanations, found), 80).splitlines()
    assert len(lines) <= 60
    assert lines[0] == "203 nodes, 200 different, what costs most first"
    assert lines[2].endswith("net.py:3  x4")
    assert "more; --all explains each of the 203" in lines[-1]
    every = print_to_text(partial(print_explanations, found, show_all=True), 80)
    assert all(f"node 0/{node.id} " in every for node in nodes)


def test_a_kernel_names_the_reason_of_the_buffers_in_it_once() -> None:
    nodes = tuple(make_node(n, "ADD", (4,), src=(n - 1,) * (n > 1)) for n in range(1, 21))
    buffers = tuple(replace(make_buffer(n), outcome="removed", reason="folded") for n in range(1, 20))
    kernel = captures.make_kernel("E_4", nodes=tuple(range(1, 21)), outputs=(20,))
    said = sentences("E_4", make_capture(make_schedule(nodes=nodes, bufferizes=buffers, kernels=(kernel,))))
    assert said["fused into it"] == ("ADD 1, ADD 2, ADD 3 and 16 more: removed, folded",)


GATHERS = {
    "along axis 1 (stock makes two kernels: (5, 40000) -> (5, 1, 200) -> (5, 1))": Unsplit(
        "gather", (1,), (), (5, 40000), (5, 1, 200), (5, 1)
    ),
    "along axes 1, 2, and what is added up along axis 0 is a reduce of its own "
    "(stock adds up all in two kernels: (9, 4, 5) -> (1, 1, 1, 3) -> (1, 1, 1))": Unsplit(
        "gather", (1, 2), (0,), (9, 4, 5), (1, 1, 1, 3), (1, 1, 1)
    ),
}


@pytest.mark.parametrize("sentence", GATHERS)
def test_a_reduce_that_is_not_split_says_what_it_is_and_what_stock_would_do(sentence: str) -> None:
    node = make_node(3, "REDUCE_AXIS", (5, 1), line="net.py:3", arg="ADD (1,)", unsplit=GATHERS[sentence])
    capture = fill_sentences(make_capture(make_schedule(nodes=(node,))))
    said = (f"no: a gather, an index picks one element {sentence}",)
    assert sentences("3", capture)["split"] == sentences("net.py:3", capture)["split"] == said
    output = print_to_text(partial(print_explanations, explain(capture, "3", None)), 60)
    assert max(map(len, output.splitlines())) <= 60
    assert "  split          no: a gather" in output


@pytest.mark.parametrize(
    ("subject", "schedule", "message"),
    [("99999", None, "no node 99999"), ("r_nonsense", None, "'r_nonsense'"), (None, 7, "no schedule 7")],
)
def test_unknown_subject_is_one_sentence(subject: str | None, schedule: int | None, message: str) -> None:
    with pytest.raises(UnknownSubject, match=message) as raised:
        explain(LOST, subject, schedule)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_text_keeps_to_the_width(width: int) -> None:
    for capture in (captures.lost_range(fixed=False), captures.long_graph()):
        for subject in (None, "3"):
            found = explain(capture, subject, None)
            output = print_to_text(partial(print_explanations, found), width)
            assert "\x1b" not in output
            assert max(map(len, output.splitlines())) <= width


# *** values

WRONG = Difference((0, 1), 7.0, 3.0, 4, 6)
RIGHT = PassValue("number the uops", "tinygrad/schedule/rangeify.py:550", "right")
CHANGED = PassValue("apply rangeify", "tinygrad/schedule/indexing.py:277", "wrong", WRONG)
UNKNOWN = PassValue("split kernels", None, "unknown", reason="it is too large")
ORDER = PassValue("the kernels in their order, by numpy", None, "wrong", WRONG, kind="order")
RUN = PassValue("the kernels as they ran", None, "wrong", WRONG, kind="run")
REWRITE = WrongRewrite(
    "rule", "MUL(x, 1)", "x", "tinygrad/uop/symbolic.py:12", WRONG, ("r0",), None, None, 9, 2, ("r1",)
)


def make_report(*passes: PassValue, rewrite: WrongRewrite | None = None) -> ValueReport:
    output = OutputPath(0, (2, 3), "float", passes, node=1, line="program.py:2", rewrite=rewrite)
    return ValueReport((SchedulePath(0, "program.py:3", (output,), asked=1),))


def show(report: ValueReport, width: int = 120) -> str:
    capture = make_capture(make_schedule(nodes=(make_node(1, "ADD"),)))
    return print_to_text(
        lambda console: print_value_paths(capture, report, report.settle(None, is_part=True), console), width
    )


def test_a_pass_is_not_accused_if_a_later_pass_is_right() -> None:
    passes = without_doubtful([RIGHT, CHANGED, replace(RIGHT, name="split kernels")])
    assert [one.status for one in passes] == ["right", "unknown", "right"]
    assert passes[1].difference is None
    assert "right again after a later pass" in (passes[1].reason or "")
    # what stays wrong is accused
    passes = (RIGHT, UNKNOWN, CHANGED, RUN)
    assert without_doubtful(passes) == passes


@pytest.mark.parametrize("width", [24, 60, 80, 200])
def test_it_fits_the_page(width: int) -> None:
    text = show(make_report(RIGHT, CHANGED, UNKNOWN, ORDER, RUN, rewrite=REWRITE), width)
    assert max(map(len, text.splitlines())) <= width


def test_the_rewrite_is_printed() -> None:
    said = flatten(show(make_report(RIGHT, CHANGED, RUN, rewrite=REWRITE)))
    assert "1 of 1 output wrong" in said
    assert "wrong [0, 1] is 7.0, should be 3.0; 4 of 6" in said
    assert "wrong in the same way" in said
    assert "the first rewrite that changes it, in apply rangeify, by the rule at tinygrad/uop/symbolic.py:12" in said
    assert "at r0 = 0, [1] it is 7.0, and was 3.0" in said
    assert "depends on r1, which it should not" in said
    assert "9 steps looked at, 2 of them could not be evaluated" in said


@pytest.mark.parametrize(
    ("passes", "sentence"),
    [
        ((RIGHT, RUN), "the scheduler makes it right"),
        ((RIGHT, ORDER, RUN), "each kernel is right, but their order is wrong"),
        ((UNKNOWN, ORDER, RUN), "a later step makes it wrong, and it is unknown which"),
        ((RIGHT, UNKNOWN, RUN), "a later step makes it wrong, and it is unknown which"),
        ((RIGHT, CHANGED, RUN), "apply rangeify: what makes it wrong was not found"),
    ],
)
def test_unknown_outputs_are_printed(passes: tuple[PassValue, ...], sentence: str) -> None:
    assert sentence in flatten(show(make_report(*passes)))


def test_a_right_output_is_one_line() -> None:
    said = show(make_report(RIGHT, UNKNOWN), 160)
    assert "1 output right after each pass but 1 that could not be evaluated (it is too large)" in said
