"""`vmapdbg bisect --reduce`: a child reduces the graph of a snippet, and its result is run again."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from vmapdbg.bisect.outcome import describe_end
from vmapdbg.bisect.search import Reduced, Search
from vmapdbg.commands.check import check_job
from vmapdbg.commands.shared.children import Streams, ask_child, run_job, run_many
from vmapdbg.commands.shared.console import show_progress
from vmapdbg.commands.shared.jobs import findings_of
from vmapdbg.diff.values import estimate_terms
from vmapdbg.install.job import Job, ReduceRequest, Run
from vmapdbg.install.patches import Patches, spell_patches

_HANG = 20.0
"""A graph hangs if it runs for this many seconds; --timeout replaces it."""


def reduce_job(job: Job, kind: str, search: Search, first: Run, seconds: float) -> Reduced:
    """Reduces the graph of the snippet to one that still has different outcomes with the patches of a search. If all
    sets of patches have the outcome of the `first` run, reduces it to one with the same fault."""
    if search.is_uniform:
        return reduce_alone(job, kind, first, seconds)
    return reduce_difference(job, kind, search, seconds)


def reduce_difference(job: Job, kind: str, search: Search, seconds: float) -> Reduced:
    """Reduces a difference between two sets of patches, and runs the result again with both sets."""
    patches = find_deciding(search)
    jobs = replace(job, patches=patches[0]), replace(job, patches=patches[1])
    comment = write_comment(job.snippet, kind, patches)
    request = make_request(jobs[0], jobs[1], kind, seconds, comment)
    return ask_for(request, lambda file: shows_difference(file, jobs, kind))


def reduce_alone(job: Job, kind: str, run: Run, seconds: float) -> Reduced:
    """Reduces the graph of a snippet that has the outcome of `run` with every set of patches: it fails, or its values
    differ from the numpy reference. Runs the result again."""
    end = describe_end(run)
    if end == "it runs" and kind != "values":
        return Reduced(None, f"all sets of patches are alike by {kind}")
    differs = "Its values are not those of the numpy reference"
    if end != "it runs":
        differs = f"It ends with {end.partition(':')[0]}"
    comment = f"{write_head(job.snippet)}\n{differs}, with each set of patches that was tried."
    request = make_request(job, None, kind, seconds, comment)
    return ask_for(request, lambda file: shows_fault(file, job, end))


def make_request(job: Job, other: Job | None, kind: str, seconds: float, comment: str) -> ReduceRequest:
    hang = job.timeout or _HANG
    return ReduceRequest(job=job, other=other, by=kind, seconds=seconds, hang=hang, comment=comment, terms=())


def ask_for(request: ReduceRequest, is_shown: Callable[[Path], bool]) -> Reduced:
    """Has a child make a small snippet; `is_shown` runs it and tells whether it has the difference or fault."""
    snippet = request.job.snippet
    with tempfile.TemporaryDirectory(prefix="vmapdbg-") as evidence:
        quiet = Streams(subprocess.DEVNULL, subprocess.DEVNULL)
        capture = run_job(request.job, quiet, evidence=evidence)
        # values must differ as much as in the search, which compares whole schedules
        request = replace(request, evidence=evidence, terms=tuple(map(estimate_terms, capture.schedules)))
        with show_progress(f"reducing {snippet}") as progress:
            text, _ = ask_child(request, None, "the reduction", None, progress)
        found = json.loads(text)
        if "text" not in found:
            return Reduced(None, found["reason"])
        file = Path(evidence) / "reduced.py"
        file.write_text(found["text"], encoding="utf-8")
        if not is_shown(file):
            return Reduced(None, "the reduced graph shows it, but the file written from it does not")
        return Reduced(reason=None, **found)


def write_head(snippet: str) -> str:
    return f"Reduced from {snippet}, schedule {{schedule}}: {{before}} nodes to {{after}}, {{tried}} graphs tried."


def write_comment(snippet: str, kind: str, patches: tuple[Patches, Patches]) -> str:
    """Returns the head of the reduced snippet; the child fills in the counts."""
    names = " and ".join(f"--patches {spell_patches(one)}" for one in patches)
    differ = "How it ends differs" if kind == "crash" else f"Its {kind} differ"
    return f"{write_head(snippet)}\n{differ} with {names}."


def shows_difference(file: Path, jobs: tuple[Job, Job], kind: str) -> bool:
    """Tells whether a snippet has different outcomes with the patches of two jobs."""
    from vmapdbg.bisect.outcome import Outcomes

    outcomes = Outcomes(kind, findings_of)
    runs = run_many([replace(job, snippet=str(file), arguments=(), values=True) for job in jobs])
    return len({outcomes.sort_in(run) for run in runs}) > 1


def shows_fault(file: Path, job: Job, end: str) -> bool:
    """Tells whether a snippet ends with an error of the same type, or if it should run, has wrong values."""
    alone = replace(job, snippet=str(file), arguments=())
    (run,) = run_many([alone])
    if end != "it runs" or describe_end(run) != "it runs":
        return describe_end(run).partition(":")[0] == end.partition(":")[0]
    _, report, _ = check_job(alone)
    return any(check.wrong for check in report.schedules)


def find_deciding(search: Search) -> tuple[Patches, Patches]:
    """Returns two sets of patches with different outcomes that differ as little as the search found."""
    if search.removed.sets:
        return search.given, search.given - search.removed.sets[0]
    return search.added.sets[0], frozenset()
