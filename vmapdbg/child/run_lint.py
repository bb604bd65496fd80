"""`vmapdbg run --lint` on the side of the program's processes: lints every schedule as it is made.

`vmapdbg.commands.run_lint` is the tool's side, which sums up what they found.

The program stays as it is: what it prints, when its tensors are freed, the names of its kernels. Findings are
written to a file of this process as soon as they are found, because workers often end without running exit handlers.
"""

from __future__ import annotations

import atexit
import json
import os
from pathlib import Path
from typing import Any

from vmapdbg.child.live import build_live_capture, observe_with
from vmapdbg.child.record.recorder import Recorder, ScheduleRecord
from vmapdbg.job.job import LintedSchedule
from vmapdbg.job.targets import DEFAULT_TARGET
from vmapdbg.model import capture as model
from vmapdbg.model.data import to_data

FOLDER_VARIABLE = "VMAPDBG_LINT"
TARGET_VARIABLE = "VMAPDBG_LINT_TARGET"


def lint_this_process() -> None:
    """Has the overlay, which is installed already, report to a linting recorder."""
    folder, target = os.environ[FOLDER_VARIABLE], os.environ.get(TARGET_VARIABLE, DEFAULT_TARGET)
    recorder = LintingRecorder(Path(folder) / f"{os.getpid()}.jsonl", target)
    observe_with(recorder)
    atexit.register(recorder.lint_failed)


class LintingRecorder(Recorder):
    """A recorder that forgets each schedule once it is linted."""

    def __init__(self, output: Path, target: str) -> None:
        super().__init__()
        self.output, self.target = output, target
        self.seen: set[bytes] = set()

    def schedule_asked(self, key: bytes, cached: bool) -> None:
        self.lint_failed()
        super().schedule_asked(key, cached)

    def schedule_created(self, items: list[Any], buffers: Any) -> None:
        super().schedule_created(items, buffers)
        self.lint_last()

    def lint_failed(self) -> None:
        """Lints a schedule that began and raised before it had kernels."""
        if self.schedules and self.schedules[-1].passed is not None:
            self.lint_last()
        self.forget()

    def lint_last(self) -> None:
        record, self.schedules = self.schedules[-1], []
        try:
            self.write(self.lint(record))
        finally:
            self.forget()

    def lint(self, record: ScheduleRecord) -> LintedSchedule:
        """Lints one schedule. A kernel that was looked at before is not looked at again."""
        assert record.passed is not None
        keys = {launched.ast.key for launched in record.passed.kernels if launched.ast.op.name == "SINK"}
        new = keys - self.seen
        if keys and not new:
            return LintedSchedule()
        self.seen |= keys
        try:
            capture = build_live_capture([record], self.target)
        except Exception as error:  # the target may not have what the program uses; the program must go on
            return LintedSchedule(failed=f"{type(error).__name__}: {error}"[:300])
        from vmapdbg.lint import lint_capture

        undecided = sum(is_undecided(kernel) for schedule in capture.schedules for kernel in schedule.kernels)
        return LintedSchedule(len(new), undecided, lint_capture(capture))

    def write(self, linted: LintedSchedule) -> None:
        with self.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(to_data(linted)) + "\n")


def is_undecided(kernel: model.Kernel) -> bool:
    """Tells whether a kernel has an access whose addresses could not be told."""
    return any(access.lowest is None for access in kernel.accesses or ())
