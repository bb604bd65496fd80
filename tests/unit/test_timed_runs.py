"""Timed sides of a diff take turns, and their times are printed once for each program."""

from __future__ import annotations

from dataclasses import replace

import pytest
from captures import failed_snippet, make_capture, make_kernel, make_schedule
from rendered import flatten, print_to_text

from vmapdbg.commands.shared import children
from vmapdbg.commands.shared.runs import run_timed
from vmapdbg.diff.captures import diff_captures
from vmapdbg.install.job import Job, Run
from vmapdbg.install.patches import parse_patches
from vmapdbg.model.capture import Capture, Kernel, Measured, SnippetError
from vmapdbg.model.schedule_index import sum_programs
from vmapdbg.page.overview import group_kernels, sum_kernels
from vmapdbg.page.text.run import print_diff
from vmapdbg.page.view import View

DIED = SnippetError("ChildDied", "it died", None)
JOBS = [Job("net.py", patches=parse_patches(spec), times=True) for spec in ("none", "all")]


def timed(name: str, seconds: float, launches: int = 1) -> Kernel:
    return make_kernel(name, f"void {name}();", key=name, measured=Measured(launches, seconds, seconds, seconds))


def make(*kernels: Kernel) -> Capture:
    return make_capture(make_schedule(kernels=kernels))


class Machine:
    """Runs jobs: each run of a side takes the next of its times, and what runs is noted."""

    def __init__(self, times: dict[str, list[float]]) -> None:
        self.times, self.ran = times, list[str]()

    def run(self, job: Job, *_: object) -> Run:
        assert job.times
        side = "after" if job.patches else "before"
        self.ran.append(side)
        return Run(make(timed("E_4", self.times[side].pop(0), 5)), side.encode())


def test_sides_take_turns_and_a_kernel_has_the_median_of_its_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine({"before": [9.0, 2.0, 3.0], "after": [1.0, 7.0, 1.5]})
    monkeypatch.setattr(children, "run_quietly", machine.run)
    before, after = run_timed(JOBS, "net.py")
    assert machine.ran == ["before", "after"] * 3
    assert [run.capture.schedules[0].kernels[0].measured for run in (before, after)] == [
        Measured(5, 3.0, 2.0, 9.0, 3),
        Measured(5, 1.5, 1.0, 7.0, 3),
    ]
    assert (before.stdout, after.stdout) == (b"before", b"after")
    assert capsys.readouterr().err == "vmapdbg: running net.py, 3 times each, in turns\n"
    # kernels without times stay without
    monkeypatch.setattr(children, "run_quietly", lambda *_: Run(make(make_kernel("E_4"))))
    before, _ = run_timed(JOBS, "net.py")
    assert before.capture.schedules[0].kernels[0].measured is None


@pytest.mark.parametrize("failed", [Run(failed_snippet()), Run(make_capture(error=DIED))])
def test_a_side_that_fails_is_not_run_again(failed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[bool] = []

    def run(job: Job, *_: object) -> Run:
        ran.append(bool(job.patches))
        return Run(make(timed("E_4", 1.0))) if job.patches else failed

    monkeypatch.setattr(children, "run_quietly", run)
    before, after = run_timed(JOBS, "net.py")
    assert ran == [False, True, True, True]
    assert before == failed
    assert after.capture.schedules[0].kernels[0].measured == Measured(1, 1.0, 1.0, 1.0, 3)


def test_a_program_of_several_kernels_is_counted_once() -> None:
    """What each of them has are the launches of all: 24 layers took what they took, not 24 times that."""
    layer = timed("E_4", 0.5, launches=3)
    capture = make(layer, layer, layer, timed("r_4", 1.0))
    assert sum_programs(capture.schedules[0].kernels) == 2.5
    assert sum_kernels(capture).seconds == pytest.approx(2.5)
    assert sum_programs([make_kernel("E_4")]) is None
    other = make(*(replace(kernel, key=kernel.key + "b", executed_ops=7) for kernel in capture.schedules[0].kernels))
    diff = diff_captures(capture, other)
    assert (diff.before.totals.seconds, diff.after.totals.seconds) == (2.5, 2.5)
    groups = group_kernels(View.of_two(capture, other, diff), unchanged=True)
    assert sum(group.before.seconds for group in groups) == pytest.approx(2.5)


def test_the_text_has_the_time_of_all_kernels_and_of_each_that_changed() -> None:
    one, other = make(timed("E_4", 2e-3)), make(replace(timed("E_4", 1e-3), executed_ops=7, key="b"))
    text = flatten(print_to_text(lambda console: print_diff(diff_captures(one, other), console), 200))
    assert "time in kernels 2.00 ms -> 1.00 ms (0.50x)" in text
    assert "a launch takes 2.00 ms -> 1.00 ms (0.50x)" in text
    same = diff_captures(one, make(timed("E_4", 3e-3)))
    assert same.is_empty, "that a run takes another time is no change"
    text = flatten(print_to_text(lambda console: print_diff(same, console), 200))
    assert text.startswith("no change: 1 kernel the same, time in kernels 2.00 ms -> 3.00 ms (1.50x)")
