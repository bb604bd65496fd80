"""A pytest plugin for both sides of `python -m tests.upstream`; it is loaded with `-p`, in the workers too.

It writes into the folder that VMAPDBG_UPSTREAM_REPORT names:

    outcomes.json        test id -> [outcome, message], from the process that sees all reports
    worker-<id>.jsonl    a line that says what the worker runs on, then one for each test: what it scheduled

It also makes the tests independent of which worker ran what before them, the same way on both sides:
tinygrad's schedule cache does not know about PCONTIG, and with its random state the first draw is another
graph than the second.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REPORT_DIR = Path(os.environ["VMAPDBG_UPSTREAM_REPORT"])
# no test of upstream needs a tenth of this; a pass that rewrites for ever must not hold the whole run
HANG_SECONDS = 180
# a test has several reports (setup, call, subtests, teardown): the gravest one counts
GRAVITY = ["passed", "xfailed", "skipped", "xpassed", "failed", "error", "crashed"]


def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        config.pluginmanager.register(OutcomeWriter(), "vmapdbg-outcomes")
    if is_worker or not getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(ScheduleRecorder(), "vmapdbg-schedules")


class OutcomeWriter:
    """Collects the outcome of every test and writes them at the end."""

    def __init__(self) -> None:
        self.outcomes: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome = name_outcome(report)
        known = self.outcomes.get(report.nodeid)
        if known is None or GRAVITY.index(outcome) > GRAVITY.index(known[0]):
            self.outcomes[report.nodeid] = [outcome, describe_failure(report) if report.failed else ""]

    def pytest_sessionfinish(self) -> None:
        (REPORT_DIR / "outcomes.json").write_text(json.dumps(self.outcomes))


def name_outcome(report: pytest.TestReport) -> str:
    """Returns a rank of GRAVITY."""
    if hasattr(report, "wasxfail"):
        return "xpassed" if report.passed else "xfailed"
    if not report.failed:
        return report.outcome
    if report.when == "call":
        return "failed"
    return "error" if report.when in ("setup", "teardown") else "crashed"


def describe_failure(report: pytest.TestReport) -> str:
    """Returns the exception and the last place of its traceback."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return report.longreprtext[-500:]
    return f"{Path(crash.path).name}:{crash.lineno}: {crash.message.strip()[:500]}"


class ScheduleRecorder:
    """Runs where the tests run: proves what tinygrad is there, and records what each test schedules."""

    def __init__(self) -> None:
        self.file = REPORT_DIR / f"worker-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.jsonl"
        self.schedules: list[list[str]] = []

    def write(self, line: dict[str, Any]) -> None:
        with self.file.open("a") as stream:
            stream.write(json.dumps(line) + "\n")

    def pytest_sessionstart(self) -> None:
        import tinygrad
        import tinygrad.tensor
        from tinygrad.uop import Ops

        complete = tinygrad.tensor.complete_create_schedule_with_vars

        def create_recorded_schedule(big_sink: Any) -> Any:
            result = complete(big_sink)
            self.schedules.append([item.ast.key.hex() for item in result[1]])
            return result

        tinygrad.tensor.complete_create_schedule_with_vars = create_recorded_schedule
        self.write(
            {
                "overlay": hasattr(Ops, "VMAPIN"),
                "patches": os.environ.get("VMAPDBG_PATCHES"),
                "tinygrad": tinygrad.__file__,
            }
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        start_from_known_state()
        signal.signal(signal.SIGALRM, fail_hanging_test)
        signal.alarm(HANG_SECONDS)
        try:
            return (yield)
        finally:
            signal.alarm(0)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        # the call alone: what a class sets up belongs to whichever of its tests ran first in this worker
        self.schedules.clear()
        try:
            return (yield)
        finally:
            kernels = sum(len(schedule) for schedule in self.schedules)
            digest = hashlib.sha256(json.dumps(self.schedules).encode()).hexdigest()
            self.write({"test": item.nodeid, "schedules": len(self.schedules), "kernels": kernels, "digest": digest})


def start_from_known_state() -> None:
    import numpy as np
    from tinygrad import Tensor
    from tinygrad.engine.schedule import schedule_cache

    schedule_cache.clear()
    Tensor.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


def fail_hanging_test(signum: int, frame: Any) -> None:
    pytest.fail(f"still running after {HANG_SECONDS} s")
