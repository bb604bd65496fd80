"""Prints what `check` found: the verdict, each wrong output, and the first wrong buffer with the decision behind it."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console
from rich.text import Text

from vmapdbg.check.blame import Blame, find_blame, judge_captured
from vmapdbg.check.oracles import DEFAULT, ORACLES
from vmapdbg.check.result import CheckReport, Comparison, OutputCheck, ScheduleCheck
from vmapdbg.model import Capture
from vmapdbg.render.check_sentences import (
    REPLAYED,
    describe_lost,
    describe_misread,
    describe_pattern,
    name_check,
    name_node,
)
from vmapdbg.render.format import Places, format_shape
from vmapdbg.render.text.layout import Page
from vmapdbg.schedule_index import index_of
from vmapdbg.values.tolerance import Tolerance
from vmapdbg.wording import format_plural


def print_check(capture: Capture, report: CheckReport, console: Console) -> None:
    """Prints the report of a run; what is right is one line."""
    page, places = Page(console), Places(capture)
    page.show(_format_verdict(capture, report, page))
    for check in report.schedules:
        lines = _format_schedule(capture, report, check, page, places)
        if lines:
            page.show([Text(), *lines])


def _format_verdict(capture: Capture, report: CheckReport, page: Page) -> list[Text]:
    outputs = [output for check in report.schedules for output in check.outputs]
    wrong = sum(output.comparison.status == "wrong" for output in outputs)
    failed = sum(check.failed is not None for check in report.schedules)
    runs = sum(check.evaluations for check in report.schedules)
    if wrong:
        verdict = (f"{wrong} of {format_plural(len(outputs), 'output')} wrong", "bold red")
    elif not outputs:
        verdict = ("nothing was compared", "bold yellow")
    else:
        verdict = (f"{format_plural(len(outputs), 'output')}, all right", "bold green")
    parts: list[str | tuple[str, str]] = [(capture.snippet, "bold"), "  ", verdict]
    if failed:
        parts.append((f", {format_plural(failed, 'schedule')} failed", "bold red"))
    oracles = [name for key, name in ORACLES.items() if any(output.oracle == key for output in outputs)]
    lines = page.wrap(*parts, hang=2)
    if oracles:
        sentence = f"compared with {' and '.join(oracles)} ({format_plural(runs, 'graph')} run)"
        lines += page.wrap((sentence, "dim"), indent=2, hang=2)
    excused = [o.comparison.status for o in outputs if o.comparison.status in ("close", "rounding")]
    if excused:
        sentence = f"{len(excused)} not equal to the bit: {_count_excused(excused)}"
        lines += page.wrap((sentence, "dim"), indent=2, hang=2)
    return lines


def _count_excused(found: list[str]) -> str:
    words = {"close": "within the tolerance", "rounding": "beyond it by no more than their own rounding"}
    return ", ".join(f"{found.count(status)} {word}" for status, word in words.items() if status in found)


def _format_schedule(
    capture: Capture, report: CheckReport, check: ScheduleCheck, page: Page, places: Places
) -> list[Text]:
    if not (check.wrong or check.unchecked or check.failed):
        return []
    line = f"  {places.format(check.line)}" if check.line else ""
    lines = page.wrap((name_check(check), "bold"), line, hang=2)
    if check.failed is not None:
        lines += page.wrap((f"failed: {check.failed}", "red"), indent=2, hang=2)
        lines += _format_failed_kernel(capture, check, page, places)
        if check.stock_runs:
            lines += page.wrap("stock tinygrad computes its graph, unrolled", indent=2, hang=2)
        elif check.stock_runs is False:
            lines += page.wrap("stock tinygrad does not compute its graph either", indent=2, hang=2)
    for output in check.wrong:
        lines += _format_output(output, page)
    captured = judge_captured(report, check)
    if check.wrong and captured is not None:
        lines += page.wrap(REPLAYED[captured], indent=2, hang=2)
    elif check.wrong:
        lines += _format_blame(capture, check, page, places)
    for reason in check.unchecked:
        lines += page.wrap(("not checked: ", "yellow"), reason, indent=2, hang=2)
    return lines


def _format_failed_kernel(capture: Capture, check: ScheduleCheck, page: Page, places: Places) -> list[Text]:
    index = index_of(capture.schedules[check.schedule])
    kernel, node = index.kernel(check.failed_kernel), index.node(check.failed_node)
    if kernel is None:
        return []
    head = page.join("in kernel ", (f"{kernel.name} #{check.failed_kernel}", "bold"))
    if node is not None:
        head.append_text(page.join(f", which writes {node.op} {node.id}"))
    if node is not None and node.line is not None:
        head.append_text(page.join("  ", (f"[{places.format(node.line)}]", "cyan")))
    return page.wrap(head, indent=2, hang=2)


def _format_output(output: OutputCheck, page: Page) -> list[Text]:
    found = output.comparison
    oracle = "" if output.oracle == DEFAULT else f" against {ORACLES[output.oracle]}"
    rows = f", {output.rows}" if output.rows else ""
    head = f"output {output.number} {format_shape(output.shape)} {output.dtype}{rows}{oracle}: "
    lines = page.wrap(head, (_count_wrong(found), "bold red"), indent=2, hang=2)
    lines += page.wrap(_describe_first(found), indent=4, hang=2)
    if found.pattern_data is not None:
        lines += page.wrap(describe_pattern(found.pattern_data), indent=4, hang=2)
    return lines + page.wrap((_describe_tolerance(found.tolerance), "dim"), indent=4, hang=2)


def _count_wrong(found: Comparison) -> str:
    if found.total == 1:
        return "wrong"
    return f"{found.wrong:,} of {found.total:,} elements wrong"


def _describe_first(found: Comparison) -> str:
    index = f"first at {list(found.index)}: " if found.index else ""
    return f"{index}{found.got}, should be {found.expected}"


def _describe_tolerance(tolerance: Tolerance) -> str:
    if not tolerance.relative:
        return "compared exactly"
    near = f", {tolerance.absolute:.1e} near zero" if tolerance.absolute else ""
    return f"tolerance {tolerance.relative:.1e} of the value{near} (up to {format_plural(tolerance.terms, 'rounding')})"


def _format_blame(capture: Capture, check: ScheduleCheck, page: Page, places: Places) -> list[Text]:
    blame = find_blame(capture, check)
    if blame is None:
        reason = "no buffer between its kernels is wrong" if check.buffers else "no buffer between its kernels was kept"
        lines = page.wrap(f"first wrong buffer: not found, {reason}", indent=2, hang=2)
        return lines + _format_skipped(check, page)
    buffer = blame.buffer
    name = name_node(blame.node, buffer.node)
    by = f", written by {blame.kernel.name} #{buffer.kernel}" if blame.kernel is not None else ", a copy"
    head = page.join("first wrong buffer: ", (name, "bold"), f" {format_shape(buffer.shape)} {buffer.dtype}", by)
    if blame.node is not None and blame.node.line is not None:
        head.append_text(page.join("  ", (f"[{places.format(blame.node.line)}]", "cyan")))
    lines = page.wrap(head, indent=2, hang=2)
    for text, style in _explain_blame(blame, check, places):
        lines += page.wrap((text, style), indent=4, hang=2)
    return lines + _format_skipped(check, page)


def _explain_blame(blame: Blame, check: ScheduleCheck, places: Places) -> list[tuple[str, str]]:
    assert blame.buffer.comparison is not None
    found = blame.buffer.comparison
    pattern = f" ({describe_pattern(found.pattern_data)})" if found.pattern_data is not None else ""
    if any(replace(output.comparison, tolerance=found.tolerance) == found for output in check.wrong):
        sentences = [("wrong in the same way", "")]
    else:
        sentences = [(f"{_count_wrong(found)}, {_describe_first(found)}{pattern}", "")]
    sentences += [(describe_lost(name), "bold red") for name in blame.lost]
    if blame.buffer.misread is not None:
        line = blame.misread.line if blame.misread is not None else None
        where = f"  [{places.format(line)}]" if line is not None else ""
        sentences.append((f"{describe_misread(blame.buffer.misread, blame.misread)}{where}", "bold red"))
    elif blame.read_right and not blame.lost:
        one = blame.read_right == 1
        read = "the buffer that its kernel reads is" if one else f"all {blame.read_right} buffers that it reads are"
        sentences.append((f"{read} right: this kernel makes the fault", ""))
    if blame.node is not None and blame.node.realized is not None:
        sentences.append((f"realized: {blame.node.realized.reason}: {blame.node.realized.detail}", ""))
    if blame.bufferize is not None:
        closed = ", ".join(blame.bufferize.closed_ranges) or "no range"
        sentences.append((f"BUFFERIZE closes {closed}: {blame.bufferize.reason}", ""))
    if blame.patches_off:
        sentences.append((f"patches off: {', '.join(blame.patches_off)}", "yellow"))
    culprit = blame.buffer.node if blame.buffer.misread is None else blame.buffer.misread.node
    sentences.append((f"more: vmapdbg why {culprit} --schedule {check.schedule}", "dim"))
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
