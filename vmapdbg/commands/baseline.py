"""Runs a job beside its baseline: the before and after of `diff`, `graph --diff` and `lint`."""

from __future__ import annotations

import sys
from dataclasses import replace

from vmapdbg import __version__
from vmapdbg.commands.jobs import add_findings, find_job
from vmapdbg.commands.launcher import run_pair, run_quietly
from vmapdbg.commands.options import JobOptions
from vmapdbg.commands.progress import show_progress
from vmapdbg.job.job import Job, Run
from vmapdbg.job.patches import Patches, parse_patches
from vmapdbg.model.capture import SCHEMA, Capture, SnippetError, Versions
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import load_capture

# what compares two captures and prints that; the last brings numpy, which values are compared with
_NEEDED = ("vmapdbg.diff", "vmapdbg.render.text.diff", "vmapdbg.values.close")


def find_pair(
    snippet: str | None, baseline: str, options: JobOptions
) -> tuple[Capture, Capture, tuple[str, str] | None]:
    """Returns before, after, and what the snippet printed on both where it ran.

    `snippet` is None for the remembered one, or a saved capture where the baseline is another.
    """
    if snippet is not None and snippet.endswith(".json"):
        if not baseline.endswith(".json"):
            raise Failure("a saved capture is compared with another one: vmapdbg diff before.json after.json")
        return load_capture(baseline), load_capture(snippet), None
    job = replace(find_job(snippet, options), values=True)
    before, after = run_beside(job, baseline)
    printed = None
    if not baseline.endswith(".json"):
        printed = decode(before.stdout), decode(after.stdout)
    return capture_of(before, job), capture_of(after, job), printed


def decode(output: bytes) -> str:
    return output.decode("utf-8", "backslashreplace")


def run_beside(job: Job, baseline: str) -> tuple[Run, Run]:
    """Returns the baseline's run and the job's; both run at the same time. What the snippet prints in the job's goes to
    stderr afterwards.

    `baseline` is `none`, `stock`, a patch list, or a saved capture.
    """
    if baseline.endswith(".json"):
        before, after = Run(load_capture(baseline), None), run_quietly(job)
    else:
        patches = read_baseline(baseline)
        with show_progress(f"running {job.snippet} with two sets of patches") as progress:
            before, after = run_pair(replace(job, patches=patches), job, _NEEDED, progress)
    # not while they run: what the two print would mix
    sys.stderr.buffer.write(after.stdout + after.stderr)
    sys.stderr.flush()
    return before, after


def read_baseline(baseline: str) -> Patches | None:
    """Returns the patches of a baseline that is run, None for stock tinygrad."""
    if baseline == "stock":
        return None
    return parse_patches(baseline)


def capture_of(run: Run, job: Job) -> Capture:
    """Returns what a run captured; for a child that died a capture with that as its error, and no schedule."""
    if run.capture is not None:
        return add_findings(run.capture)
    return Capture(
        schema=SCHEMA,
        versions=Versions(__version__, "", ""),
        snippet=job.snippet,
        target=job.target,
        patches=job.patch_states,
        error=SnippetError("ChildDied", run.died or "", None),
        schedules=(),
        findings=(),
    )
