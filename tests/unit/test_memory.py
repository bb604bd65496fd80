"""Lifetimes of memory, and the page about them, from hand-made records: no tinygrad is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from captures import lost_range
from rendered import print_to_text
from rich.cells import cell_len

from vmapdbg.child.capture.lifetimes import Lifetimes, find_most
from vmapdbg.child.listen.allocations import Allocation, Batch, Use, match_launches
from vmapdbg.model.capture import LaunchPlace, LiveBuffer, Memory, MemoryAdvice, PartPeak, Placement
from vmapdbg.page.format import Places
from vmapdbg.page.lifetimes import Picture
from vmapdbg.page.text.run import print_memory


def allocate(size: int, born: int, freed: int | None = None, dtype: str = "float") -> Allocation:
    return Allocation(lambda: None, size, "CPU", dtype, "a.py:1", born, False, freed)


def make_run() -> tuple[Lifetimes, list[Allocation]]:
    """Four launches: `kept` (100) is written by launch 0 and read by 3; `short` (60) lives in 1 and 2; the planner's
    arena (80) has a value of 80 in launch 0 and 1, then two of 40, of which launch 2 writes one and 3 the other."""
    kept, arena, short = allocate(100, 0), allocate(80, 1, dtype="char"), allocate(60, 2, 3)
    events = [(100, kept, 0), (80, arena, 0), (60, short, 1), (-60, short, 3)]
    whole, low = Use(arena, True, 0, 80, "float", True), Use(arena, True, 0, 40, "float", True)
    uses = [
        [Use(kept, True), whole],
        [Use(short, True), whole._replace(writes=False)],
        [low, Use(short)],
        [low._replace(offset=40), low._replace(writes=False), Use(kept)],
    ]
    batch = Batch("schedule", "a.py:2", 0, [(0, number) for number in range(4)], uses, 0)
    return Lifetimes(events, [batch], 4), [kept, arena, short]


def test_the_peak_is_the_sum_of_what_is_live() -> None:
    times, (kept, arena, short) = make_run()
    assert (times.peak, times.top, times.at) == (240, 2, 1)
    assert [value.memory for value in times.list_live()] == [kept, arena, short]
    assert sum(value.bytes for value in times.list_live()) == times.peak
    assert [(value.offset, value.used) for value in times.planned[arena]] == [(0, [0, 1]), (0, [2, 3]), (40, [3])]


def test_a_change_is_judged_by_the_peak_of_the_whole_run() -> None:
    """After the change another moment may be the peak."""
    times, (kept, arena, short) = make_run()
    value = times.whole[kept]
    assert times.find_gap(value) == (0, 3)
    # without it between launches 0 and 3, launch 0 has the peak
    assert times.find_peak({value: times.without(value, 0, 3)}) == 180
    assert times.find_peak({}) == times.peak
    first = times.planned[arena][0]
    # the arena then is as large as its two other values together
    assert times.find_peak({first: [(0, 2, 8)]}) == 240
    assert (
        times.find_peak({one: [(a, b, 10) for a, b, _ in [times.span_of(one)]] for one in times.planned[arena]}) == 180
    )
    assert times.find_peak({times.whole[short]: [(2, 3, 30)]}) == 210


def test_the_most_at_a_time() -> None:
    assert find_most([]) == (0, 0)
    assert find_most([(0, 4, 5), (2, 6, 7), (4, 5, 6)]) == (13, 4)


def test_launches_of_one_kernel_are_matched_in_order_and_by_device() -> None:
    known: Any = [("k", (0, 0)), ("c", (0, 1)), ("k", (0, 2))]
    assert match_launches(["k", "c", "k"], known) == [(0, 0), (0, 1), (0, 2)]
    assert match_launches(["k", "k", "c", "c", "k", "k"], known) == [(0, 0), (0, 0), (0, 1), (0, 1), (0, 2), (0, 2)]
    assert match_launches(["x", "k"], known) == [None, (0, 0)]


def make_memory() -> Memory:
    place = LaunchPlace(5, 0, 0)
    buffer = LiveBuffer(
        "kernel", Placement(0, 18, "lost_range.py:7", 4096), "CPU", "float", "model.w", place, place, 2, 9, True,
        (Placement(0, 3, None, 64),), 7,
    )  # fmt: skip
    copied = replace(buffer, kind="copy", name="", first=None, last=None, is_planned=False, shares=(), others=0)
    advice = (
        MemoryAdvice("half", "a.py:3", "", 2, 4096, 6144),
        MemoryAdvice("recompute", "a.py:3", "", 1, 2048, 7000, 123_456),
        MemoryAdvice("free", None, "model.layers.0.weight.grad and 82 more", 30, 4096, 4096),
        MemoryAdvice("free", "a.py:9", "x", 1, 4096, 4096),
    )
    parts = (PartPeak("", "a.py:3", 2, 8300, schedule=0), PartPeak("step", "a.py:3", 4, 8300, call=2))
    timeline = ((0, 0), (2, 4096), (5, 8300), (9, 100))
    return Memory(8300, place, "a.py:3", 12, timeline, (buffer, copied), 3, 100, 8, parts, advice)


@pytest.mark.parametrize("width", [24, 60, 80, 200])
def test_the_page_fits_and_is_plain(width: int) -> None:
    capture = replace(lost_range(), peak_bytes=8300, memory=make_memory())
    output = print_to_text(lambda console: print_memory(capture, console), width)
    assert output.isascii()
    assert all(cell_len(line) <= width for line in output.splitlines())
    if width >= 60:
        for words in ("8.1 KiB at the peak", "model.w", "100 B in 3 smaller buffers", "del x after a.py:9", "a replay"):
            assert words in " ".join(output.split())
        level, first, second, peak = output[output.index("all memory") :].splitlines()[:4]
        assert "@" in level
        assert "=" in first
        assert "=" not in second
        assert first.index("=") <= peak.index("^") <= first.rindex("=")


def test_the_svg_is_a_document_and_escapes_names() -> None:
    memory = make_memory()
    live = (replace(memory.live[0], name="<b>&"), *memory.live[1:])
    svg = Picture(replace(memory, live=live), Places((), "a.py")).draw_svg()
    assert "<b>" not in svg
    assert len(list(ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect"))) == 3


def test_a_run_without_memory_says_so() -> None:
    output = print_to_text(lambda console: print_memory(lost_range(), console), 80)
    assert "memory: not watched; run it with --memory" in output
    assert "tinygrad allocated none" in print_to_text(
        lambda console: print_memory(replace(lost_range(), peak_bytes=0), console), 80
    )
