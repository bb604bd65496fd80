"""`vmapdbg run --check` on the tool's side: runs the program with a process beside it that judges what it realizes, and
sums up.

`vmapdbg.child.run_check` is the side of the program's processes, `vmapdbg.child.compare.judge` the one that judges.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from vmapdbg.check.suite import PARTS, Judged, ProgramCheck, sum_up
from vmapdbg.commands.shared.children import ONE_THREAD, Program, run_program
from vmapdbg.commands.shared.console import Progress, make_console, print_json, show_progress
from vmapdbg.model.data import build_data
from vmapdbg.model.failure import EXIT_CHILD

_POLL = 0.1


def run_and_check(program: Program, as_json: bool) -> int:
    """Runs a program and prints which of its values are wrong: on stderr, or with `as_json` as a document on stdout,
    and what the program prints on stderr.

    Returns the exit code: 1 where a value is wrong or tinygrad was stopped, else the program's own; 4 where the judge
    died.
    """
    from vmapdbg.page.run_check import make_document
    from vmapdbg.page.text.run_check import print_run_check

    # a test that runs this tool is none of the program's
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    with tempfile.TemporaryDirectory(prefix="vmapdbg-check-") as folder:
        root = Path(folder)
        for part in PARTS:
            (root / part).mkdir()
        # held open until this process ends, however that is
        lifeline, held = os.pipe()
        judge = subprocess.Popen(
            [sys.executable, "-m", "vmapdbg.child.compare.judge", folder, str(lifeline)],
            env={**ONE_THREAD, **os.environ},
            stdout=sys.stderr,
            start_new_session=True,
            pass_fds=(lifeline,),
        )
        os.close(lifeline)
        try:
            status = run_program(program, stdout=sys.stderr if as_json else None, VMAPDBG_CHECK=folder)
            (root / "over").touch()
            is_stopped = not wait_for_judge(judge, root)
        finally:
            judge.kill()
            judge.wait()
            os.close(held)
        died = judge.returncode != 0 and not is_stopped
        document = make_document(read_found(root, died), program.arguments, status)
    if as_json:
        print_json(document)
    else:
        print_run_check(document, make_console(stderr=True))
    if died:
        return EXIT_CHILD
    return 1 if document.findings or document.endless else status


def wait_for_judge(judge: subprocess.Popen[bytes], root: Path) -> bool:
    """Waits until all is judged, and returns True; Ctrl-C ends it, and what was judged so far counts."""
    with show_progress("judging what the program realized") as progress:
        try:
            while judge.poll() is None:
                report(progress, root)
                time.sleep(_POLL)
        except KeyboardInterrupt:
            return False
    return True


def report(progress: Progress | None, root: Path) -> None:
    if progress is not None:
        progress(f"{len(os.listdir(root / 'ready')):,} schedules to go")


def read_found(root: Path, died: bool) -> ProgramCheck:
    """Returns what was found, with what was not looked at: `died` tells whether the judge did, else the run was
    stopped where something is left."""
    found = sum_up(read_judged(root))
    unchecked = dict(found.unchecked)
    outside = root / "outside"
    if outside.exists():
        unchecked["it was scheduled by other means than Tensor.realize"] = outside.stat().st_size
    left = len(os.listdir(root / "ready"))
    if left and died:
        unchecked["it was not judged: the process that judges died"] = left
    elif left:
        unchecked["it was not judged: the run was stopped"] = left
    return replace(found, unchecked=unchecked)


def read_judged(root: Path) -> Iterator[Judged]:
    file = root / "judged.jsonl"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    # a judge that was stopped may have left half a line
    for line in text[: text.rfind("\n") + 1].splitlines():
        yield build_data(Judged, json.loads(line))
