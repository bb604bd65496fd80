"""Runs many programs, each in a fork of a process that has imported tinygrad: an import takes longer than a program.

`started_child` starts it as `python -m vmapdbg.child.trials REQUEST`. A line on stdin is a JSON list: a program's file,
a folder for what the fork writes, its time in seconds. A line on stdout answers: the signal that ended the fork, or 0.
The folder then has the Capture, and with evidence a line for each ScheduleCheck."""

import contextlib
import importlib
import json
import os
import pickle
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from vmapdbg.child.evidence.evidence import EvidenceFolder
from vmapdbg.child.failures.endless import Watcher
from vmapdbg.child.run_snippet import Mode, fall_back_to_python_device, run_snippet, write_capture
from vmapdbg.install.job import TrialRequest, load_request
from vmapdbg.install.system import hold
from vmapdbg.model.store import append_line


def main() -> None:
    request = load_request(TrialRequest, sys.argv[1])
    hold(request.lifeline)
    answers = os.fdopen(os.dup(1), "w")
    # whatever the programs and compilers print
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    mode = Mode(request)
    mode.prepare()
    fall_back_to_python_device()
    if request.evidence is not None:
        import vmapdbg.child.compare.schedule_checker  # noqa: F401  # it takes long, too
    if request.preloads:
        import_tinygrad()
    for line in sys.stdin:
        file, folder, seconds = json.loads(line)
        status = run_in_fork(lambda file=file, folder=folder: try_program(mode, request, file, Path(folder)), seconds)
        answers.write(f"{os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}\n")
        answers.flush()


def import_tinygrad() -> None:
    """Imports tinygrad, and the code of its devices without opening one: their threads would not be in a fork."""
    import tinygrad.device

    for name in getattr(tinygrad.device, "ALL_DEVICES", ()):
        # without its driver, a module cannot be imported
        with contextlib.suppress(Exception):
            importlib.import_module(f"tinygrad.runtime.ops_{name.lower()}")


def run_in_fork(work: Callable[[], object], seconds: float) -> int:
    """Works in a fork of this process, for so many seconds at most, and returns its status."""
    process = os.fork()
    if process:
        return os.waitpid(process, 0)[1]
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)  # the signal ends the fork
        work()
    finally:
        os._exit(0)


def try_program(mode: Mode, asked: TrialRequest, file: str, folder: Path) -> None:
    """Runs a program, and writes its Capture and its checks."""
    evidence = None if asked.evidence is None else EvidenceFolder(folder)
    job = replace(asked.job, snippet=file)
    request = replace(asked, job=job, folder=str(folder), evidence=evidence and str(folder))
    mode.request, mode.job = request, request.job
    if mode.collector is not None and evidence is not None:
        mode.collector.folder = mode.collector.replays.folder = evidence
    watcher = Watcher()
    watcher.start()
    error = run_snippet(request, mode.recorder)
    mode.close()
    write_capture(request, mode, error)
    watcher.stop()
    if evidence is not None:
        from vmapdbg.child.compare.schedule_checker import ScheduleChecker

        for written in evidence.find_files():
            with contextlib.suppress(Exception):  # what cannot be compared shows no fault
                append_line(request.checks, ScheduleChecker(pickle.loads(written.read_bytes()), evidence).check())


if __name__ == "__main__":
    main()
