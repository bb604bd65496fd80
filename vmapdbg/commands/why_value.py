"""`vmapdbg why --value`: follows the outputs of a snippet through the passes of the scheduler."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING

from vmapdbg.commands.shared.children import ChildDied, ask_child
from vmapdbg.commands.shared.console import end_after, make_console, print_json, report_no_schedule, say, show_progress
from vmapdbg.commands.shared.jobs import refuse_overlay_error
from vmapdbg.install.job import Job, ValueRequest
from vmapdbg.model.capture import Capture
from vmapdbg.model.data import build_data
from vmapdbg.model.failure import Failure

if TYPE_CHECKING:
    from vmapdbg.check.value_path import SchedulePath, ValueReport


def print_values(job: Job, subject: str | None, schedule: int | None, as_json: bool) -> None:
    """Follows the values of a job, prints them, and ends with the exit code: 1 if a value is wrong."""
    capture, report = follow_job(job, subject, schedule)
    if subject is not None and capture.schedules:
        report = choose_outputs(capture, report, subject, schedule)
    if as_json:
        from vmapdbg.page.documents import ValueDocument, make_document

        print_json(make_document(ValueDocument, capture, schedules=report.schedules, stopped=report.stopped))
    elif capture.schedules:
        from vmapdbg.page.text.value_path import print_value_paths

        print_value_paths(capture, report, make_console())
    else:
        report_no_schedule(capture)
    end_after(capture)
    if report.is_wrong:
        sys.exit(1)


def follow_job(job: Job, subject: str | None, schedule: int | None) -> tuple[Capture, ValueReport]:
    """Runs the job, and evaluates its outputs after each pass; with a `subject` only in its schedules. Ctrl-C ends
    that, and the values so far are returned."""
    from vmapdbg.check.value_path import ValueReport

    with tempfile.TemporaryDirectory(prefix="vmapdbg-") as evidence:
        request = ValueRequest(job=job, evidence=evidence, schedule=schedule, subject=subject)
        with show_progress(f"following the values of {job.snippet}", wait=True) as progress:
            imports = ["vmapdbg.page.text.value_path"]
            text, ended = ask_child(request, job.patches, job.snippet, job.timeout, progress, imports)
    if isinstance(ended, ChildDied):
        say(str(ended))
    data = json.loads(text)
    from vmapdbg.model.store import build_capture
    from vmapdbg.page.sentences import fill_sentences

    capture = fill_sentences(build_capture(data["capture"], job.snippet))
    refuse_overlay_error(capture)
    return capture, build_data(ValueReport, data["report"])


def choose_outputs(capture: Capture, report: ValueReport, subject: str, schedule: int | None) -> ValueReport:
    """Returns the outputs that a node, the nodes of a line, or the result of a kernel feeds. Raises Failure if there is
    no such output, or no such subject."""
    from vmapdbg.model.schedule_index import index_of
    from vmapdbg.page.why import explain

    wanted: dict[int, set[int]] = {}
    for found in explain(capture, subject, schedule):
        nodes = wanted.setdefault(found.schedule, set())
        kernels = capture.schedules[found.schedule].kernels
        if found.node is not None:
            nodes.add(found.node)
        elif found.kernel is not None:
            nodes.update(kernels[found.kernel].outputs)
    paths: list[SchedulePath] = []
    for path in report.schedules:
        index = index_of(capture.schedules[path.schedule])
        nodes = wanted.get(path.schedule, set())
        chosen = [o for o in path.outputs if o.node is not None and nodes & {o.node, *index.find_sources([o.node])}]
        if chosen or (nodes and path.reason is not None):
            paths.append(replace(path, outputs=tuple(chosen)))
    if not paths:
        raise Failure(f"{subject} feeds no output that can be followed: name a node that does, or none for all outputs")
    return replace(report, schedules=tuple(paths))
