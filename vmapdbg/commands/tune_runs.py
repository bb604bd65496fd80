"""The runs of `vmapdbg tune`: a program with edits, measured, compared, and written."""

import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from vmapdbg.bisect.measure import COUNTED_RUNS, measure, measure_noise
from vmapdbg.bisect.outcome import describe_end
from vmapdbg.commands.check import check_job
from vmapdbg.commands.shared import console
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
from vmapdbg.tune.search import Edits, EditSearcher, EditTrial, Proposal, find_other_value, saves

TURNS = 5
"""How often the unchanged and the edited program run in turns; for memory, which hardly varies, `COUNTED_RUNS`."""
# a try may take so many times as long as the unchanged program, and at least so many seconds
_PATIENCE, _LEAST_TIMEOUT = 5, 60.0


def tune_job(job: Job, by: str, budget: float) -> "tuple[TuneDocument, Tuner]":
    """Tries edits and measures the best. Ends the tool if the program fails; raises Failure if it has no measure."""
    began = time.monotonic()
    console.say(f"running {job.snippet} for {budget:g} seconds, and then in turns, with all that it does")
    progress, temporary = console.show_progress(f"tuning {job.snippet}"), tempfile.TemporaryDirectory(prefix="vmapdbg-")
    with progress as report, temporary as folder:
        tuner = Tuner(job, by, Path(folder), report)
        end = time.monotonic() + budget
        searcher = EditSearcher(tuner.unchanged, tuner.ask, lambda: time.monotonic() > end, tuner.noise)
        found = searcher.search([*list_candidates(tuner.capture, tuner.sources, by), *list_switches(job)])
        proposals = tuple(tuner.propose([trial for trial in found if trial.edits]))
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
        proposals=proposals,
        tried=(*searcher.trials, *tuner.refused),
        untried=tuple(searcher.untried),
        longest=longest,
        share=sum_times(longest and longest.measured) / (sum_programs(kernels) or 1),
        device=tuner.capture.device,
    )
    return document, tuner


# how a job is run: timed, or without records, which keep memory
_TIMED = {"times": True, "values": True, "measured": TUNED}
_WATCHED = {"measured": "memory"}


class Tuner:
    """Runs a program with edits. `capture`, `sources` (its files) and `unchanged` (the better of two runs, which differ
    by `noise`) belong to the unchanged program."""

    def __init__(self, job: Job, by: str, folder: Path, progress: console.Progress) -> None:
        self.job, self.by, self.folder, self.progress = job, by, folder, progress
        self.options = _TIMED if by == "time" else _WATCHED
        self.runs, self.refused, self.sources = 0, list[EditTrial](), dict[str, Source]()
        began = time.monotonic()
        ((first,),) = self.run([replace(job, **_TIMED)])
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

    def run(self, jobs: Sequence[Job], turns: int = 1) -> list[list[Run]]:
        """Returns the runs of each job, which run in turns."""
        self.runs += turns * len(jobs)
        return run_in_turns(jobs, turns, lambda turn: self.progress(f"run {self.runs}, {turn}"))

    def job_of(self, edits: Edits, **options: Any) -> Job:
        """Returns the job with edits. Raises SyntaxError if they make no Python."""
        job, files = replace(self.job, **options), {edit.file for edit in edits if edit.file}
        if files:
            texts = {str(Path(file).resolve()): self.edit(file, edits).decode() for file in files}
            path = self.folder / f"{len(list(self.folder.iterdir()))}.json"
            path.write_text(json.dumps(texts), encoding="utf-8")
            job = replace(job, edits=str(path))
        for edit in edits:
            if edit.new.startswith(PATCHES):
                job = replace(job, patches=parse_patches(edit.new.removeprefix(PATCHES)))
            elif not edit.file:
                job = replace(job, switches=(edit.new,))
        return job

    def edit(self, file: str, edits: Iterable[Edit]) -> bytes:
        return apply_edits(self.sources[file].data, (edit for edit in edits if edit.file == file))

    def ask(self, edits: Edits) -> EditTrial:
        """Runs the program with edits once."""
        try:
            ((run,),) = self.run([self.job_of(edits, **self.options)])
        except SyntaxError as error:
            return EditTrial(edits, "fails", about=f"SyntaxError: {error.msg}")
        return self.judge(edits, run)

    def judge(self, edits: Edits, run: Run) -> EditTrial:
        """Returns the trial of a run, not yet compared with others."""
        capture, number = run.capture, self.measure(run)
        if capture.error is not None:
            return EditTrial(edits, "fails", about=describe_end(run))
        if number is None:
            return EditTrial(edits, "fails", about="nothing was timed, or launches of unknown kernels")
        about = find_other_value(self.capture, capture) if self.by == "time" else ""
        if about:
            why = "" if edits else ": two runs of the same program differ (the clock, its inputs)"
            return EditTrial(edits, "other-values", about=about + why)
        key = "".join(kernel.key for kernel in capture.kernels)
        ops = sum(kernel.executed_ops for kernel in capture.kernels)
        return EditTrial(edits, "unchanged", number, len(capture.kernels), ops, key)

    def measure(self, run: Run) -> float | None:
        """Returns the bytes of the peak, or the seconds of the kernels and of launching them. None if unknown."""
        number, timing = measure(self.by, run), run.capture.timing
        if self.by == "memory" or number is None or timing is None:
            return number
        return number + timing.parts.get("launching", 0.0)

    def propose(self, best: Sequence[EditTrial]) -> Iterator[Proposal]:
        """Measures trials and the unchanged program in turns. Yields edits that help; the others go to `refused`."""
        turns = COUNTED_RUNS if self.by == "memory" else TURNS
        if best:
            jobs = [self.job_of(edits, **self.options) for edits in ((), *(trial.edits for trial in best))]
            before, *others = self.run(jobs, turns)
            for trial, after in zip(best, others, strict=True):
                numbers = [list(filter(None, map(self.measure, runs))) for runs in (before, after)]
                if len(numbers[0]) == len(numbers[1]) == turns and saves(*numbers):
                    yield from self.verify(trial.edits, *numbers)
                else:
                    about = "in turns it saves no more than the noise"
                    number = median(numbers[1]) if numbers[1] else None
                    self.refused.append(EditTrial(trial.edits, "no-better", number, about=about))

    def verify(self, edits: Edits, before: Sequence[float], after: Sequence[float]) -> Iterator[Proposal]:
        """Yields the proposal of edits if their values are right, else adds a refused trial that says what is not."""
        peaks = [self.job_of(made, **_WATCHED) for made in ((), edits)]
        *peaks, (run,) = self.run([*peaks, self.job_of(edits, **_TIMED)])
        _, report, ended = check_job(self.job_of(edits))
        about = find_other_value(self.capture, run.capture)
        if any(check.wrong for check in report.schedules):
            about = "differs from the numpy reference"
        if ended is not None or run.capture.error is not None:
            about = f"could not be compared with the reference: {ended or describe_end(run)}"
        if about:
            self.refused.append(EditTrial(edits, "other-values", about=about))
            return
        files, sides = dict.fromkeys(edit.file for edit in edits if edit.file), (self.capture, run.capture)
        yield Proposal(
            edits=tuple(sorted(edits)),
            diff="".join(diff_file(file, self.sources[file].data, self.edit(file, edits)) for file in files),
            before=tuple(before),
            after=tuple(after),
            noise=max(measure_noise(before), measure_noise(after)),
            kernels=tuple(len(side.kernels) for side in sides),
            executed_ops=tuple(sum(kernel.executed_ops for kernel in side.kernels) for side in sides),
            peak_bytes=tuple(run.capture.peak_bytes for (run,) in peaks),
            compared=sum(len(check.outputs) for check in report.schedules),
        )

    def write(self, edits: Edits) -> None:
        """Writes edits into the user's files. If one changed or is read-only, raises Failure and writes nothing."""
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
