"""How values went through the passes: what is doubted, and how it is printed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from captures import make_capture, make_node, make_schedule
from rendered import flatten, print_to_text

from vmapdbg.check.result import Difference, OutputPath, PassValue, SchedulePath, ValueReport, WrongRewrite
from vmapdbg.child.passes.follow import without_doubtful
from vmapdbg.page.text.why import print_value_paths

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
    return ValueReport((SchedulePath(0, "program.py:3", (output,)),))


def show(report: ValueReport, width: int = 120) -> str:
    capture = make_capture(make_schedule(nodes=(make_node(1, "ADD"),)))
    return print_to_text(lambda console: print_value_paths(capture, report, console), width)


def test_a_pass_is_not_accused_if_a_later_pass_is_right() -> None:
    settled = without_doubtful([RIGHT, CHANGED, replace(RIGHT, name="split kernels")])
    assert [one.status for one in settled] == ["right", "unknown", "right"]
    assert settled[1].difference is None
    assert "right again after a later pass" in (settled[1].reason or "")


def test_what_stays_wrong_is_accused() -> None:
    passes = (RIGHT, UNKNOWN, CHANGED, RUN)
    assert without_doubtful(passes) == passes


@pytest.mark.parametrize("width", [24, 60, 80, 200])
def test_it_fits_the_page(width: int) -> None:
    report = make_report(RIGHT, CHANGED, UNKNOWN, ORDER, RUN, rewrite=REWRITE)
    text = show(report, width)
    assert max(map(len, text.splitlines())) <= width


def test_the_rewrite_is_printed() -> None:
    report = make_report(RIGHT, CHANGED, RUN, rewrite=REWRITE)
    said = flatten(show(report))
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
