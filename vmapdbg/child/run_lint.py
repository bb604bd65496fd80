"""`vmapdbg run --lint` on the side of the program's processes: lints every schedule as it is made.

`vmapdbg.commands.run` is the tool's side, which sums up what they found.

The program stays as it is: what it prints, when its tensors are freed, the names of its kernels. Findings are
written to a file of this process as soon as they are found, because workers often end without running exit handlers.
"""

from __future__ import annotations

import atexit
import json
import os
from pathlib import Path

from vmapdbg.child.feed import MadeSchedule, feed
from vmapdbg.install.job import LintedSchedule
from vmapdbg.install.targets import DEFAULT_TARGET
from vmapdbg.model import capture as model
from vmapdbg.model.data import to_data

FOLDER_VARIABLE = "VMAPDBG_LINT"
TARGET_VARIABLE = "VMAPDBG_LINT_TARGET"


def lint_this_process() -> None:
    """Has what this process schedules linted. The overlay is installed already, unless tinygrad is observed as it
    is."""
    folder, target = os.environ[FOLDER_VARIABLE], os.environ.get(TARGET_VARIABLE, DEFAULT_TARGET)
    linter = Linter(Path(folder) / f"{os.getpid()}.jsonl", target)
    atexit.register(feed(linter))


class Linter:
    """Lints each schedule. A kernel that was looked at before is not looked at again, unless the order is wrong that it
    runs in now."""

    def __init__(self, output: Path, target: str) -> None:
        self.output, self.target = output, target
        self.seen: set[bytes] = set()

    def asked_again(self, key: bytes, line: str | None) -> None:
        """It was looked at when it was made."""

    def made(self, schedule: MadeSchedule) -> None:
        self.write(self.lint(schedule))

    def lint(self, schedule: MadeSchedule) -> LintedSchedule:
        new = schedule.kernels - self.seen
        try:
            if schedule.kernels and not new and schedule.is_ordered():
                return LintedSchedule()
            self.seen |= new
            capture = schedule.build(self.target)
        except Exception as error:  # the target may not have what the program uses; the program must go on
            return LintedSchedule(failed=f"{type(error).__name__}: {error}"[:300])
        from vmapdbg.lint import lint_capture

        undecided = sum(is_undecided(kernel) for kernel in capture.kernels)
        return LintedSchedule(len(new), undecided, lint_capture(capture))

    def write(self, linted: LintedSchedule) -> None:
        with self.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(to_data(linted)) + "\n")


def is_undecided(kernel: model.Kernel) -> bool:
    """Tells whether a kernel has an access whose addresses could not be told."""
    return any(access.lowest is None for access in kernel.accesses or ())
