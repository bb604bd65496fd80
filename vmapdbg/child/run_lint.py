"""`vmapdbg run --lint` on the side of the program's processes: lints every schedule as it is made.

`vmapdbg.commands.run` is the tool's side, which sums up what they found. Findings are written to a file of this process
as soon as they are found, because workers often end without running exit handlers.
"""

from __future__ import annotations

import atexit
import json
import os
from pathlib import Path

from vmapdbg.child.listen.records import PassRecord, ScheduleRecord
from vmapdbg.child.live import ScheduleFeed, build_live_capture, is_ordered, listen
from vmapdbg.install.job import LintedSchedule
from vmapdbg.install.targets import DEFAULT_TARGET
from vmapdbg.model.data import to_data

FOLDER_VARIABLE = "VMAPDBG_LINT"
TARGET_VARIABLE = "VMAPDBG_LINT_TARGET"


def lint_this_process() -> None:
    """Lints what this process schedules. The overlay is installed already, unless tinygrad is observed as it is."""
    linter = Linter(Path(os.environ[FOLDER_VARIABLE]), os.environ.get(TARGET_VARIABLE, DEFAULT_TARGET))
    listen(linter)
    atexit.register(linter.end_last)


class Linter(ScheduleFeed):
    """Lints each schedule. It skips kernels that it knows, unless their order is wrong now."""

    def __init__(self, folder: Path, target: str) -> None:
        super().__init__()
        self.output, self.target = folder / f"{os.getpid()}.jsonl", target
        self.seen: set[bytes] = set()

    def made(self, schedule: ScheduleRecord, passed: PassRecord, is_whole: bool) -> None:
        linted = self.lint(schedule, passed)
        with self.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(to_data(linted)) + "\n")

    def lint(self, schedule: ScheduleRecord, passed: PassRecord) -> LintedSchedule:
        kernels = {launch.ast.key for launch in passed.kernels if launch.is_compute}
        new = kernels - self.seen
        try:
            if kernels and not new and is_ordered(passed):
                return LintedSchedule()
            self.seen |= new
            capture = build_live_capture([schedule], self.target)
        except Exception as error:  # the target may not have what the program uses; the program must go on
            return LintedSchedule(failed=f"{type(error).__name__}: {error}"[:300])
        from vmapdbg.lint import lint_capture

        # kernels with an access whose addresses are unknown
        undecided = sum(any(access.lowest is None for access in kernel.accesses or ()) for kernel in capture.kernels)
        return LintedSchedule(len(new), undecided, lint_capture(capture))
