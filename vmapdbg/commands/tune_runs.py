"""The runs of `vmapdbg tune`: a program with edits, measured, compared, and written."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from vmapdbg.bisect.measure import COUNTED_RUNS, measure
from vmapdbg.bisect.outcome import describe_end
from vmapdbg.commands.check import check_job
from vmapdbg.commands.shared import console
from vmapdbg.commands.shared.children import run_many, run_quietly
from vmapdbg.commands.shared.runs import print_kept, run_in_turns
from vmapdbg.install.job import TUNED, Job, Run
from vmapdbg.install.patches import parse_patches
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import sum_programs, sum_times
from vmapdbg.model.store import write_output
from vmapdbg.model.wording import split_place
from vmapdbg.page.documents import TuneDocument, make_document
from vmapdbg.tune.candidates import PATCHES, list_candidates, list_lines, list_switches
from vmapdbg.tune.edits import Edit, Source, apply_edits, diff_file
from vmapdbg.tune.search import Edits, Proposal, Searcher, Trial, find_other_value, measure_noise, saves

TURNS = 5
"""How often the unchanged and the edited program run in turns; for memory, which hardly varies, `COUNTED_RUNS`."""
# a try may take so many times as long as the unchanged program, and at least so many seconds
_PATIENCE, _LEAST_TIMEOUT = 5, 60.0


def tune_job(job: Job, by: str, budget: float) -> tuple[TuneDocument, Tuner]:
    """Tries edits of a job's program and measures the best. If the program fails, ends the tool. Raises Failure if it
    cannot be measured."""
    began = time.monotonic()
    console.say(f"running {job.snippet} for {budget:g} seconds, and then in turns, with all that it does")
    progress, temporary = console.show_progress(f"tuning {job.snippet}"), tempfile.TemporaryDirectory(prefix="vmapdbg-")
    with progress as report, temporary as folder:
        tuner = Tuner(job, by, Path(folder), report)
        end = time.monotonic() + budget
        searcher = Searcher(tuner.unchanged, tuner.ask, lambda: time.monotonic() > end, tuner.noise)
        found = searcher.search([*list_candidates(tuner.capture, tuner.sources, by), *list_switches(job)])
        proposals = tuner.propose([trial for trial in found if trial.edits])
    kernels = tuner.capture.kernels
    longest = max(kernels, key=lambda kernel: sum_times(kernel.measured), default=None)
    document = make_document(
        TuneDocument,
        tuner.capture,
        by=by,
        budget=budget,
        seconds=time.monotonic() - began,
        runs=tuner.runs,
        number=tuner.unchanged.number or 0.0,
        proposals=tuple(proposals),
        tried=(*searcher.trials, *tuner.refused),
        untried=tuple(searcher.untried),
        longest=longest,
        share=sum_times(longest and longest.measured) / (sum_programs(kernels) or 1),
        device=tuner.capture.device,
    )
    return document, tuner


class Tuner:
    """Runs a program with edits. `capture`, `sources` (its files) and `unchanged` belong to the unchanged program:
    `unchanged` is the better of two runs, and `noise` is their difference."""

    def __init__(self, job: Job, by: str, folder: Path, progress: console.Progress) -> None:
        self.job, self.by, self.folder, self.progress = job, by, folder, progress
        self.runs, self.refused, self.sources = 0, list[Trial](), dict[str, Source]()
        began = time.monotonic()
        first = self.run((), times=True, values=True, measured=TUNED)
        self.capture = first.capture
        if self.capture.error is not None:
            print_kept(first)
            console.report_death(self.capture)
            console.end_after(self.capture)
        timeout = max(_LEAST_TIMEOUT, _PATIENCE * (time.monotonic() - began))
        self.job = replace(job, timeout=job.timeout or timeout)
        for file in dict.fromkeys(split_place(line)[0] for line in list_lines(self.capture)):
            try:
                self.sources[file] = Source(file, Path(file).read_bytes())
            except (OSError, SyntaxError, ValueError) as error:
                console.say(f"{file} is not edited: {error}")
        runs = [self.judge((), first) if by == "time" else self.ask(()), self.ask(())]
        numbers = [trial.number for trial in runs if trial.number is not None]
        if len(numbers) < len(runs):
            raise Failure(f"{job.snippet} cannot be measured: {next(one.about for one in runs if one.about)}")
        self.noise, self.unchanged = max(numbers) - min(numbers), runs[numbers.index(min(numbers))]

    def job_of(self, edits: Edits, **changes: Any) -> Job:
        """Returns the job with edits, as it is measured. Raises SyntaxError if that is no Python."""
        job = replace(self.job, times=True, values=True, measured=TUNED)
        if self.by == "memory":
            job = replace(job, times=False, values=False, measured="memory")
        texts: dict[str, str] = {}
        for file in {edit.file for edit in edits if edit.file}:
            texts[str(Path(file).resolve())] = self.edit(file, edits).decode()
        if texts:
            path = self.folder / f"{len(list(self.folder.iterdir()))}.json"
            path.write_text(json.dumps(texts), encoding="utf-8")
            job = replace(job, edits=str(path))
        for edit in edits:
            if edit.new.startswith(PATCHES):
                job = replace(job, patches=parse_patches(edit.new.removeprefix(PATCHES)))
            elif not edit.file:
                job = replace(job, switches=(edit.new,))
        return replace(job, **changes)

    def edit(self, file: str, edits: Iterable[Edit]) -> bytes:
        return apply_edits(self.sources[file].data, (edit for edit in edits if edit.file == file))

    def run(self, edits: Edits, **changes: Any) -> Run:
        self.runs += 1
        self.progress(f"run {self.runs}")
        return run_quietly(self.job_of(edits, **changes))

    def ask(self, edits: Edits) -> Trial:
        """Runs the program with edits once."""
        try:
            return self.judge(edits, self.run(edits))
        except SyntaxError as error:
            return Trial(edits, "fails", about=f"SyntaxError: {error.msg}")

    def judge(self, edits: Edits, run: Run) -> Trial:
        """Returns the trial of a run, not yet compared with others."""
        capture, number = run.capture, self.measure(run)
        if capture.error is not None:
            return Trial(edits, "fails", about=describe_end(run))
        if number is None:
            return Trial(edits, "fails", about="nothing was timed, or launches of unknown kernels")
        about = find_other_value(self.capture, capture) if self.by == "time" else ""
        if about:
            about += "" if edits else ": two runs of the same program differ (the clock, its inputs)"
            return Trial(edits, "other-values", about=about)
        key = "".join(kernel.key for kernel in capture.kernels)
        ops = sum(kernel.executed_ops for kernel in capture.kernels)
        return Trial(edits, "unchanged", number, len(capture.kernels), ops, key)

    def measure(self, run: Run) -> float | None:
        """Returns the bytes of the peak, or the seconds of the kernels and of launching them. None if unknown."""
        number, timing = measure(self.by, run), run.capture.timing
        if self.by == "memory" or number is None or timing is None:
            return number
        return number + timing.parts.get("launching", 0.0)

    def propose(self, best: Sequence[Trial]) -> list[Proposal]:
        """Measures trials in turns with the unchanged program. Returns those that help, with the right values."""
        turns = COUNTED_RUNS if self.by == "memory" else TURNS
        jobs = [self.job_of(edits, values=False) for edits in ((), *(trial.edits for trial in best))] if best else []
        before, *others = [map(self.measure, runs) for runs in run_in_turns(jobs, turns, self.progress)] or [()]
        self.runs += turns * len(jobs)
        numbers = [number for number in before if number is not None]
        proposals: list[Proposal] = []
        for trial, after in zip(best, others, strict=True):
            made = self.verify(trial.edits, numbers, [number for number in after if number is not None], turns)
            if isinstance(made, Trial):
                self.refused.append(made)
            else:
                proposals.append(made)
        return proposals

    def verify(self, edits: Edits, before: Sequence[float], after: Sequence[float], turns: int) -> Proposal | Trial:
        """Returns the proposal of edits if they help and their values are right, else a trial that says what is not."""
        if not len(before) == len(after) == turns or not saves(before, after):
            number = median(after) if after else None
            return Trial(edits, "no-better", number, about="in turns it saves no more than the noise")
        options = {"times": False, "values": False}
        peaks = run_many([self.job_of(made, measured="memory", **options) for made in ((), edits)])
        capture = self.run(edits, times=False, values=True, measured=TUNED).capture
        _, report, ended = check_job(self.job_of(edits, measured="", **options))
        self.runs += len(peaks) + 1
        about = find_other_value(self.capture, capture)
        if any(check.wrong for check in report.schedules):
            about = "differs from the numpy reference"
        if ended is not None or capture.error is not None:
            about = f"could not be compared with the reference: {ended or describe_end(Run(capture))}"
        if about:
            return Trial(edits, "other-values", about=about)
        files = dict.fromkeys(edit.file for edit in edits if edit.file)
        return Proposal(
            edits=tuple(sorted(edits)),
            diff="".join(diff_file(file, self.sources[file].data, self.edit(file, edits)) for file in files),
            before=tuple(before),
            after=tuple(after),
            noise=max(measure_noise(before), measure_noise(after)),
            kernels=(len(self.capture.kernels), len(capture.kernels)),
            executed_ops=tuple(sum(kernel.executed_ops for kernel in one.kernels) for one in (self.capture, capture)),
            peak_bytes=tuple(run.capture.peak_bytes for run in peaks),
            compared=sum(len(check.outputs) for check in report.schedules),
        )

    def write(self, edits: Edits) -> None:
        """Makes edits in the user's files. Raises Failure, and writes nothing, if one of them changed or is
        read-only."""
        files = {edit.file: Path(edit.file).resolve() for edit in edits if edit.file}
        for file, path in files.items():
            if not path.is_file() or path.read_bytes() != self.sources[file].data:
                raise Failure(f"{file} changed while it was tuned: nothing was written")
            if not path.stat().st_mode & 0o222:
                raise Failure(f"{file} is read-only: nothing was written")
        for file, path in files.items():
            rights = path.stat().st_mode & 0o7777
            write_output(path, self.edit(file, edits))
            path.chmod(rights)
            console.say(f"wrote {file}")
