"""Lifetimes of memory, and the page about them, from hand-made records: no tinygrad is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from captures import lost_range
from rendered import print_to_text
from rich.cells import cell_len

from vmapdbg.child.capture.lifetimes import Lifetimes, find_most, span_without
from vmapdbg.child.listen.allocations import ENDLESS, Allocations, MemoryLaunch, StoredValue, Use, match_launches
from vmapdbg.model.capture import LaunchPlace, LiveBuffer, Memory, MemoryAdvice, PartPeak, Placement
from vmapdbg.page.format import Places
from vmapdbg.page.lifetimes import Picture
from vmapdbg.page.text.run import print_memory


def allocate(size: int, start: int, end: int = ENDLESS, dtype: str = "float") -> StoredValue:
    return StoredValue(lambda: None, size, "CPU", dtype, "a.py:1", False, start, end)


def make_run() -> tuple[Lifetimes, list[StoredValue]]:
    """Four launches, at ticks 3, 5, 6 and 8: `kept` (100) is written by the first and read by the last; `short` (60)
    lives for the second and the third; the planner's arena (80) has a value of 80 in the first two launches, then two
    of 40, of which the third launch writes one and the last the other."""
    kept, arena, short = allocate(100, 1), allocate(80, 2, dtype="char"), allocate(60, 4, 7)
    arena.used_as_view.add(True)
    first, low = Use(arena, True, 0, 80, "float"), Use(arena, True, 0, 40, "float")
    kept_use, short_use = Use(kept, True, 0, 100, "float"), Use(short, True, 0, 60, "float")
    uses = [
        [kept_use, first],
        [short_use, first._replace(writes=False)],
        [low, short_use._replace(writes=False)],
        [low._replace(offset=40), low._replace(writes=False), kept_use._replace(writes=False)],
    ]
    watched = Allocations(None)
    watched.levels, watched.values = [0, 100, 180, 180, 240, 240, 240, 180, 180], [kept, arena, short]
    numbered = enumerate(zip((3, 5, 6, 8), uses, strict=True))
    watched.launches = [MemoryLaunch(number, tick, "a.py:2", (0, number), used) for number, (tick, used) in numbered]
    return Lifetimes(watched), watched.values


def test_the_peak_is_the_sum_of_what_is_live() -> None:
    times, (kept, arena, short) = make_run()
    assert (times.peak, times.top, times.at) == (240, 4, times.launches[1])
    live = times.list_live()
    assert [(value.arena or value) for value in live] == [kept, arena, short]
    assert sum(value.bytes for value in live) == times.peak
    assert [(value.offset, value.touched) for value in times.planned[arena]] == [(0, [3, 5]), (0, [6, 8]), (40, [8])]
    assert times.sources[3] == [times.planned[arena][1], kept]


def test_a_change_is_judged_by_the_peak_of_the_whole_run() -> None:
    """After the change another moment may be the peak."""
    times, (kept, arena, short) = make_run()
    assert times.find_gap(kept) == (3, 8)
    # without it between the first and the last launch, the first has the peak
    assert times.find_peak({kept: span_without(kept, 3, 8)}) == 180
    assert times.find_peak({}) == times.peak
    first = times.planned[arena][0]
    # the arena then is as large as its two other values together
    assert times.find_peak({first: [(3, 6, 8)]}) == 240
    assert times.find_peak({one: [(one.start, one.end, 10)] for one in times.planned[arena]}) == 180
    assert times.find_peak({short: [(4, 7, 30)]}) == 210


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
