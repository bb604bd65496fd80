"""`vmapdbg why`."""

from __future__ import annotations

import click

from vmapdbg.commands.shared.console import display_options, end_after, make_console, report_no_schedule, say
from vmapdbg.commands.shared.jobs import is_saved, load_or_run, make_job
from vmapdbg.commands.shared.options import (
    JobOptions,
    SnippetCommand,
    job_options,
    json_option,
    offer_subjects,
    snippet_argument,
)
from vmapdbg.model.capture import Capture
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import inflect
from vmapdbg.page.format import format_ids


@click.command(cls=SnippetCommand)
@click.argument("subject", required=False, shell_complete=offer_subjects)
@snippet_argument
@click.option("--schedule", type=click.IntRange(min=0), help="Look only at this schedule.")
@click.option("--value", is_flag=True, help="Follow the outputs that SUBJECT feeds through the scheduler's passes.")
@json_option("With --value: print one JSON document.")
@job_options
@display_options
def why(
    subject: str | None, snippet: str | None, schedule: int | None, value: bool, as_json: bool, options: JobOptions
) -> None:
    """Explain every decision about SUBJECT: a node's number, a kernel's name, or a line such as model.py:12.

    Without SUBJECT: one line for each buffer between two kernels, and why they are not one. SNIPPET is a Python file
    or a saved capture; without it, the snippet of the last show.

    With --value: the outputs that SUBJECT feeds (all outputs without SUBJECT), evaluated by numpy after each pass of
    the scheduler. For a wrong output: the first pass after which it is wrong, and the first rewrite in this pass that
    changes a value, with the file and line of its rule. The exit code is 1 then.

    \b
    Examples:
      vmapdbg why 48
      vmapdbg why 28 samples/ffn_overfusion.py
      vmapdbg why samples/ffn_overfusion.py:19
      vmapdbg why
      vmapdbg why 48 --value
      vmapdbg why --value samples/lost_range.py --patches all,-ambient-ranges,-fuse-broadcast
    """
    if as_json and not value:
        raise click.UsageError("--json is for --value")
    if snippet is None and subject is not None and (subject == "-" or subject.endswith((".py", ".json"))):
        subject, snippet = None, subject
    if value:
        if is_saved(snippet):
            raise Failure("--value runs the snippet: a saved capture has no values")
        from vmapdbg.commands.why_value import print_values

        print_values(make_job(snippet, options), subject, schedule, as_json)
        return
    capture = load_or_run(snippet, options)
    if not capture.schedules:
        report_no_schedule(capture)
        end_after(capture)
        return
    from vmapdbg.page.text.why import print_explanations
    from vmapdbg.page.why import explain

    explanations = explain(capture, subject, schedule)
    if schedule is None and subject is not None and subject.isdecimal():
        tell_other_schedules(capture, int(subject), explanations[0].schedule)
    print_explanations(explanations, make_console())
    end_after(capture)


def tell_other_schedules(capture: Capture, node: int, chosen: int) -> None:
    """Says which other schedules have a node with this number: it is a different node there."""
    others = [s.index for s in capture.schedules if s.index != chosen and index_of(s).node(node) is not None]
    if others:
        noun, has = inflect(len(others), "schedule"), inflect(len(others), "has", "have")
        others_have = f"{noun} {format_ids(others)} {has} one, too (--schedule)"
        say(f"node {node} of schedule {chosen}; {others_have}")
