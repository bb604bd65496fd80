"""How long `check` will compare is said on a terminal, and only there."""

from __future__ import annotations

import sys

import pytest
from captures import make_node, make_schedule

from vmapdbg.child.compare.checker import describe_rest
from vmapdbg.commands.check import count_work, report_estimate


def test_work_is_what_numpy_computes() -> None:
    """What only moves is free, a product that is summed up is a matrix product, a symbolic shape is not known."""
    nodes = (
        make_node(0, "BUFFER", (1000,)),
        make_node(1, "EXPAND", (100, 1000), src=(0,)),
        make_node(2, "MUL", (100, 1000), src=(1, 1)),
        make_node(3, "REDUCE_AXIS", (100,), src=(2,)),
        make_node(4, "MUL", (100,), src=(3, 3)),
        make_node(5, "ADD", ("n", 100), src=(4, 4)),
    )
    assert count_work(make_schedule(nodes=nodes)) == 100 * 1000 // 10 + 100 + 100


@pytest.mark.parametrize(
    ("work", "on_terminal", "told"),
    [
        ([10**9] * 9, True, "vmapdbg: 9 schedules to compare, roughly 5 min; Ctrl-C shows what is compared by then\n"),
        ([6 * 10**8], True, "vmapdbg: 1 schedule to compare, roughly 20 s; Ctrl-C shows what is compared by then\n"),
        ([10**9] * 9, False, ""),
        ([10**6] * 9, True, ""),
        ([], True, ""),
    ],
)
def test_the_estimate(
    work: list[int], on_terminal: bool, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: on_terminal, raising=False)
    report_estimate(work)
    assert capsys.readouterr().err == told


def test_the_rest_is_told_by_the_work_that_is_done() -> None:
    assert describe_rest([1, 3, 12], 0, 0.0) == ""
    # too little is known yet
    assert describe_rest([1, 3, 12], 1, 1.0) == ""
    assert describe_rest([1, 3, 12], 2, 40.0) == ", about 2 min left"
    assert describe_rest([], 1, 40.0) == ""
