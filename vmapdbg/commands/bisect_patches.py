"""`vmapdbg bisect`: searches for sets of patches; with --reduce, a child reduces the graph of the snippet."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from vmapdbg.bisect.outcome import RUNS_WELL, Outcomes, describe_end
from vmapdbg.bisect.search import Reduced, Search, search_patches
from vmapdbg.commands.check import check_job
from vmapdbg.commands.shared import console, jobs
from vmapdbg.commands.shared.children import ask_child, run_job, run_many
from vmapdbg.diff.values import estimate_terms
from vmapdbg.install.job import Job, ReduceRequest
from vmapdbg.install.patches import Patches, spell_patches
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import write_output
from vmapdbg.page.documents import make_bisect_document
from vmapdbg.page.text.bisect import print_bisect

_HANG = 20.0
"""A graph hangs if it runs for this many seconds; --timeout replaces it."""


def show_patches(job: Job, kind: str, budget: int, seconds: float | None, output: Path | None, as_json: bool) -> int:
    """Runs the job with sets of its patches, and prints what changes its `kind` of outcome. Returns the exit code. With
    `seconds` the snippet is reduced for at most this long, and written to `output` (None: stdout).

    The output of the snippet is not shown. Raises Failure if the snippet needs patches that cannot be switched.
    """
    if job.patches is None:
        raise Failure(
            "this tinygrad is observed, without patches: --commits GOOD..BAD looks for a commit, --decisions for a"
            " decision of its scheduler"
        )
    sets = 2 ** len(job.patches)
    # a search by halves ends its last round
    most = str(sets) if sets <= budget else f"about {budget}"
    console.say(f"running {job.snippet} up to {most} times, with all that it does")
    outcomes = Outcomes(kind, jobs.findings_of)
    with console.show_progress(f"bisecting {job.snippet}") as progress:
        count = console.count_runs(progress)

        def ask(sets: Sequence[Patches]) -> list[str]:
            runs = run_many([replace(job, patches=patches, values=True) for patches in sets], count)
            return [outcomes.sort_in(run) for run in runs]

        search = search_patches(job.patches, ask, budget)
    reduced = None
    if seconds is not None:
        reduced = reduce_job(job, kind, search, describe_end(outcomes.known[0].run), seconds)
    if as_json:
        console.print_json(make_bisect_document(job.snippet, kind, search, outcomes.known, reduced))
    else:
        print_bisect(job.snippet, kind, search, outcomes.known, console.make_console())
    if reduced is not None:
        console.close_pager()
        write_reduced(reduced, output, as_json)
    return int(not search.is_uniform)


def write_reduced(reduced: Reduced, output: Path | None, as_json: bool) -> None:
    """Writes the reduced snippet to a file, or prints it unless it is part of the JSON."""
    if reduced.text is None:
        console.say(f"nothing was reduced: {reduced.reason}")
        return
    what = "reduced"
    if output is not None:
        write_output(output, reduced.text)
        what = f"wrote {output}"
    elif not as_json:
        click.echo("\n" + reduced.text, nl=False)
    console.say(f"{what}: {reduced.before} nodes to {reduced.after}, {reduced.tried} graphs tried")


# *** --reduce


def reduce_job(job: Job, kind: str, search: Search, end: str, seconds: float) -> Reduced:
    """Reduces the graph of the snippet to one that still has different outcomes with two sets of patches. If all sets
    of the search have the same outcome, and the run ends with `end`, reduces it to one with the same fault."""
    other = None
    if not search.is_uniform:
        # two sets of patches that differ as little as the search found
        if search.removed.sets:
            patches = search.given, search.given - search.removed.sets[0]
        else:
            patches = search.added.sets[0], frozenset[str]()
        job, other = (replace(job, patches=one) for one in patches)
        names = " and ".join(f"--patches {spell_patches(one)}" for one in patches)
        differ = "How it ends differs" if kind == "crash" else f"Its {kind} differ"
        fault = f"{differ} with {names}."
    elif end != RUNS_WELL:
        fault = f"It ends with {end.partition(':')[0]}, with each set of patches that was tried."
    elif kind == "values":
        fault = "Its values are not those of the numpy reference, with each set of patches that was tried."
    else:
        return Reduced(None, f"all sets of patches are alike by {kind}")
    # the child fills in the counts
    head = f"Reduced from {job.snippet}, schedule {{schedule}}: {{before}} nodes to {{after}}, {{tried}} graphs tried."
    with tempfile.TemporaryDirectory(prefix="vmapdbg-") as evidence:
        capture = run_job(job, subprocess.DEVNULL, subprocess.DEVNULL, evidence)
        request = ReduceRequest(
            job=job,
            other=other,
            evidence=evidence,
            by=kind,
            seconds=seconds,
            hang=job.timeout or _HANG,
            comment=f"{head}\n{fault}",
            # values must differ as much as in the search, which compares whole schedules
            terms=tuple(map(estimate_terms, capture.schedules)),
        )
        with console.show_progress(f"reducing {job.snippet}") as progress:
            text, _ = ask_child(request, None, "the reduction", None, progress)
        found = json.loads(text)
        if "text" not in found:
            return Reduced(None, found["reason"])
        file = Path(evidence) / "reduced.py"
        file.write_text(found["text"], encoding="utf-8")
        if not shows_fault(file, job, other, kind, end):
            return Reduced(None, "the reduced graph shows it, but the file written from it does not")
        return Reduced(reason=None, **found)


def shows_fault(file: Path, job: Job, other: Job | None, kind: str, end: str) -> bool:
    """Tells whether a snippet has different outcomes with the patches of two jobs. Without the other job, whether it
    ends with an error of the same type, or if it should run, has wrong values."""
    chosen = [job] if other is None else [job, other]
    chosen = [replace(one, snippet=str(file), arguments=(), values=other is not None) for one in chosen]
    runs = run_many(chosen)
    if other is not None:
        outcomes = Outcomes(kind, jobs.findings_of)
        return len({outcomes.sort_in(run) for run in runs}) > 1
    new_end = describe_end(runs[0])
    if end != RUNS_WELL or new_end != RUNS_WELL:
        return new_end.partition(":")[0] == end.partition(":")[0]
    _, report, _ = check_job(chosen[0])
    return any(check.wrong for check in report.schedules)
