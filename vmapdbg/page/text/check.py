"""Prints what `check` found: the verdict, each wrong output, and the first wrong buffer with the decision behind it."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console
from rich.text import Text

from vmapdbg.check.blame import CHANGED, Blame, find_blame, judge_captured
from vmapdbg.check.result import CheckReport, Comparison, OutputCheck, ScheduleCheck
from vmapdbg.model.capture import Capture
from vmapdbg.model.crash import Crash
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import format_known, format_plural
from vmapdbg.page.check_sentences import (
    NOT_WRITTEN,
    REPLAYED,
    STOCK_RUNS,
    bracket_pattern,
    describe_lost,
    describe_maker,
    describe_misread,
    describe_pattern,
    describe_stale,
    describe_writer,
    explain_value,
    find_failed_node,
    name_check,
    name_node,
    name_output,
)
from vmapdbg.page.crash_sentences import describe_crash, describe_error, describe_expected, describe_left_out
from vmapdbg.page.format import Places, format_shape
from vmapdbg.page.text.layout import Page, Part
from vmapdbg.page.text.view import CaptureView
from vmapdbg.values.tolerance import Tolerance

_MOST_OUTPUTS = 3
_MOST_NODES = 6


def print_check(capture: Capture, report: CheckReport, console: Console) -> None:
    """Prints the report of a run; what is right is one line."""
    view = CaptureView(capture, Page(console))
    view.page.show(_format_verdict(view, report))
    view.page.show(_format_graph_error(view))
    for check in report.schedules:
        if check.wrong or check.unchecked or check.failed or check.lost or check.cut:
            view.page.show([Text(), *_format_schedule(view, report, check)])


def _format_verdict(view: CaptureView, report: CheckReport) -> list[Text]:
    page = view.page
    outputs = [output for check in report.schedules for output in check.outputs]
    wrong = sum(output.comparison.status == "wrong" for output in outputs)
    failed = sum(check.failed is not None for check in report.schedules)
    runs = sum(check.evaluations for check in report.schedules)
    if wrong:
        verdict = (f"{wrong} of {format_plural(len(outputs), 'output')} wrong", "bold red")
    elif not outputs:
        verdict = ("nothing was compared", "bold yellow")
    else:
        so_far = " so far" if report.left else ""
        verdict = (f"{format_plural(len(outputs), 'output')}, all right{so_far}", "bold green")
    head: list[Part] = [(view.capture.snippet, "bold"), "  ", verdict]
    lost = sum(len(check.lost) for check in report.schedules)
    if lost:
        head.append((f", {format_plural(lost, 'write')} lost", "bold red"))
    if failed:
        head.append((f", {format_plural(failed, 'schedule')} failed", "bold red"))
    lines = page.wrap(*head, hang=2)
    if report.left:
        total = format_plural(len(report.schedules) + report.left, "schedule")
        lines += page.wrap((f"stopped: {report.left} of {total} not compared", "yellow"), indent=2, hang=2)
    if outputs:
        sentence = f"compared with the numpy reference ({format_plural(runs, 'graph')} run)"
        lines += page.wrap((sentence, "dim"), indent=2, hang=2)
    excused = [o.comparison.status for o in outputs if o.comparison.status in ("close", "rounding")]
    if excused:
        sentence = f"{len(excused)} not equal to the bit: {_count_excused(excused)}"
        lines += page.wrap((sentence, "dim"), indent=2, hang=2)
    return lines


def _count_excused(found: list[str]) -> str:
    words = {"close": "within the tolerance", "rounding": "beyond it by no more than their own rounding"}
    return ", ".join(f"{found.count(status)} {word}" for status, word in words.items() if status in found)


def _format_schedule(view: CaptureView, report: CheckReport, check: ScheduleCheck) -> list[Text]:
    page = view.page
    lines = page.wrap((name_check(check), "bold"), view.places.format(check.line, "  {}"), hang=2)
    if check.failed is not None:
        lines += page.wrap((f"failed: {check.failed}", "red"), indent=2, hang=2)
        lines += _format_failed_kernel(view, check)
        lines += _format_crash(view, check)
        if check.stock_runs:
            lines += page.wrap(STOCK_RUNS, indent=2, hang=2)
    for sentence, line in describe_left_out(check):
        where = (view.places.format(line, "  [{}]"), "cyan")
        lines += page.wrap((sentence, "bold red"), where, indent=2, hang=2)
    for output in check.wrong:
        lines += _format_output(view, check, output)
    captured = judge_captured(report, check)
    if check.wrong and captured is not None:
        lines += page.wrap(REPLAYED[captured], indent=2, hang=2)
    elif any(output.of not in CHANGED for output in check.wrong):
        lines += _format_blame(view, check)
    for reason in check.unchecked:
        lines += page.wrap(("not checked: ", "yellow"), reason, indent=2, hang=2)
    return lines


def _format_failed_kernel(view: CaptureView, check: ScheduleCheck) -> list[Text]:
    index = index_of(view.capture.schedules[check.schedule])
    kernel = index.kernel(check.failed_kernel)
    if kernel is None:
        return []
    node = index.node(find_failed_node(check, kernel))
    parts: list[Part] = ["in kernel ", (f"{kernel.name} #{check.failed_kernel}", "bold")]
    if node is not None:
        parts += [f", which writes {node.op} {node.id}", (view.places.format(node.line, "  [{}]"), "cyan")]
    return view.page.wrap(*parts, indent=2, hang=2)


def _format_output(view: CaptureView, check: ScheduleCheck, output: OutputCheck) -> list[Text]:
    page, found = view.page, output.comparison
    head = f"{name_output(output)} {format_shape(output.shape)} {output.dtype}"
    lines = page.wrap(f"{head}: ", (_count_wrong(found), "bold red"), indent=2, hang=2)
    lines += page.wrap(_describe_first(found), indent=4, hang=2)
    if found.pattern_data is not None:
        lines += page.wrap(describe_pattern(found.pattern_data), indent=4, hang=2)
    for sentence in describe_writer(view.capture, check, output):
        node = index_of(view.capture.schedules[check.schedule]).node(output.writer_node)
        where = (view.places.format(node and node.line, "  [{}]"), "cyan")
        lines += page.wrap((sentence, "bold red"), where, indent=4, hang=2)
    for sentence in explain_value(output):
        lines += page.wrap((sentence, "bold red"), indent=4, hang=2)
    if output.is_written is False:
        lines += page.wrap((NOT_WRITTEN, "bold red"), indent=4, hang=2)
    return lines + page.wrap((_describe_tolerance(found.tolerance), "dim"), indent=4, hang=2)


def _count_wrong(found: Comparison) -> str:
    if found.total == 1:
        return "wrong"
    return f"{found.wrong:,} of {found.total:,} elements wrong"


def _describe_first(found: Comparison) -> str:
    values = f"{found.got}, should be {found.expected}"
    if not found.index:
        return values
    return f"first at {list(found.index)}: {values}"


def _describe_tolerance(tolerance: Tolerance) -> str:
    if not tolerance.relative:
        return "compared exactly"
    near = format_known(", {:.1e} near zero", tolerance.absolute or None)
    return f"tolerance {tolerance.relative:.1e} of the value{near} (up to {format_plural(tolerance.terms, 'rounding')})"


def _format_blame(view: CaptureView, check: ScheduleCheck) -> list[Text]:
    page, blame = view.page, find_blame(view.capture, check)
    if blame is None:
        reason = "no buffer between its kernels is wrong" if check.buffers else "no buffer between its kernels was kept"
        lines = page.wrap(f"first wrong buffer: not found, {reason}", indent=2, hang=2)
        return lines + _format_skipped(check, page)
    buffer = blame.buffer
    parts: list[Part] = ["first wrong buffer: ", (name_node(blame.node, buffer.node), "bold")]
    parts.append(f" {format_shape(buffer.shape)} {buffer.dtype}")
    parts.append(", a copy" if blame.kernel is None else f", written by {blame.kernel.name} #{buffer.kernel}")
    if blame.node is not None:
        parts.append((view.places.format(blame.node.line, "  [{}]"), "cyan"))
    lines = page.wrap(*parts, indent=2, hang=2)
    sentences = _explain_blame(blame, check, view.places)
    if buffer.fault is not None and buffer.fault.made_by == "scheduler":
        sentences.append((f"by which rewrite: {_say_rewrite(view.capture, check)}", "dim"))
    for text, style in sentences:
        lines += page.wrap((text, style), indent=4, hang=2)
    return lines + _format_skipped(check, page)


def _say_rewrite(capture: Capture, check: ScheduleCheck) -> str:
    """Returns the command that finds the rewrite that made a fault, or why none does."""
    if check.is_sharded:
        return "not known for values that are spread over several devices"
    if capture.schedules[check.schedule].cached:
        return "not known: tinygrad had this schedule in its cache, and no pass ran"
    return f"vmapdbg why --value --schedule {check.schedule}"


def _explain_blame(blame: Blame, check: ScheduleCheck, places: Places) -> list[tuple[str, str]]:
    assert blame.buffer.comparison is not None
    found = blame.buffer.comparison
    # a buffer has a tolerance of its own, by how often it is rounded: that makes no other fault
    if any(replace(output.comparison, tolerance=found.tolerance) == found for output in check.wrong):
        sentences = [("wrong in the same way", "")]
    else:
        sentences = [(f"{_count_wrong(found)}, {_describe_first(found)}{bracket_pattern(found)}", "")]
    sentences += [(describe_lost(name), "bold red") for name in blame.lost]
    if blame.buffer.misread is not None:
        where = places.format(blame.misread and blame.misread.line, "  [{}]")
        sentences.append((f"{describe_misread(blame.buffer.misread, blame.misread)}{where}", "bold red"))
    elif blame.read_right and not blame.lost and not blame.stale:
        read = f"all {blame.read_right} buffers that it reads are"
        if blame.read_right == 1:
            read = "the buffer that its kernel reads is"
        sentences.append((f"{read} right: this kernel makes the fault", ""))
    sentences += [(describe_stale(read, blame.kernel, writer), "bold red") for read, writer in blame.stale]
    if blame.buffer.fault is not None:
        sentences.append((describe_maker(blame.buffer.fault), ""))
    if blame.node is not None and blame.node.realized is not None:
        sentences.append((f"realized: {blame.node.realized.reason}: {blame.node.realized.detail}", ""))
    if blame.bufferize is not None:
        closed = ", ".join(blame.bufferize.closed_ranges) or "no range"
        sentences.append((f"BUFFERIZE closes {closed}: {blame.bufferize.reason}", ""))
    if blame.patches_off:
        sentences.append((f"patches off: {', '.join(blame.patches_off)}", "yellow"))
    culprit = blame.buffer.misread or blame.buffer
    sentences.append((f"more: vmapdbg why {culprit.node} --schedule {check.schedule}", "dim"))
    return sentences


def _format_skipped(check: ScheduleCheck, page: Page) -> list[Text]:
    """The buffers that could not be compared: the first wrong one may be among them."""
    lines: list[Text] = []
    skipped = [buffer for buffer in check.buffers if buffer.comparison is None]
    for buffer in skipped[:3]:
        lines += page.wrap((f"node {buffer.node} was not compared: {buffer.reason}", "yellow"), indent=4, hang=2)
    if len(skipped) > 3:
        lines += page.wrap((f"and {len(skipped) - 3} more", "yellow"), indent=4)
    return lines


# *** where tinygrad failed or did not end


def _format_crash(view: CaptureView, check: ScheduleCheck) -> list[Text]:
    """Returns what tinygrad was doing, with which nodes, and what numpy says the outputs should be."""
    lines: list[Text] = []
    for number, sentence in enumerate(describe_crash(check.crash)):
        lines += view.page.wrap(sentence, indent=2 + 2 * bool(number), hang=2)
    if check.crash is not None:
        lines += _format_busy_nodes(view, check.crash, check.schedule)
    for expected in check.expected[:_MOST_OUTPUTS]:
        lines += view.page.wrap(describe_expected(expected), indent=2, hang=2)
    if len(check.expected) > _MOST_OUTPUTS:
        lines += view.page.wrap(f"and {len(check.expected) - _MOST_OUTPUTS} more outputs", indent=2, hang=2)
    return lines


def _format_graph_error(view: CaptureView) -> list[Text]:
    """Returns what is known of an error that tinygrad raised while the snippet built a graph, which nothing can be
    compared with; nothing if it raised none."""
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


def _format_busy_nodes(view: CaptureView, crash: Crash, schedule: int) -> list[Text]:
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
