"""Runs a snippet in several ways: next to a baseline (`diff`, `graph --diff`, `lint`), or timed several times."""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vmapdbg.commands.shared.children import import_meanwhile, run_many, run_quietly
from vmapdbg.commands.shared.console import Progress, say, show_progress
from vmapdbg.commands.shared.jobs import add_findings, check_snippet, fetch_tree, is_saved, load_saved, make_job
from vmapdbg.commands.shared.options import JobOptions
from vmapdbg.install.job import Job, Run
from vmapdbg.install.patches import PatchError, parse_patches
from vmapdbg.install.trees import TreeError, parse_name
from vmapdbg.model.capture import Capture, Kernel, Measured
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import change_kernels, find_times
from vmapdbg.model.store import load_capture

if TYPE_CHECKING:
    from vmapdbg.diff.result import CaptureDiff

# what compares two captures and prints the result; the last one imports numpy
_IMPORTS = ("vmapdbg.diff", "vmapdbg.page.text.run", "vmapdbg.values.numbers")
_TIMED_RUNS = 3  # how often a job is run to time it: the ratio of two single launches of a kernel is mostly noise


@dataclass(frozen=True)
class Sides:
    """Before and after. `printed` is what the snippet printed in both runs (None: one was not run), `names` are files
    of captures. `same_lines` maps lines of two snippets. `unchanged` is the job of before if both sides were run."""

    before: Capture
    after: Capture
    printed: tuple[str, str] | None = None
    names: tuple[str, str] = ("", "")
    same_lines: dict[str, str] = field(default_factory=dict[str, str])
    unchanged: Job | None = None


def make_sides(snippet: str | None, baseline: str | None, given: JobOptions, old: str | None = None) -> Sides:
    """Returns the two sides: a snippet (None: the remembered one) with its baseline or with another snippet, `old`, or
    two captures. `baseline`: `none`, `stock`, patches, a tinygrad, a capture; None: the default. Raises Failure."""
    for name in (baseline, snippet):
        if given.times and is_saved(name):
            raise Failure(f"--time runs both sides, and {name} is a saved capture: save them with show --time --save")
    if is_saved(snippet):
        if not is_saved(baseline):
            raise Failure("a saved capture is compared with another one: vmapdbg diff before.json after.json")
        return Sides(load_capture(baseline), load_saved(snippet, given), names=(baseline, snippet))
    if old is not None:
        check_snippet(old)
    job = replace(make_job(snippet, given), values=True)
    if is_saved(baseline):
        before, after = (add_findings(run.capture) for run in run_with_baseline(job, baseline))
        return Sides(before, after, names=(baseline, ""))
    same_lines: dict[str, str] = {}
    if old is not None:
        from vmapdbg.diff.pairing import match_lines

        # before the runs, because the user may edit the files meanwhile
        texts = [Path(name).read_text(encoding="utf-8", errors="replace") for name in (old, job.snippet)]
        same_lines = match_lines(texts[0], texts[1], (old, job.snippet))
        unchanged = replace(job, snippet=old)
    else:
        unchanged = baseline_of(job, baseline or choose_baseline(job))
    runs = run_both(unchanged, job)
    before, after = (add_findings(run.capture) for run in runs)
    return Sides(before, after, (runs[0].printed, runs[1].printed), same_lines=same_lines, unchanged=unchanged)


def compare_sides(sides: Sides) -> "CaptureDiff":
    """Compares two sides. If values differ, runs before again: what differs between two runs of it is no change."""
    from vmapdbg.diff.captures import diff_captures, leave_unstable

    found = diff_captures(sides.before, sides.after, sides.printed, sides.names, sides.same_lines)
    job, printed = sides.unchanged, found.printed
    if job is None or sides.printed is None or printed is None or (found.values != "different" and printed.equal):
        return found
    with show_progress(f"running {job.snippet} once more, because values differ"):
        again = run_quietly(replace(job, times=False))
    repeated = diff_captures(sides.before, again.capture)
    if repeated.is_empty and again.printed == sides.printed[0]:
        return found
    return leave_unstable(found, repeated, (*sides.printed, again.printed))


def run_with_baseline(job: Job, baseline: str) -> list[Run]:
    """Returns the runs of the baseline and of the job."""
    if is_saved(baseline):
        before, after = Run(load_capture(baseline)), run_quietly(job)
        print_kept(after)
        return [before, after]
    return run_both(baseline_of(job, baseline), job)


def run_both(before: Job, after: Job) -> list[Run]:
    """Runs two jobs at once, timed jobs in turns; then writes to stderr what the second run of the snippet printed."""
    is_one = before.snippet == after.snippet
    name = after.snippet if is_one else f"{before.snippet} and {after.snippet}"
    if after.times:
        runs = run_timed((before, after), f"{name} on both sides" if is_one else name)
    else:
        with show_progress(f"running {name} twice" if is_one else f"running {name}") as progress:
            import_meanwhile(*_IMPORTS)
            runs = run_many((before, after), most=2, progress=progress)
    print_kept(runs[1])
    return runs


def print_kept(run: Run) -> None:
    """Writes to stderr what a snippet printed. Runs keep it until they end: the output of two runs would mix."""
    sys.stderr.buffer.write(run.stdout + run.stderr)
    sys.stderr.flush()


def choose_baseline(job: Job) -> str:
    """Returns the default baseline: no patches, or the last commit of a changed checkout. Raises Failure if neither."""
    if job.patches is not None:
        return "none"
    is_checkout = job.tree and parse_name(job.tree).revision is None
    if is_checkout and (fetch_tree(job.tree).commit or "").endswith("-dirty"):
        return "@HEAD"
    raise Failure("compared with what? --baseline=0.13.0 (a release), @REVISION or PATH (this tinygrad is observed)")


def baseline_of(job: Job, baseline: str) -> Job:
    """Returns the job of a baseline: with other patches, or another tinygrad. Raises Failure."""
    if baseline == "stock":
        return replace(job, patches=None)
    try:
        patches = parse_patches(baseline)
    except PatchError as no_patches:
        # `@REVISION`: of the checkout that the job uses
        checkout = (job.tree.rpartition("@")[0] or job.tree) if baseline.startswith("@") else ""
        name = f"{checkout}{baseline}"
        try:
            fetch_tree(name)
        except TreeError as no_tree:
            is_word = baseline.replace("-", "").replace(",", "").isalpha()
            raise (no_patches if is_word else no_tree) from None
        return replace(job, tree=name, patches=None)
    if job.patches is None:
        raise Failure(f"--baseline={baseline} are patches of tinygrad 0.12.0, and this one is observed without any")
    return replace(job, patches=patches)


def run_timed(jobs: Sequence[Job], name: str) -> list[Run]:
    """Runs timed jobs, called `name`, in turns, because other load varies. Returns the first runs, with all times."""
    say(f"running {name}, {_TIMED_RUNS} times each, in turns")
    with show_progress(f"timing {name}") as progress:
        return list(map(_join_runs, run_in_turns(jobs, _TIMED_RUNS, progress)))


def run_in_turns(jobs: Sequence[Job], turns: int, progress: Progress, most: int = 1) -> list[list[Run]]:
    """Runs jobs several times, in turn, `most` at the same time. A job that fails is not run again."""
    runs_of_jobs: list[list[Run]] = [[] for _ in jobs]
    for turn in range(turns):
        progress(f"turn {turn + 1} of {turns}")
        left = [i for i, runs in enumerate(runs_of_jobs) if all(run.capture.error is None for run in runs)]
        for i, run in zip(left, run_many([jobs[i] for i in left], most=most), strict=True):
            runs_of_jobs[i].append(run)
    return runs_of_jobs


def _join_runs(runs: Sequence[Run]) -> Run:
    """Returns the first run, its kernels with the times of all runs."""
    times = [find_times(run.capture.kernels) for run in runs]

    def join_times(kernel: Kernel) -> Kernel:
        measured = [found[kernel.source] for found in times if kernel.source in found]
        if not measured:
            return replace(kernel, measured=None)
        median = statistics.median(one.median for one in measured)
        least, most = min(one.least for one in measured), max(one.most for one in measured)
        return replace(kernel, measured=Measured(measured[0].launches, median, least, most, len(measured)))

    return replace(runs[0], capture=change_kernels(runs[0].capture, join_times))
