"""`vmapdbg bisect --reduce`: makes the program of a job smaller while it shows the same fault."""

import contextlib
import json
import os
import queue
import shlex
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from vmapdbg.bisect.outcome import Outcomes
from vmapdbg.bisect.search import PatchSearcher, Reduced
from vmapdbg.bisect.smaller import normalize, shrink
from vmapdbg.check import findings
from vmapdbg.check.result import CheckReport
from vmapdbg.commands.check import read_report
from vmapdbg.commands.shared import console, jobs
from vmapdbg.commands.shared.children import ChildDied, died_capture, do_many, finish_capture, started_child
from vmapdbg.install.job import Job, Run, TrialRequest
from vmapdbg.install.patches import spell_patches
from vmapdbg.install.system import CAN_FORK, count_cores
from vmapdbg.model.capture import DIED, Capture, SnippetError
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import load_capture

Fault = tuple[str | None, ...]
"""What a smaller program must have in common with the program: how both end, or what `check` finds wrong."""
_WRONG_SIDE = "one of two jobs is wrong"
_ENDLESS = 1e6
_SHORTEST = 20.0
"""A smaller program may run for this many seconds at least, and for five times as long as the program."""


def reduce_job(
    chosen: Sequence[Job], kind: str, error: SnippetError | None, seconds: float, output: Path | None
) -> tuple[Reduced, KeyboardInterrupt | None]:
    """Reduces the program of a job for at most `seconds`, and runs the result, `output`, once more. Keeps what differs
    by `kind` between two jobs; of one, its fault (`error`: how it ended). The last result is what interrupted the
    search; then the smallest program so far counts."""
    job = chosen[0]
    if len(chosen) == 1 and kind != "values" and error is None:
        return _lose(f"all sets of patches are alike by {kind}"), None
    try:
        smallest = source = normalize(Path(job.snippet).read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as unreadable:
        return _lose(f"it is no Python program: {unreadable}"), None
    interrupted = None
    with console.show_progress(f"reducing {job.snippet}") as progress, contextlib.ExitStack() as stack:
        preloads = "environ" not in source and CAN_FORK
        judge = Judge(chosen, kind, source, preloads, stack)
        if preloads and not judge.wanted:
            # what the program imports may set the environment
            judge = Judge(chosen, kind, source, False, stack)
        if not judge.wanted:
            of_one = "neither does tinygrad fail, nor is a value wrong"
            of_two = "the outcomes of the program do not differ when they are compared again"
            return _lose(of_one if len(chosen) == 1 else of_two), None
        try:
            for smallest in shrink(source, judge.ask, judge.width, seconds):
                progress(f"{count_lines(smallest)} lines, {judge.tried} programs tried")
        except KeyboardInterrupt as stopped:
            interrupted = stopped
        before, after = count_lines(source), count_lines(smallest)
        head = f"Reduced from {job.snippet}: {before} lines to {after}, {judge.tried} programs tried."
        command = ["vmapdbg check", str(output or "FILE"), *jobs.spell_job_options(job)]
        if len(chosen) > 1:
            command = ["vmapdbg bisect", command[1], "--by", shlex.quote(kind), *command[2:]]
        text = textwrap.indent(f"{head}\n{judge.describe()}\n{' '.join(command)}", "# ") + f"\n{smallest}"
        if interrupted is None and not judge.shows(text):
            return _lose("the smallest program shows it, but not when it is run once more"), None
    return Reduced(text, None, before, after, judge.tried), interrupted


def _lose(reason: str) -> Reduced:
    return Reduced(None, reason, is_lost=True)


def choose_jobs(job: Job, search: PatchSearcher) -> list[Job]:
    """Returns the job, or two jobs with sets of patches that differ as little as the search found."""
    if search.is_uniform:
        return [job]
    if search.removed.sets:
        sets = search.given, search.given.difference(search.removed.sets[0])
    else:
        sets = frozenset(search.added.sets[0]), frozenset[str]()
    return [replace(job, patches=patches) for patches in sets]


def count_lines(text: str) -> int:
    return sum(1 for line in text.splitlines() if line.strip())


class TrialServer:
    """A child that runs programs in the place of a job's snippet, one after the other; see `child.trials`."""

    def __init__(self, job: Job, of_values: bool, preloads: bool, stack: contextlib.ExitStack) -> None:
        # the programs import what is beside the job's own snippet
        path = os.pathsep.join(filter(None, (str(job.folder), os.environ.get("PYTHONPATH"))))
        self.job = replace(job, typed="", switches=(f"PYTHONPATH={path}", *job.switches))
        evidence = stack.enter_context(tempfile.TemporaryDirectory(prefix="vmapdbg-")) if of_values else None
        self.request = TrialRequest(job=self.job, evidence=evidence, preloads=preloads)
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        started = started_child(self.request, job.patches, pipe, nothing, one_thread=True, stdin=pipe)
        self.process = stack.enter_context(started).process

    def run(self, source: str, seconds: float | None) -> tuple[Capture, CheckReport]:
        """Runs a program. If it dies, the error of an empty Capture, a ChildDied, names the signal. Raises Failure."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        with tempfile.TemporaryDirectory(prefix="vmapdbg-") as folder:
            file = Path(folder) / Path(self.job.snippet).name
            file.write_text(source, encoding="utf-8")
            # the child is gone after Ctrl-C
            with contextlib.suppress(BrokenPipeError):
                stdin.write(json.dumps([str(file), folder, seconds or _ENDLESS]).encode() + b"\n")
                stdin.flush()
            ended = stdout.readline().decode().strip()
            request = replace(self.request, folder=folder)
            if not ended:
                raise ChildDied("the process that runs smaller programs has ended")
            if not request.output.exists():
                return died_capture(self.job, f"signal {ended}"), CheckReport(())
            checks = request.checks.read_text(encoding="utf-8") if request.checks.exists() else ""
            return finish_capture(load_capture(request.output)), read_report(checks, 0)


class Judge:
    """Runs smaller programs as one job, or as two that must differ by `kind`; `wanted` is the fault to show."""

    def __init__(
        self, chosen: Sequence[Job], kind: str, source: str, preloads: bool, stack: contextlib.ExitStack
    ) -> None:
        # one job: `check` compares its values with numpy; two jobs: their values are compared with each other
        self.jobs = [replace(job, values=len(chosen) > 1) for job in chosen]
        self.kind, self.tried = kind, 0
        self.seconds = self.jobs[0].timeout
        self.free: queue.Queue[list[TrialServer]] = queue.Queue()  # each entry has a server for each job
        self.width = count_cores()
        of_values = kind == "values" or len(chosen) == 1
        for _ in range(self.width):
            self.free.put([TrialServer(job, of_values, preloads, stack) for job in self.jobs])
        # an error of the snippet itself: a smaller program may end with it, or well
        self.own_error: str | None = None
        self.has_error = False
        self.wanted: Fault = ()
        began = time.monotonic()
        # a wrong value counts more than numbers that go wrong
        faults = sorted(self.find_faults(source), key=lambda one: one[0] in findings.NUMBERS.values())
        self.wanted = next(iter(faults), ())
        if DIED not in self.wanted:
            patience = max(_SHORTEST, 5 * (time.monotonic() - began))
            self.seconds = min(patience, self.seconds or patience)

    def ask(self, sources: Sequence[str]) -> list[bool]:
        """Tells of each smaller program whether it shows the fault."""
        self.tried += len(sources)
        return do_many([partial(self.shows, source) for source in sources])

    def shows(self, source: str) -> bool:
        # not deterministic, or the server has ended
        with contextlib.suppress(Failure):
            return self.wanted in self.find_faults(source)
        return False

    def find_faults(self, source: str) -> list[Fault]:
        """Runs a program and returns its faults. Two jobs that differ have one fault: how both end. Raises Failure."""
        servers = self.free.get()
        try:
            if len(servers) > 1:
                return self.compare(servers, source)
            capture, report = servers[0].run(source, self.seconds)
            error = capture.error
            is_of_tinygrad = error is not None and (error.crash is not None or error.type == DIED)
            if not self.wanted:
                self.has_error, self.own_error = is_of_tinygrad, error and error.type
            if is_of_tinygrad:
                return [end_of(capture)]
            return list(list_wrong(capture, report)) if error is None or error.type == self.own_error else []
        finally:
            self.free.put(servers)

    def compare(self, servers: Sequence[TrialServer], source: str) -> list[Fault]:
        """Returns how two jobs end, if their outcomes differ. Raises Failure if one run differs from its repetition."""
        if self.kind == "values" and (not self.wanted or _WRONG_SIDE in self.wanted):
            fault = self.find_wrong_side(servers, source)
            if fault or self.wanted:
                return [fault]
        captures: list[Capture] = []
        for server in servers:
            captures.append(server.run(source, self.seconds)[0])
            # most programs that are broken by a cut end in another way
            if self.wanted and self.wanted[: len(ends_of(captures))] != ends_of(captures):
                return []
        outcomes = Outcomes(self.kind, jobs.add_findings)
        names = {
            outcomes.sort_in(Run(capture), lambda server=server: Run(server.run(source, self.seconds)[0]))
            for server, capture in zip(servers, captures, strict=True)
        }
        return [ends_of(captures)] if len(names) > 1 else []

    def find_wrong_side(self, servers: Sequence[TrialServer], source: str) -> Fault:
        """Returns what `check` finds wrong if a program is right as one job and wrong as the other; else nothing. Then
        memory that the program should not read, which may hold anything, makes no difference."""
        sides: list[Fault] = []
        for server in servers:
            capture, report = server.run(source, self.seconds)
            if capture.error is not None:
                return ()
            sides.append(next(list_wrong(capture, report), ()))
        wrong = [(_WRONG_SIDE, str(number), *side) for number, side in enumerate(sides) if side]
        return wrong[0] if len(wrong) == 1 else ()

    def describe(self) -> str:
        """Returns a sentence about the fault."""
        if len(self.jobs) > 1:
            sides = [f"--patches {spell_patches(job.patches or frozenset())}" for job in self.jobs]
            if _WRONG_SIDE in self.wanted:
                wrong = sides.pop(int(self.wanted[1] or 0))
                return f"Its values are right with {sides[0]}, and wrong with {wrong} ({self.wanted[2]})."
            differ = "How it ends differs" if self.kind == "crash" else f"Its {self.kind} differ"
            return f"{differ} with {' and '.join(sides)}."
        on = f" on tinygrad {self.jobs[0].tree}" if self.jobs[0].tree else ""
        what, *_ = self.wanted
        if self.has_error:
            return f"It ends with {what}{on}."
        if what in findings.NUMBERS.values():
            return f"Its numbers go wrong{on} ({what})."
        return f"Its values differ from the numpy reference{on} ({what})."


def end_of(capture: Capture) -> Fault:
    """Returns how a run ended: the type of its error, and where tinygrad raised it."""
    if (error := capture.error) is None:
        return ("",)
    if error.type == DIED:
        return error.type, error.message
    if error.crash is None:
        return (error.type,)
    # a rewrite that does not end was stopped anywhere
    function = error.crash.function if error.crash.kind == "error" else error.crash.kind
    return error.type, function, error.crash.rewrite


def ends_of(captures: Sequence[Capture]) -> Fault:
    """Returns how some runs ended, one after the other."""
    return tuple(part for capture in captures for part in (*end_of(capture), ";"))


def list_wrong(capture: Capture, report: CheckReport) -> Iterator[Fault]:
    """Yields each fault's code; of a wrong value also what is wrong, and who made the first wrong buffer."""
    for check in report.schedules:
        if (code := findings.failure_code_of(capture, check)) is not None:
            yield (code,)
        yield from [(findings.LOST_WRITE,)] * bool(check.lost)
        yield from [(findings.CUT_GRADIENT,)] * bool(check.cut)
        yield from [(findings.NEVER_WRITTEN,)] * bool(check.unwritten)
        yield from [(findings.RACE,)] * bool(check.races)
        buffer = check.first_wrong_buffer
        made_by = None if buffer is None or buffer.fault is None else buffer.fault.made_by
        yield from ((findings.name_wrong(check, output), output.of, made_by) for output in check.wrong)
        yield from ((findings.NUMBERS[fault.kind], fault.op) for fault in check.numbers)
