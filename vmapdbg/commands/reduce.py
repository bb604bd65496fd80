"""`vmapdbg bisect --reduce`: has a child reduce the graph of a snippet, and tries what it wrote."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from vmapdbg.bisect.search import Reduced, Search
from vmapdbg.commands.jobs import find_findings
from vmapdbg.commands.launcher import Streams, ask_child, run_job, run_many
from vmapdbg.commands.progress import show_progress
from vmapdbg.diff.values import estimate_terms
from vmapdbg.job.job import Job, ReduceRequest
from vmapdbg.job.patches import Patches, spell_patches

_HANG = 20.0
"""Seconds after which a graph is taken to hang where there is no --timeout."""


def reduce_job(job: Job, kind: str, search: Search, seconds: float) -> Reduced:
    """Reduces the graph of the snippet to one that still comes out differently with the patches of a search, and runs
    what is written once more with both, to be sure."""
    patches = find_deciding(search)
    jobs = replace(job, patches=patches[0]), replace(job, patches=patches[1])
    with tempfile.TemporaryDirectory(prefix="vmapdbg-") as evidence:
        quiet = Streams(subprocess.DEVNULL, subprocess.DEVNULL)
        capture = run_job(jobs[0], quiet, evidence=evidence)
        request = ReduceRequest(
            job=jobs[0],
            other=jobs[1],
            evidence=evidence,
            by=kind,
            seconds=seconds,
            hang=job.timeout or _HANG,
            comment=write_comment(job.snippet, kind, patches),
            # values must differ by as much as they do for the search, which compares whole schedules
            terms=tuple(map(estimate_terms, capture.schedules)),
        )
        with show_progress(f"reducing {job.snippet}") as progress:
            text = ask_child(request, "the reduction", None, progress)
        found = json.loads(text)
        if "text" not in found:
            return Reduced(None, found["reason"])
        file = Path(evidence) / "reduced.py"
        file.write_text(found["text"], encoding="utf-8")
        if not shows_difference(file, jobs, kind):
            return Reduced(None, "the reduced graph shows the difference, but the file written from it does not")
        return Reduced(reason=None, **found)


def write_comment(snippet: str, kind: str, patches: tuple[Patches, Patches]) -> str:
    """What stands on top of the reduced snippet; the child fills in the counts."""
    names = " and ".join(f"--patches {spell_patches(one)}" for one in patches)
    differ = "How it ends differs" if kind == "crash" else f"Its {kind} differ"
    return (
        f"Reduced from {snippet}, schedule {{schedule}}: {{before}} nodes to {{after}}, {{tried}} graphs tried.\n"
        f"{differ} with {names}."
    )


def shows_difference(file: Path, jobs: tuple[Job, Job], kind: str) -> bool:
    """Tells whether a snippet comes out differently with the patches of two jobs."""
    from vmapdbg.bisect.outcome import Outcomes

    outcomes = Outcomes(kind, find_findings)
    runs = run_many([replace(job, snippet=str(file), arguments=(), values=True) for job in jobs], lambda: None)
    return len({outcomes.sort_in(run) for run in runs}) > 1


def find_deciding(search: Search) -> tuple[Patches, Patches]:
    """Two sets with different outcomes, as near to each other as was found."""
    if search.removed.sets:
        return search.given, search.given - search.removed.sets[0]
    return search.added.sets[0], frozenset()
