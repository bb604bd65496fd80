"""Runs programs on the tinygrad of this process and compares every realize. runner.py starts it:

    python -m tests.fuzz.hunt.worker PATCHES|observe STACKS LIFELINE

STACKS is a file for its stack when it gets SIGUSR1; it ends when the other end of the pipe LIFELINE is gone.

Reads a JSON document a line from stdin, `{"source": ...}`, and writes the result to stdout in the same form.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import io
import json
import os
import pickle
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import IO, Any

from tests.fuzz.hunt.runner import Outcome
from vmapdbg.check.result import OutputCheck
from vmapdbg.child.compare.schedule_checker import ScheduleChecker
from vmapdbg.child.evidence.evidence import EvidenceFolder
from vmapdbg.child.listen.user_lines import set_internal_folders
from vmapdbg.child.run_snippet import Mode, schedule_lazy
from vmapdbg.install.job import Job, Request
from vmapdbg.install.patches import parse_patches
from vmapdbg.install.system import hold

MEMORY = 8 << 30
"""Bytes of addresses: an endless rewrite must not take the machine."""


def main() -> None:
    hold(int(sys.argv[3]))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answers = os.fdopen(os.dup(1), "w")
    # whatever programs and compilers print
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    said = tempfile.TemporaryFile()  # noqa: SIM115
    os.dup2(said.fileno(), 2)
    faulthandler.register(signal.SIGUSR1, file=Path(sys.argv[2]).open("w"), all_threads=False)  # noqa: SIM115
    world = World(sys.argv[1])
    answers.write("ready\n")
    answers.flush()
    for line in sys.stdin:
        said.seek(0)
        said.truncate()
        answer = world.try_program(json.loads(line)["source"])
        if "CalledProcessError" in answer["detail"]:
            answer["detail"] = f"compiler: {find_error(said)}"
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def find_error(said: IO[bytes]) -> str:
    """What a compiler calls an error, without the numbers and names of one program."""
    said.seek(0)
    lines = said.read().decode(errors="replace").splitlines()
    errors = [line.split("error: ")[1] for line in lines if "error: " in line]
    return errors[0][:200] if errors else "no error is told"


class World:
    """tinygrad as it is here, looked at."""

    def __init__(self, patches: str):
        job = Job("program.py", patches=None if patches == "observe" else parse_patches(patches))
        self.first = tempfile.TemporaryDirectory()
        self.mode: Any = Mode(Request(job=job, folder=self.first.name, evidence=self.first.name))
        self.mode.prepare()
        # what this file realizes at the end of a program was not read
        set_internal_folders(str(Path(__file__).parent))
        import tinygrad

        self.tinygrad = Path(tinygrad.__file__ or "").parent
        assert self.mode.collector is not None

    def try_program(self, source: str) -> dict[str, Any]:
        collector = self.mode.collector
        with tempfile.TemporaryDirectory() as folder:
            evidence = collector.folder = collector.replays.folder = EvidenceFolder(Path(folder))
            found, printed = self.run(source)
            if found.kind == "ok":
                found = self.judge(evidence)
            collector.replays.forget()
            collector.replays.left.clear()
            self.mode.recorder.forget()
            gc.collect()
        return {"kind": found.kind, "detail": found.detail, "trace": found.trace, "printed": printed}

    def run(self, source: str) -> tuple[Outcome, str]:
        # each program starts as in a process of its own
        names: dict[str, Any] = {"__name__": "__main__"}
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(source, "program.py", "exec"), names)
                schedule_lazy(list(names.values()), realize=True)
        except AssertionError as error:
            if "Not equal" in str(error):
                kind = "replay" if "replay" in str(error) else "differs"
                return Outcome(kind, " ".join(str(error).split())[:300]), printed.getvalue()
            return self.explain(error), printed.getvalue()
        except BaseException as error:
            return self.explain(error), printed.getvalue()
        return Outcome("ok"), printed.getvalue()

    def explain(self, error: BaseException) -> Outcome:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(str(self.tinygrad))]
        places = [f"{os.path.relpath(f.filename, self.tinygrad)}:{f.name}" for f in frames]
        # what tinygrad says when a Tensor is asked for what cannot be, before anything is scheduled
        in_front = {"tensor.py", "mixin", "gradient.py", "dtype.py", "helpers.py", "uop"}
        is_refused = all(place.split("/")[0].split(":")[0] in in_front for place in places)
        # there is nothing to replay
        kind = "refused" if is_refused or type(error).__name__ == "JitError" else "crash"
        return Outcome(kind, f"{type(error).__name__}: {str(error)[:300]}", tuple(places[-6:]))

    def judge(self, evidence: EvidenceFolder) -> Outcome:
        left = list(self.mode.collector.replays.left)
        for file in evidence.find_files():
            checked = ScheduleChecker(pickle.loads(file.read_bytes()), evidence).check()
            replay = "" if checked.replay is None else f", replay {checked.replay}"
            for first in checked.wrong[:1]:
                return Outcome("wrong", f"{checked.line}{replay}: {describe(first)}")
            for lost in checked.lost:
                return Outcome("wrong", f"{checked.line}{replay}: a lost write, {lost.line}")
            left += checked.left
        # what was not compared
        return Outcome("ok", "; ".join(dict.fromkeys(one.sentence for one in left if one.count)))


def describe(output: OutputCheck) -> str:
    c = output.comparison
    return (
        f"{output.of} {output.number}: {c.wrong} of {c.total} elements of {output.dtype} {output.shape} are wrong,"
        f" at {c.index} it is {c.got} and not {c.expected}"
    )


if __name__ == "__main__":
    main()
