"""`vmapdbg why`."""

import json
import sys
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from vmapdbg.commands.shared import console, jobs, options
from vmapdbg.commands.shared.children import ChildDied, finish_capture, import_meanwhile, started_child
from vmapdbg.install.job import Job, ValueRequest
from vmapdbg.model.capture import Capture
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.store import build_capture, build_data
from vmapdbg.model.wording import inflect
from vmapdbg.page.format import format_ids

if TYPE_CHECKING:
    from vmapdbg.check.result import SchedulePath, ValueReport


@click.command(cls=options.SnippetCommand)
@click.argument("subject", required=False, type=options.FILE)
@options.snippet
@click.option("--schedule", type=click.IntRange(min=0), help="Look only at this schedule.")
@options.flag("--all", "everything", help="Explain each of equal subjects, and leave nothing out.")
@options.flag("--value", help="Follow the outputs that SUBJECT feeds through the scheduler's passes.")
@options.json(help="With --value: print one JSON document.")
@options.strict
@options.of_job
@console.display_options
def why(
    subject: str | None,
    snippet: str | None,
    schedule: int | None,
    everything: bool,
    value: bool,
    as_json: bool,
    strict: bool,
    given: options.JobOptions,
) -> None:
    """Explain every decision about SUBJECT: a node's number, alone or after its schedule's (55/36), a kernel's name, or
    a line such as model.py:12.

    Without SUBJECT: the buffers between two kernels, and why the two are not one. What costs most comes first, equal
    things are explained once. SNIPPET is a Python file or a saved capture; without it, the snippet of the last show.

    With --value: the outputs that SUBJECT feeds (all outputs without SUBJECT), evaluated by numpy after each pass of
    the scheduler. For a wrong output: the first pass after which it is wrong, and the first rewrite in this pass that
    changes a value, with the file and line of its rule. If that is in code generation, the kernel is also lowered
    without optimizations, and with each of them alone. The exit code is 1 then.

    \b
    Examples:
      vmapdbg why 48
      vmapdbg why 0/28 samples/ffn_overfusion.py
      vmapdbg why samples/ffn_overfusion.py:19
      vmapdbg why
      vmapdbg why 48 --value
      vmapdbg why --value samples/lost_range.py --patches all,-ambient-ranges,-fuse-broadcast"""
    if (as_json or strict) and not value:
        raise click.UsageError(f"{'--json' if as_json else '--strict'} is for --value")
    if snippet is None and subject is not None and (subject == "-" or subject.endswith((".py", ".json"))):
        subject, snippet = None, subject
    if value:
        if jobs.is_saved(snippet):
            raise Failure("--value runs the snippet: a saved capture has no values")
        print_values(jobs.make_job(snippet, given), subject, schedule, as_json, strict)
        return
    capture = jobs.load_or_run(snippet, given)
    if capture.schedules:
        print_decisions(capture, subject, schedule, everything)
    else:
        console.report_no_schedule(capture)
    console.end_after(capture)


def print_decisions(capture: Capture, subject: str | None, schedule: int | None, everything: bool = False) -> None:
    from vmapdbg.page.text.why import print_explanations
    from vmapdbg.page.why import explain

    explanations = explain(capture, subject, schedule)
    if schedule is None and subject is not None and subject.isdecimal():
        # the number is another node in other schedules
        node, chosen = int(subject), explanations[0].schedule
        others = [s.index for s in capture.schedules if s.index != chosen and index_of(s).node(node) is not None]
        if others:
            noun, has = inflect(len(others), "schedule"), inflect(len(others), "has", "have")
            others_have = f"{noun} {format_ids(others)} {has} one, too (--schedule)"
            console.say(f"node {node} of schedule {chosen}; {others_have}")
    print_explanations(explanations, console.make_console(), show_all=everything)


def print_values(job: Job, subject: str | None, schedule: int | None, as_json: bool, strict: bool) -> None:
    """Follows the values of a job, prints them, and ends with the exit code: 1 if a value is wrong."""
    capture, report = follow_job(job, subject, schedule)
    if subject is not None and capture.schedules:
        report = choose_outputs(capture, report, subject, schedule)
    account = report.settle(capture.account, is_part=subject is not None or schedule is not None)
    if as_json:
        from vmapdbg.page.documents import ValueDocument, make_document

        shown = {"schedules": report.schedules, "stopped": report.stopped, "account": account}
        console.print_json(make_document(ValueDocument, capture, **shown))
    elif capture.schedules:
        from vmapdbg.page.text.why import print_value_paths

        print_value_paths(capture, report, account, console.make_console())
    else:
        console.report_no_schedule(capture)
    console.end_after(capture)
    if report.is_wrong or (strict and not account.is_balanced):
        sys.exit(1)


def follow_job(job: Job, subject: str | None, schedule: int | None) -> "tuple[Capture, ValueReport]":
    """Runs the job, and evaluates outputs after each pass; a `subject` chooses schedules. Ctrl-C keeps what exists."""
    from vmapdbg.check.result import ValueReport

    with tempfile.TemporaryDirectory(prefix="vmapdbg-") as evidence:
        request = ValueRequest(job=job, evidence=evidence, schedule=schedule, subject=subject)
        started = started_child(request, job.patches, sys.stderr.fileno(), one_thread=job.patches is None)
        with console.show_progress(f"following the values of {job.snippet}", wait=True) as progress, started as child:
            import_meanwhile("vmapdbg.page.text.why")
            text, ended = child.answer(job.snippet, job.timeout, progress)
    if isinstance(ended, ChildDied):
        console.say(str(ended))
    data = json.loads(text)
    return finish_capture(build_capture(data["capture"], job.snippet)), build_data(ValueReport, data["report"])


def choose_outputs(capture: Capture, report: "ValueReport", subject: str, schedule: int | None) -> "ValueReport":
    """Returns the outputs that a node, a line's nodes, or a kernel's result feeds. Raises Failure if there are none."""
    from vmapdbg.page.why import explain

    wanted: dict[int, set[int]] = {}
    for found in explain(capture, subject, schedule):
        nodes = wanted.setdefault(found.schedule, set())
        if found.node is not None:
            nodes.add(found.node)
        elif found.kernel is not None:
            nodes.update(capture.schedules[found.schedule].kernels[found.kernel].outputs)
    paths: list[SchedulePath] = []
    for path in report.schedules:
        index = index_of(capture.schedules[path.schedule])
        nodes = wanted.get(path.schedule, set())
        chosen = [o for o in path.outputs if o.node is not None and nodes & {o.node, *index.find_sources([o.node])}]
        if chosen or (nodes and path.reason is not None):
            asked = path.asked if path.reason is not None else sum(o.of == "output" for o in chosen)
            paths.append(replace(path, outputs=tuple(chosen), asked=asked))
    if not paths:
        raise Failure(f"{subject} feeds no output that can be followed: name a node that does, or none for all outputs")
    return replace(report, schedules=tuple(paths))
