"""Where tinygrad failed or did not end: the part of `check` about a schedule that did."""

from __future__ import annotations

from rich.text import Text

from vmapdbg.check.result import ScheduleCheck
from vmapdbg.model.crash import Crash
from vmapdbg.model.schedule_index import index_of
from vmapdbg.page.crash_sentences import describe_crash, describe_error, describe_expected
from vmapdbg.page.text.view import CaptureView

_MOST_OUTPUTS = 3
_MOST_NODES = 6


def format_crash(view: CaptureView, check: ScheduleCheck) -> list[Text]:
    """Returns what tinygrad was doing, with which nodes, and what numpy says the outputs should be."""
    lines: list[Text] = []
    for number, sentence in enumerate(describe_crash(check.crash)):
        lines += view.page.wrap(sentence, indent=2 + 2 * bool(number), hang=2)
    if check.crash is not None:
        lines += _format_nodes(view, check.crash, check.schedule)
    for expected in check.expected[:_MOST_OUTPUTS]:
        lines += view.page.wrap(describe_expected(expected), indent=2, hang=2)
    if len(check.expected) > _MOST_OUTPUTS:
        lines += view.page.wrap(f"and {len(check.expected) - _MOST_OUTPUTS} more outputs", indent=2, hang=2)
    return lines


def format_graph_error(view: CaptureView) -> list[Text]:
    """Returns what is known of an error that tinygrad raised while the snippet built a graph, which nothing can be
    compared of; nothing where it raised none."""
    error = view.capture.error
    if error is None or error.crash is None or error.crash.schedule is not None:
        return []
    where = view.places.format(error.line, " at {}")
    lines = view.page.wrap((f"the snippet failed{where}: {describe_error(error)}", "red"), indent=2, hang=2)
    for sentence in describe_crash(error.crash):
        lines += view.page.wrap(sentence, indent=4, hang=2)
    return lines + view.page.wrap(
        "there is no graph of what it failed in: nothing of it was compared", indent=4, hang=2
    )


def _format_nodes(view: CaptureView, crash: Crash, schedule: int) -> list[Text]:
    index = index_of(view.capture.schedules[schedule])
    nodes = [node for node in map(index.node, crash.nodes) if node is not None]
    if not nodes:
        return []
    lines = view.page.wrap("it was busy with", indent=2, hang=2)
    for node in nodes[:_MOST_NODES]:
        where = (view.places.format(node.line, "  [{}]"), "cyan")
        lines += view.page.wrap((f"{node.op} {node.id}", "bold"), where, indent=4, hang=2)
    if len(nodes) > _MOST_NODES:
        lines += view.page.wrap(f"and {len(nodes) - _MOST_NODES} more", indent=4)
    return lines
