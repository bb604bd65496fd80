"""The messages about rewrites of tinygrad that do not end."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest
from tinygrad.dtype import dtypes
from tinygrad.helpers import Context
from tinygrad.uop import Ops
from tinygrad.uop.ops import PatternMatcher, RewriteContext, UOp, UPat, graph_rewrite

from vmapdbg.child.failures.diagnose import KnownNodes, diagnose
from vmapdbg.child.failures.endless import LOOP, Endless, EndlessRewrite, Watcher, find_frame
from vmapdbg.model.crash import Crash

THERE = UPat(Ops.SIN, name="x"), lambda x: x.src[0].sqrt()
BACK = UPat(Ops.SQRT, name="x"), lambda x: x.src[0].sin()
MORE = UPat(Ops.ADD, src=(UPat.var("x"), UPat.cvar("c"))), lambda x, c: x + (c.arg + 1.0)
AROUND = UPat(Ops.SIN, name="x"), lambda x: x.sin()
START = UOp.variable("a", 1, 9).cast(dtypes.float).sin()


def crash_of(start: UOp, rules: list[Any], bottom_up: bool) -> Crash:
    """Returns the message about a rewrite that does not end."""
    watcher = Watcher()
    watcher.start()
    try:
        with pytest.raises((RuntimeError, EndlessRewrite)) as raised, Context(REWRITE_STACK_LIMIT=2000):
            graph_rewrite(start, PatternMatcher(rules), bottom_up=bottom_up, name="there and back")
    finally:
        watcher.stop()
    crash = diagnose(raised.value, KnownNodes())
    assert crash is not None
    assert crash.rewrite == "there and back"
    rules_told = {step.rule for step in crash.steps} - {None}
    assert all(rule.rpartition(":")[0].endswith("test_diagnosis.py") for rule in rules_told if rule is not None)
    assert len(rules_told) == len(rules)
    return crash


@pytest.mark.parametrize("bottom_up", [True, False])
def test_two_rules_that_undo_each_other_are_named(bottom_up: bool) -> None:
    crash = crash_of(START, [THERE, BACK], bottom_up)
    assert crash.kind == "repeats"
    assert {(step.node, step.becomes) for step in crash.steps} == {
        ("SIN float", "SQRT float"),
        ("SQRT float", "SIN float"),
    }


@pytest.mark.parametrize("bottom_up", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_rule_that_never_comes_to_an_end_is_named(bottom_up: bool) -> None:
    crash = crash_of(START + 1.0, [MORE], bottom_up)
    assert crash.kind == "grows"
    assert crash.steps[0].node == crash.steps[0].becomes == "ADD float"


def test_a_node_that_becomes_its_own_source_is_reported_as_waiting_for_itself() -> None:
    crash = crash_of(START, [AROUND], bottom_up=False)
    assert crash.kind == "waits"
    assert [(step.node, step.becomes) for step in crash.steps] == [("SIN float", "SIN float"), ("SIN float", None)]


def test_where_an_endless_rewrite_was_stopped_makes_no_difference() -> None:
    """It is stopped from outside, wherever it is just then: here in a rule."""

    def end(frame: FrameType) -> EndlessRewrite:
        loop = find_frame(frame, LOOP)
        assert loop is not None
        error = EndlessRewrite()
        error.found = Endless(loop.f_locals["self"], growing=START)
        return error

    names: dict[str, Any] = {"end": end, "find_frame": sys._getframe}
    # code that was never a file is no user's
    exec("def stop(x): raise end(find_frame())", names)
    with pytest.raises(EndlessRewrite) as raised:
        graph_rewrite(START, PatternMatcher([(UPat(Ops.SIN, name="x"), names["stop"])]), name="there and back")
    crash = diagnose(raised.value, KnownNodes())
    first = RewriteContext.unified_rewrite.__code__.co_firstlineno
    assert crash is not None
    assert (crash.function, crash.place) == ("RewriteContext.unified_rewrite", f"tinygrad/uop/ops.py:{first}")
    assert (crash.rewrite, crash.rule) == ("there and back", None)


@pytest.mark.slow
def test_what_takes_long_and_ends_is_let_be() -> None:
    """A chain of 3,000 nodes is rewritten while the watcher looks on."""
    watcher = Watcher()
    watcher.start()
    node = START
    for _ in range(3000):
        node = node + 1.0
    slow = PatternMatcher([(UPat(Ops.ADD, name="x"), lambda x: threading.Event().wait(0.0003) or None)])
    assert graph_rewrite(node, slow, name="slow") is node
    watcher.stop()
