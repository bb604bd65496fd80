"""Runs a job beside its baseline: the before and after of `diff`, `graph --diff` and `lint`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from vmapdbg import __version__
from vmapdbg.commands.jobs import add_findings, check_snippet, find_job, is_saved
from vmapdbg.commands.launcher import run_pair, run_quietly
from vmapdbg.commands.options import JobOptions
from vmapdbg.commands.progress import show_progress
from vmapdbg.commands.tinygrad import fetch_tree
from vmapdbg.commands.turns import run_in_turns
from vmapdbg.install.job import Job, Run
from vmapdbg.install.patches import PatchError, parse_patches
from vmapdbg.install.tree import TreeError, parse_name
from vmapdbg.model.capture import SCHEMA, Capture, SnippetError, Versions
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import load_capture

# what compares two captures and prints that; the last brings numpy, which values are compared with
_NEEDED = ("vmapdbg.diff", "vmapdbg.page.text.diff", "vmapdbg.values.close")


@dataclass(frozen=True)
class Sides:
    """Before and after. `printed` is what the snippet printed on both, None where one did not run; `names` are the
    files that they were read from, empty for one that ran. `same_lines` has for lines of before where they stand after,
    where their snippets are two files."""

    before: Capture
    after: Capture
    printed: tuple[str, str] | None = None
    names: tuple[str, str] = ("", "")
    same_lines: dict[str, str] = field(default_factory=dict[str, str])


def find_pair(snippet: str | None, baseline: str | None, options: JobOptions, times: bool = False) -> Sides:
    """Returns a snippet beside its baseline.

    `snippet` is None for the remembered one, or a saved capture where the baseline is another. `baseline` is None where
    none is named. With `times` the launches of both are timed. Raises Failure.
    """
    if times:
        refuse_saved(snippet, baseline)
    if is_saved(snippet):
        if not is_saved(baseline):
            raise Failure("a saved capture is compared with another one: vmapdbg diff before.json after.json")
        return load_sides(baseline, snippet)
    job = replace(find_job(snippet, options), values=True, times=times)
    baseline = baseline or choose_baseline(job)
    before, after = run_beside(job, baseline)
    if is_saved(baseline):
        return Sides(capture_of(before, job), capture_of(after, job), names=(baseline, ""))
    return Sides(capture_of(before, job), capture_of(after, job), (decode(before.stdout), decode(after.stdout)))


def refuse_saved(*names: str | None) -> None:
    """Raises Failure where a side would not run: what it took, it took at another time."""
    for name in names:
        if is_saved(name):
            raise Failure(f"--time runs both sides, and {name} is a saved capture: save them with show --time --save")


def find_edits(before: str, after: str, options: JobOptions, times: bool = False) -> Sides:
    """Returns two snippets, which are run, or two saved captures. With `times` the launches of both are timed. Raises
    Failure."""
    if times:
        refuse_saved(before, after)
    if is_saved(before) and is_saved(after):
        if any(value is not None for value in vars(options).values()):
            raise Failure("saved captures were made with their own patches, target and tinygrad")
        return load_sides(before, after)
    if is_saved(before):
        return find_pair(after, before, options)
    if is_saved(after):
        raise Failure(f"{after} is a saved capture, which can only be the before: vmapdbg diff {after} {before}")
    check_snippet(before)
    job = replace(find_job(after, options), values=True, times=times)
    other = replace(job, snippet=before)
    # as they are when they run
    texts = read_text(before), read_text(after)
    runs = run_both(other, job, f"{before} and {after}")
    tell_printed(runs[1])
    sides = capture_of(runs[0], other), capture_of(runs[1], job)
    printed = decode(runs[0].stdout), decode(runs[1].stdout)
    return Sides(*sides, printed, same_lines=find_same_lines(*sides, *texts))


def load_sides(before: str, after: str) -> Sides:
    """Reads two saved captures. Of two snippets that are still there as they were, lines are matched."""
    sides = load_capture(before), load_capture(after)
    texts = (read_unchanged(side.snippet, name) for side, name in zip(sides, (before, after), strict=True))
    return Sides(*sides, names=(before, after), same_lines=find_same_lines(*sides, *texts))


def find_same_lines(before: Capture, after: Capture, text: str | None, other: str | None) -> dict[str, str]:
    """Returns for lines of the one snippet those of the other; none where it is one file, or a text is not known."""
    if before.snippet == after.snippet or text is None or other is None:
        return {}
    from vmapdbg.diff.sequences import match_lines

    return match_lines(text, other, (before.snippet, after.snippet))


def read_text(snippet: str) -> str | None:
    """Returns the text of a snippet, None where it cannot be read."""
    try:
        return Path(snippet).read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n")
    except (OSError, ValueError):
        return None


def read_unchanged(snippet: str, capture: str) -> str | None:
    """Returns the text of the snippet of a saved capture, None where it has changed since, or is no file of Python's: a
    capture may be somebody else's."""
    path = Path(snippet)
    try:
        if path.suffix != ".py" or not path.is_file() or path.stat().st_mtime > Path(capture).stat().st_mtime:
            return None
    except (OSError, ValueError):
        return None
    return read_text(snippet)


def decode(output: bytes) -> str:
    return output.decode("utf-8", "backslashreplace")


def run_beside(job: Job, baseline: str) -> tuple[Run, Run]:
    """Returns the baseline's run and the job's; both run at the same time. What the snippet prints in the job's goes to
    stderr afterwards.

    `baseline` is `none`, `stock`, a patch list, another tinygrad, or a saved capture.
    """
    if is_saved(baseline):
        before, after = Run(load_capture(baseline), None), run_quietly(job)
    else:
        before, after = run_both(find_baseline(job, baseline), job, job.snippet)
    tell_printed(after)
    return before, after


def run_both(before: Job, after: Job, name: str) -> tuple[Run, Run]:
    """Runs two jobs at the same time, timed ones in turns; `name` is for what is said of it."""
    is_one = before.snippet == after.snippet
    if after.times:
        first, second = run_in_turns((before, after), f"{name} on both sides" if is_one else name)
        return first, second
    with show_progress(f"running {name} twice" if is_one else f"running {name}") as progress:
        return run_pair(before, after, _NEEDED, progress)


def tell_printed(run: Run) -> None:
    """Writes to stderr what a snippet printed. Not while both run: what they print would mix."""
    sys.stderr.buffer.write(run.stdout + run.stderr)
    sys.stderr.flush()


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
