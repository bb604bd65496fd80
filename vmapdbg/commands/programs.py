"""Runs a user's program to its end, for the commands that have something to say afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import IO

from vmapdbg.install.job import Job
from vmapdbg.install.overlay import child_environment
from vmapdbg.install.patches import format_patches
from vmapdbg.install.trees import find_tree

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "VECLIB_MAXIMUM_THREADS": "1"}
"""For who computes by numpy beside a program: its matrices are small, and where others want the cores several threads
wait for each other many times as long as they multiply."""


@dataclass(frozen=True)
class Program:
    """SCRIPT [ARGUMENTS] or -m MODULE [ARGUMENTS], and the job that says what it runs on; the job's snippet is the
    program."""

    arguments: tuple[str, ...]
    job: Job

    @property
    def command(self) -> list[str]:
        return [self.job.python or sys.executable, *self.arguments]

    def find_environment(self, observes: bool = False) -> dict[str, str]:
        """Returns the environment of its processes: they get the patches of the job, or its tree. With `observes` those
        without patches are there to be observed."""
        patches = None if self.job.patches is None else format_patches(self.job.patches)
        folder = str(find_tree(self.job.tree).folder) if self.job.tree else ""
        return child_environment(patches, dict(os.environ), folder, observes=observes)


def run_program(program: Program, stdout: IO[str] | None = None, **variables: str) -> int:
    """Runs a program that is observed, with some more variables in its environment, and returns its exit code: 128 +
    the signal that killed it, as a shell says it. `stdout` is where it prints, None: where the tool does."""
    environment = {**program.find_environment(observes=True), **variables}
    process = subprocess.Popen(program.command, env=environment, stdout=stdout)
    # Ctrl-C goes to the program as well, which decides what it does with it
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
        process.kill()
    return 128 - status if status < 0 else status
