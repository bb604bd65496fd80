"""`vmapdbg run --save`: prepares the folder, runs the program, and writes how it ended.

`vmapdbg.child.run_save` saves the schedules in the program's processes.
"""

from __future__ import annotations

import json
import os
import platform
import uuid
from dataclasses import replace
from pathlib import Path

from vmapdbg import __version__
from vmapdbg.commands.shared.children import Program, run_program
from vmapdbg.commands.shared.console import say
from vmapdbg.commands.shared.jobs import find_installed
from vmapdbg.install.job import Job
from vmapdbg.install.overlay import TINYGRAD_VERSION
from vmapdbg.install.trees import find_tree
from vmapdbg.model.capture import Versions
from vmapdbg.model.data import to_data
from vmapdbg.model.failure import EXIT_USAGE
from vmapdbg.model.wording import format_plural
from vmapdbg.suite.saved import FAILED, RUN_SCHEMA, SavedRun, end_run, name_of_file, new_folder, prepare_folder


def run_and_save(program: Program, folder: Path) -> int:
    """Runs a program whose processes save what they schedule.

    Returns the exit code: the program's own, or 2 if it ended well and not everything could be saved. Raises Failure
    before the program runs if the folder cannot be used.
    """
    prepare_folder(folder)
    folder = folder.absolute()
    run = SavedRun(
        schema=RUN_SCHEMA,
        kind="saved-run",
        folder=new_folder(uuid.uuid4().hex[:12]),
        versions=find_versions(program.job),
        target=program.job.target,
        patches=program.job.patch_states,
        program=program.arguments,
    )
    asked = json.dumps({"folder": str(folder), "run": to_data(run)})
    # set if a test of another project runs this tool
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    status = run_program(program, VMAPDBG_SAVE=asked)
    saved = end_run(folder, replace(run, status=status))
    if not saved:
        say("the program made no schedule: nothing was saved")
        return status
    files = folder / run.folder
    if (files / FAILED).exists():
        say(f"{folder} does not have everything: a process could not write to it")
        return status or EXIT_USAGE
    say(f"saved {describe_saved(files)} in {folder}")
    return status


def find_versions(job: Job) -> Versions:
    """Returns the versions of a job, as far as they are known before it runs."""
    python = platform.python_version()
    if job.patches is not None:
        return Versions(__version__, TINYGRAD_VERSION, python)
    tree = find_tree(job.tree) if job.tree else find_installed(job.folder)
    return Versions(__version__, tree.version or "unknown", python, tree=job.tree, commit=tree.commit)


def describe_saved(files: Path) -> str:
    """Returns `12 tests, 40 different schedules`."""
    tests = {name_of_file(file) for file in (files / "tests").glob("*.json")}
    schedules = list((files / "schedules").glob("*.json"))
    return f"{format_plural(len(tests), 'test')}, {format_plural(len(schedules), 'different schedule')}"
