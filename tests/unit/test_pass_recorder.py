"""If a rewrite inside another one is not followed, kernels have no node and no line."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

import pytest

from vmapdbg.child.listen import pass_recorder
from vmapdbg.child.listen.pass_recorder import PassRecorder
from vmapdbg.child.listen.records import PassRecord


class Ops(Enum):
    STAGE = auto()
    END = auto()
    ADD = auto()


class Made:
    """What a rewrite replaces, and what it makes."""

    def __init__(self, op: Ops = Ops.ADD, *src: Made) -> None:
        self.op, self.src, self.arg = op, src, None


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(pass_recorder, "stage_op", lambda: "STAGE")
    return Made()


def test_a_rewrite_inside_a_rewrite_is_followed_when_the_outer_one_is_done(node: Any) -> None:
    recorder = PassRecorder(PassRecord(node, {node: None}, {}))
    value, moved, final = Made(), Made(), Made()
    # a rule replaces `value`, which the outer rewrite has made of the node: it has done one UOp until now
    recorder.rewritten({value: moved}, around=[1])
    assert moved not in recorder.origin
    recorder.rewritten({node: value, moved: final})
    assert [recorder.origin[one] for one in (value, moved, final)] == [node] * 3


def test_rewrites_at_three_depths_are_followed(node: Any) -> None:
    recorder = PassRecorder(PassRecord(node, {node: None}, {}))
    value, inner, innermost, last = (Made() for _ in range(4))
    recorder.rewritten({inner: innermost}, around=[1, 1])
    recorder.rewritten({value: inner, innermost: last}, around=[1])
    recorder.rewritten({node: value})
    assert recorder.origin[last] is node
