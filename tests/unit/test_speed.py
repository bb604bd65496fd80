"""What a kernel reaches of its device, the tree of functions, and what the time goes into."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from captures import make_capture, make_kernel, make_network, make_schedule
from rendered import flatten, print_to_text

from vmapdbg.model.capture import (
    BufferArg,
    Capture,
    Device,
    Kernel,
    LaunchTime,
    MarkTime,
    Measured,
    SnippetError,
    Timing,
)
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import add_beam_times, digest_source, list_longest
from vmapdbg.model.vocabulary import Sort
from vmapdbg.page.functions import FunctionRow, count_functions
from vmapdbg.page.overview import group_kernels
from vmapdbg.page.speed import describe_beam, describe_speed, find_noise, rate_kernel
from vmapdbg.page.text.run import print_overview
from vmapdbg.page.view import View

DEVICE = Device("CPU", ops=1e10, bytes=1e9, launch=1e-5, threads=2)


def timed(seconds: float, ops: int, size: int, **changes: Any) -> Kernel:
    """A kernel of one launch that reads a buffer of `size` floats."""
    known = {"buffers": (BufferArg("data0", size, "float", "read"),), "threads": 2, "lanes": 4, **changes}
    return make_kernel("r_1", executed_ops=ops, bytes=10**12, measured=Measured(1, seconds, seconds, seconds), **known)


@pytest.mark.parametrize(
    ("kernel", "limit"),
    [
        (timed(3e-5, 10, 10), "launch"),
        (timed(1e-3, 10**7, 10), "arithmetic"),
        (timed(1e-3, 10**5, 250_000), "memory"),
        (timed(1e-3, 10**5, 10, threads=1), "one thread"),
        (timed(1e-3, 10**5, 10, lanes=1), "missing vectors"),
        (timed(1e-3, 10**5, 10), ""),
    ],
)
def test_what_limits_a_kernel(kernel: Kernel, limit: str) -> None:
    speed = rate_kernel(kernel, DEVICE)
    assert speed is not None
    assert speed.limit == limit


def test_a_byte_that_is_read_often_counts_once() -> None:
    speed = rate_kernel(timed(1e-3, 5 * 10**6, 25_000), DEVICE)
    assert speed is not None
    assert (speed.ops_share, speed.bytes_share) == (pytest.approx(0.5), pytest.approx(0.1))
    said = describe_speed(timed(1e-3, 5 * 10**6, 25_000), DEVICE)
    assert said == "5.00 Gop/s (50% of CPU), 100 MB/s (10%), limited by arithmetic"


def test_nothing_is_said_without_times_or_a_device() -> None:
    assert rate_kernel(make_kernel("r_1"), DEVICE) is None
    assert describe_speed(timed(1e-3, 10, 10), None) == ""


def test_noise_is_reported_only_if_launches_differ_much() -> None:
    for spread, noise in ((0.1, None), (0.5, 0.5), (None, None)):
        kernel = make_kernel("r_1", measured=Measured(9, 1.0, 0.9, 2.0, spread=spread))
        assert find_noise(make_capture(make_schedule(kernels=(kernel,)))) == noise


def network() -> Capture:
    parts = {"python": 1.5, "kernels": 1.0, "scheduling": 0.5}
    return replace(make_network(), timing=Timing(3.0, parts, (MarkTime("epoch", 2.0, 4, 3, 1.0),)), device=DEVICE)


def list_rows(capture: Capture, least: float = 0) -> list[tuple[int, FunctionRow]]:
    return [each for row in count_functions(capture, least) for each in row.walk()]


def test_a_function_costs_what_it_calls_and_a_kernel_counts_once() -> None:
    rows = list_rows(network())
    found = [(depth, row.name, row.cost.kernels, row.cost.seconds, row.cost.backward) for depth, row in rows]
    assert found == [
        (0, "<module> > main", 3, pytest.approx(1.0), pytest.approx(0.6)),
        (1, "Block.__call__ > n.py:3", 2, pytest.approx(0.8), pytest.approx(0.75)),
        (1, "n.py:9", 1, pytest.approx(0.2), 0),
    ]
    assert [len(row.cost.programs) for _, row in rows] == [3, 2, 1]
    assert [row.name for _, row in list_rows(network(), least=0.5)][1:] == ["Block.__call__ > n.py:3"]


def test_functions_and_kernels_are_sorted_by_what_the_user_asks_for() -> None:
    """One order for the tree, the table of kernels, and the columns of a report."""
    capture = network()
    (schedule,) = capture.schedules
    heavy = replace(schedule.kernels[2], executed_ops=900, peak=64)
    capture = replace(capture, schedules=(replace(schedule, kernels=(*schedule.kernels[:2], heavy)),))
    sorts: list[tuple[Sort, list[str], list[str]]] = [
        ("ops", ["n.py:9", "Block.__call__ > n.py:3"], ["r_3", "r_1", "r_2"]),
        ("name", ["Block.__call__ > n.py:3", "n.py:9"], ["r_1", "r_2", "r_3"]),
        ("median", ["Block.__call__ > n.py:3", "n.py:9"], ["r_2", "r_1", "r_3"]),
    ]
    for sort, names, kernels in sorts:
        assert [row.name for row in count_functions(capture, sort=sort)[0].below] == names
        rows = group_kernels(replace(View.of_one(capture), sort=sort))
        assert [row.kernel.name for row in rows] == kernels
    assert [row.cost.peak for _, row in list_rows(capture)] == [64, 0, 64]


def test_equal_layers_are_counted() -> None:
    capture = network()
    (schedule,) = capture.schedules
    twice = replace(capture, schedules=(schedule, replace(schedule, index=1)))
    assert [row.cost.repeats for _, row in list_rows(twice)] == [2, 2, 2]
    assert [row.cost.repeats for _, row in list_rows(capture)] == [1, 1, 1]


def test_kernels_without_times_are_ranked_by_their_ops() -> None:
    capture = network()
    kernels = tuple(replace(kernel, measured=None) for kernel in capture.kernels)
    capture = replace(capture, schedules=(replace(capture.schedules[0], kernels=kernels),))
    assert [round(row.cost.backward, 2) for _, row in list_rows(capture)] == [0.33, 0.5, 0]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_overview_says_where_the_time_goes(width: int) -> None:
    text = print_to_text(lambda console: print_overview(View.of_one(network()), console, "more"), width)
    assert max(map(len, text.splitlines())) <= width
    said = flatten(text)
    assert "3.00 s: Python 1.50 s, in kernels 1.00 s, scheduling (and recording) 500 ms" in said
    assert "CPU reaches 10.0 Gop/s and 1.00 GB/s; a launch takes 10.0 us" in said
    assert "epoch 4 2.00 s 1.00 s 3" in said
    assert "<module> > main 1.00 s 100% 60% 3 300" in said
    assert "phases share of the time: backward 60%" in said
    assert "add 2" in said


def launched(*seconds: float, **changes: Any) -> Capture:
    """A run that launches two kernels in turn."""
    kernels = [timed(1.0, 10, 10, source=source, key=source[5]) for source in ("void f();", "void g();")]
    digests = [digest_source(kernel.source) for kernel in kernels] * len(seconds)
    timing = Timing(9.0, {}, (), tuple(map(LaunchTime, digests, seconds)))
    return make_capture(make_schedule(kernels=tuple(kernels)), timing=timing, **changes)


def test_a_run_with_beam_is_paired_by_its_launches() -> None:
    """Its kernels have other sources."""
    found = add_beam_times(launched(1, 1, 1, 1, 1), launched(0.5, 2, 0.25, 2, 0.5), "fg")
    assert [kernel.beam for kernel in found.kernels] == [0.5, 2]
    found = add_beam_times(launched(1, 1, 1, 1), launched(0.5, 2, 0.5, 2), "g")
    assert [kernel.beam for kernel in found.kernels] == [None, 2]
    assert describe_beam(found.kernels[0]) == ""
    found = add_beam_times(launched(1, 1, 1, 1, 1), launched(0.5, 2, 0.25, 2, 0.5), "fg")
    assert describe_beam(found.kernels[0]) == "2.0x"
    assert describe_speed(found.kernels[0], DEVICE).endswith(", 2.0x faster with BEAM")
    assert describe_beam(timed(1.0, 10, 10)) == ""


def test_beam_searches_for_nine_tenths_of_the_time() -> None:
    times = {"a": 0.5, "b": 9.0, "c": 0.2, "d": 0.3, "e": 30.0}
    kernels = [timed(seconds, 10, 10, source=name, key=name) for name, seconds in times.items()]
    assert list_longest(kernels) == ("e", "b")
    assert list_longest([*kernels, timed(30.0, 10, 10, source="e", key="f")]) == ("e", "f", "b")
    assert list_longest([make_kernel("r_1")]) == ()


def test_a_run_with_beam_that_is_another_program_is_not_compared() -> None:
    with pytest.raises(Failure, match="has 1 launches instead of 2"):
        add_beam_times(launched(1, 1), launched(1), "fg")
    with pytest.raises(Failure, match="the run with BEAM failed: no memory"):
        add_beam_times(launched(1), launched(1, error=SnippetError("MemoryError", "no memory", None)), "fg")
