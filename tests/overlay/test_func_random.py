"""Random vmapped programs against numpy. `python -m tests.fuzz` draws the same programs for as long as one likes."""

from __future__ import annotations

from typing import Any

import pytest
from fuzz.check import is_loose, is_usable, judge
from fuzz.draw import Draw
from fuzz.evaluate import evaluate
from fuzz.generate import generate
from fuzz.program import Invalid, Program, has_derivative
from fuzz.source import to_source, to_stock_source
from fuzz.worker import run
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st


class HypothesisDraw(Draw):
    """Every choice is an integer, so that hypothesis makes them smaller, and with them the program."""

    def __init__(self, draw: Any):
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))


@st.composite
def programs(draw: Any) -> Program:
    try:
        return generate(HypothesisDraw(draw), largest=16)
    except Invalid:
        assume(False)
        raise


@pytest.mark.slow
@settings(
    max_examples=25,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
@given(programs())
def test_a_random_program_has_the_values_of_a_loop_over_single_elements(program: Program) -> None:
    want, trace = evaluate(program)
    note(source := to_source(program))
    if has_derivative(program):
        try:
            want = run(to_stock_source(program), stock=True)
        except AssertionError:
            # stock cuts a store at a comparison, into several with the same loops, and finds no order for them
            assume(False)
        assume(is_usable(want))
    outcome = judge("ok", run(source), want, loose=is_loose(trace))
    assert not outcome.failed, outcome.detail
