"""Runs a job beside its baseline: the before and after of `diff`, `graph --diff` and `lint`."""

from __future__ import annotations

import sys
from dataclasses import replace

from vmapdbg import __version__
from vmapdbg.commands.jobs import add_findings, find_job
from vmapdbg.commands.launcher import run_pair, run_quietly
from vmapdbg.commands.options import JobOptions
from vmapdbg.commands.progress import show_progress
from vmapdbg.commands.tinygrad import fetch_tree
from vmapdbg.job.job import Job, Run
from vmapdbg.job.patches import PatchError, parse_patches
from vmapdbg.model.capture import SCHEMA, Capture, SnippetError, Versions
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import load_capture
from vmapdbg.trees.tree import TreeError, parse_name

# what compares two captures and prints that; the last brings numpy, which values are compared with
_NEEDED = ("vmapdbg.diff", "vmapdbg.render.text.diff", "vmapdbg.values.close")


def find_pair(
    snippet: str | None, baseline: str | None, options: JobOptions
) -> tuple[Capture, Capture, tuple[str, str] | None]:
    """Returns before, after, and what the snippet printed on both where it ran.

    `snippet` is None for the remembered one, or a saved capture where the baseline is another. `baseline` is None where
    none is named.
    """
    if snippet is not None and snippet.endswith(".json"):
        if baseline is None or not baseline.endswith(".json"):
            raise Failure("a saved capture is compared with another one: vmapdbg diff before.json after.json")
        return load_capture(baseline), load_capture(snippet), None
    job = replace(find_job(snippet, options), values=True)
    baseline = baseline or choose_baseline(job)
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

    `baseline` is `none`, `stock`, a patch list, another tinygrad, or a saved capture.
    """
    if baseline.endswith(".json"):
        before, after = Run(load_capture(baseline), None), run_quietly(job)
    else:
        other = find_baseline(job, baseline)
        with show_progress(f"running {job.snippet} twice") as progress:
            before, after = run_pair(other, job, _NEEDED, progress)
    # not while they run: what the two print would mix
    sys.stderr.buffer.write(after.stdout + after.stderr)
    sys.stderr.flush()
    return before, after


def choose_baseline(job: Job) -> str:
    """Returns the baseline of a job that names none: no patches, or the last commit of a checkout. Raises Failure."""
    if job.patches is not None:
        return "none"
    if job.tree and is_changed_checkout(job.tree):
        return "@HEAD"
    raise Failure("compared with what? --baseline=0.13.0 (a release), @REVISION or PATH (this tinygrad is observed)")


def is_changed_checkout(tree: str) -> bool:
    """Tells whether a tree is a checkout as it is now, with changes that are in no commit."""
    commit = fetch_tree(tree).commit
    return parse_name(tree).revision is None and commit is not None and commit.endswith("-dirty")


def find_baseline(job: Job, baseline: str) -> Job:
    """Returns the job that a baseline means: it has other patches, or another tinygrad. Raises Failure."""
    if baseline == "stock":
        return replace(job, patches=None)
    try:
        patches = parse_patches(baseline)
    except PatchError as no_patches:
        return _find_other_tree(job, baseline, no_patches)
    if job.patches is None:
        raise Failure(f"--baseline={baseline} are patches of tinygrad 0.12.0, and this one is observed without any")
    return replace(job, patches=patches)


def _find_other_tree(job: Job, baseline: str, no_patches: PatchError) -> Job:
    name = baseline
    if baseline.startswith("@") and job.tree:
        # a revision of the checkout that the job looks at
        name = f"{job.tree.rpartition('@')[0] or job.tree}{baseline}"
    try:
        fetch_tree(name)
    except TreeError as no_tree:
        is_word = baseline.replace("-", "").replace(",", "").isalpha()
        raise (no_patches if is_word else no_tree) from None
    return replace(job, tree=name, patches=None)


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
