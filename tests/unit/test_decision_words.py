"""A node is called realized only if it has a buffer in the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from captures import make_capture, make_node, make_schedule
from rendered import flatten
from test_render_text import render, section

from vmapdbg.model.capture import Bufferize, Realized
from vmapdbg.page.why import explain_node

KEPT = Bufferize(
    node=1, closed_ranges=("r0",), ambient=(), size=2, bytes=8, addrspace="GLOBAL", outcome="kept", reason="two readers"
)
ALWAYS = Realized((0,), "always", "CONTIGUOUS always asks for a buffer")


@pytest.mark.parametrize(
    ("node", "made", "word"),
    [
        ({"realized": ALWAYS}, KEPT, "realized"),
        ({"realized": ALWAYS}, replace(KEPT, outcome="removed"), "asked for"),
        ({"realized": ALWAYS}, None, "asked for"),
        ({"realized": ALWAYS, "op": "STORE"}, None, "realized"),
        ({"realized": replace(ALWAYS, reason="output")}, None, "realized"),
        ({}, None, "not asked for"),
    ],
)
def test_one_word_for_what_became_of_a_node(node: dict[str, Any], made: Bufferize | None, word: str) -> None:
    asked = make_node(1, **{"op": "CONTIGUOUS", "src": (0,), "in_ranges": ("r0",), "out_ranges": ("r0",), **node})
    schedule = make_schedule(nodes=(make_node(0, "BUFFER"), asked), bufferizes=() if made is None else (made,))
    decision = {step.topic: step.sentences for step in explain_node(schedule, asked).steps}["decision"][0]
    assert decision.startswith(f"{word}, ")
    rows = flatten(section(render(make_capture(schedule)), "Range map"))
    assert f"{word}, {asked.realized.reason}" in rows if asked.realized else "asked for" not in rows
