"""Random captures for tests of `diff`, and the changes to them that are no change."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from captures import make_capture, make_kernel, make_node, make_schedule
from hypothesis import strategies as st

from vmapdbg.diff.captures import diff_captures
from vmapdbg.diff.result import CaptureDiff
from vmapdbg.model.capture import Bufferize, Capture, Kernel, Node, Output, Range, Realized, Reason, Schedule, VmapEntry

OPS = ("ADD", "MUL", "RESHAPE", "EXPAND", "REDUCE_AXIS", "CONTIGUOUS")
RANGES = (
    Range("rm1", 3, "LOOP", True),
    Range("r0", 2, "LOOP", False),
    Range("r1", 2, "LOOP", False),
    Range("r2", 4, "REDUCE", False),
    Range("r3", 4, "REDUCE", False),
)
EXPRESSIONS = ("r0", "r1", "r2", "(r3*2+r0)", "0", "(r1+2)", "r3")
REASONS = (Reason("ending-ranges", (0,), ("r0",)), Reason("ending-ranges", (0, 0), ("(r1*2+r0)", "r2")))
LINES = (
    "int alu0 = (Lidx0<<1);",
    "float val0 = (*(data1_12+Lidx0));",
    "float val1 = (*(data1_12+(alu0+3)));",
    "for (int Ridx0 = 0; Ridx0 < 4; Ridx0++) {",
    "*(acc0+0) = ((*(acc0+0))+val0);",
    "*(data0_6+alu0) = (val0+val1);",
    "*(data0_6+(alu0+1)) = (val1*val1);",
)


@st.composite
def draw_nodes(draw: st.DrawFn) -> tuple[Node, ...]:
    """A graph whose nodes are drawn from few kinds, so that many are alike."""
    nodes: list[Node] = []
    for number in range(draw(st.integers(1, 9))):
        src = tuple(draw(st.lists(st.integers(0, number - 1), max_size=2))) if number else ()
        ranges = tuple(draw(st.lists(st.sampled_from(EXPRESSIONS), max_size=2)))
        reason = draw(st.sampled_from(REASONS))
        realized = draw(st.sampled_from((None, None, Realized((0,), "ending-ranges", "", (reason,)))))
        node = make_node(
            number,
            "EXPAND" if number == 0 else draw(st.sampled_from(OPS)),
            (draw(st.sampled_from((2, 4))),),
            src=src,
            in_ranges=ranges,
            out_ranges=ranges[::-1],
            ambient=draw(st.sampled_from(((), ("rm1",)))),
            realized=realized,
            # what two nodes share but for their place would leave open which is which
            arg=str(number),
        )
        nodes.append(node)
    return tuple(nodes)


@st.composite
def draw_kernel(draw: st.DrawFn, nodes: tuple[Node, ...], number: int) -> Kernel:
    ids = [node.id for node in nodes]
    body = "\n".join(draw(st.lists(st.sampled_from(LINES), min_size=1, max_size=6)))
    name = f"r_{number}_2"
    return make_kernel(
        name,
        f"void {name}(float* data0_6, float* data1_12) {{\n{body}\n}}\n",
        executed_ops=draw(st.integers(0, 10**7)),
        bytes=draw(st.integers(0, 10**5)),
        nodes=tuple(sorted(draw(st.sets(st.sampled_from(ids))))),
        outputs=tuple(draw(st.lists(st.sampled_from(ids), max_size=1))),
        key=draw(st.sampled_from(("", "aa", "bb"))),
    )


@st.composite
def draw_schedule(draw: st.DrawFn, index: int) -> Schedule:
    nodes = draw(draw_nodes())
    buffered = sorted(draw(st.sets(st.sampled_from([node.id for node in nodes]))))
    values = st.one_of(st.floats(-9, 9), st.just("nan"))
    sample = tuple(draw(st.lists(values, min_size=2, max_size=2)))
    return make_schedule(
        index,
        line=f"a.py:{index}",
        nodes=nodes,
        ranges=RANGES,
        vmap_map=tuple(VmapEntry(node.id, node.ambient) for node in nodes if node.ambient),
        bufferizes=tuple(Bufferize(i, draw(_closed), (), 4, 32, "GLOBAL", "kept", "why") for i in buffered),
        kernels=tuple(draw(draw_kernel(nodes, i)) for i in range(draw(st.integers(0, 4)))),
        outputs=draw(st.sampled_from(((), (Output((2,), "float", repr(sample), sample),)))),
    )


_closed = st.sampled_from((("r0",), ("rm1", "r0"), ("r1", "r2")))


@st.composite
def draw_capture(draw: st.DrawFn) -> Capture:
    """A capture of up to three schedules."""
    return make_capture(*(draw(draw_schedule(i)) for i in range(draw(st.integers(0, 3)))))


def diff_pair(sides: Iterable[Capture], printed: tuple[str, str] | None = None) -> CaptureDiff:
    """The diff of the two captures in `sides`: the one before, the one after."""
    before, after = sides
    return diff_captures(before, after, printed)


# *** what is no change


def disguise_capture(capture: Capture, seed: int) -> Capture:
    """The same capture with other node ids, range numbers, kernel order, names of kernels and of variables."""
    chance = random.Random(seed)
    return replace(capture, schedules=tuple(_disguise_schedule(item, chance) for item in capture.schedules))


def _disguise_schedule(schedule: Schedule, chance: random.Random) -> Schedule:
    ids = _reorder_nodes(schedule.nodes, chance)
    numbered = [item.name for item in schedule.ranges if not item.name.startswith("rm")]
    names = dict(zip(numbered, chance.sample([f"r{i}" for i in range(20)], len(numbered)), strict=True))

    def rename(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(rename(item) for item in value)
        return re.sub(r"\br\d+\b", lambda match: names[match[0]], value) if isinstance(value, str) else value

    def move_reason(reason: Reason) -> Reason:
        return replace(reason, nodes=tuple(ids[node] for node in reason.nodes), ranges=rename(reason.ranges))

    def move(node: Node) -> Node:
        realized = node.realized
        if realized is not None:
            realized = replace(realized, reasons=tuple(map(move_reason, realized.reasons)))
        return replace(
            node,
            id=ids[node.id],
            src=tuple(ids[i] for i in node.src),
            in_ranges=rename(node.in_ranges),
            out_ranges=rename(node.out_ranges),
            realized=realized,
        )

    kernels = [_disguise_kernel(item, ids, chance) for item in schedule.kernels]
    chance.shuffle(kernels)
    bufferizes = [
        replace(item, node=ids[item.node], closed_ranges=rename(item.closed_ranges)) for item in schedule.bufferizes
    ]
    chance.shuffle(bufferizes)
    return replace(
        schedule,
        nodes=tuple(sorted(map(move, schedule.nodes), key=lambda node: node.id)),
        ranges=tuple(replace(item, name=names.get(item.name, item.name)) for item in schedule.ranges),
        vmap_map=tuple(VmapEntry(ids[item.node], item.ranges) for item in schedule.vmap_map),
        bufferizes=tuple(bufferizes),
        kernels=tuple(kernels),
    )


def _reorder_nodes(nodes: tuple[Node, ...], chance: random.Random) -> dict[int, int]:
    """Any ids, if each node has a larger id than its sources."""
    ids: dict[int, int] = {}
    waiting = list(nodes)
    while waiting:
        ready = [node for node in waiting if all(src in ids for src in node.src)]
        node = chance.choice(ready)
        ids[node.id] = len(ids) + 5
        waiting.remove(node)
    return ids


def _disguise_kernel(kernel: Kernel, ids: dict[int, int], chance: random.Random) -> Kernel:
    shift = chance.randint(0, 5)
    source = re.sub(r"\b(alu|val|acc|Lidx|Ridx)(\d+)\b", lambda m: f"{m[1]}{int(m[2]) + shift}", kernel.source)
    source = source.replace("data0_", "data7_").replace(kernel.name, f"{kernel.name}n{shift}")
    return replace(
        kernel,
        name=f"{kernel.name}n{shift}",
        source=source,
        nodes=tuple(sorted(ids[i] for i in kernel.nodes)),
        outputs=tuple(ids[i] for i in kernel.outputs),
    )


# *** what is a change


def mutate_capture(capture: Capture, seed: int) -> Capture:
    """A capture with some kernels, buffers and decisions taken away or changed."""
    chance = random.Random(seed)
    schedules = [_mutate_schedule(item, chance) for item in capture.schedules]
    return replace(capture, schedules=tuple(item for item in schedules if chance.random() < 0.9))


def _mutate_schedule(schedule: Schedule, chance: random.Random) -> Schedule:
    def maybe(share: float) -> bool:
        return chance.random() < share

    nodes = tuple(replace(node, realized=None, ambient=()) if maybe(0.2) else node for node in schedule.nodes)
    kernels = [
        replace(item, source=item.source.replace("0_6", "0_2")) if maybe(0.3) else item
        for item in schedule.kernels
        if maybe(0.8)
    ]
    buffers = [
        replace(item, closed_ranges=("rm1", *item.closed_ranges), size=12) if maybe(0.3) else item
        for item in schedule.bufferizes
        if maybe(0.8)
    ]
    return replace(schedule, nodes=nodes, kernels=tuple(kernels), bufferizes=tuple(buffers))
