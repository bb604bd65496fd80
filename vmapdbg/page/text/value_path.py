"""Prints how values go through the passes of the scheduler: a table for each output that is wrong, then the step that
makes it so."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.text import Text

from vmapdbg.check.value_path import (
    Difference,
    OutputPath,
    PassValue,
    SchedulePath,
    ValueReport,
    WrongRead,
    WrongRewrite,
)
from vmapdbg.model.capture import Capture
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import format_known, format_plural
from vmapdbg.page.format import format_shape
from vmapdbg.page.text.layout import Column, Page, Part, Row, lay_out_table
from vmapdbg.page.text.view import CaptureView

_AFTERWARDS = "the scheduler makes it right: code generation, the compiler, or memory that buffers share makes it wrong"
_NOT_TOLD = "it is right after every pass that could be evaluated; which of what comes then makes it wrong is not told"
_MORE = "more: vmapdbg check"
_COLUMNS = (
    Column("pass", comfort=30),
    Column("value", comfort=7),
    Column("", comfort=40, most=60, label=""),
    Column("asked for at", comfort=34, leaves=1, optional=True),
)
_STYLES = {"right": "green", "wrong": "bold red", "unknown": "yellow"}
_WORDS = {"right": "right", "wrong": "wrong", "unknown": "-"}
_STEPS = {
    "rule": "the first rewrite that changes it",
    "node": "the first node that it changes, by several rewrites",
    "write": "a write is lost",
    "overwrites": "a value is written to memory of the snippet, to which nothing assigns it",
    "ranges": "the first node that has another value by its ranges",
}


def print_value_paths(capture: Capture, report: ValueReport, console: Console) -> None:
    """Prints the verdict, then each schedule; one in which all is right is a line."""
    view = CaptureView(capture, Page(console))
    view.page.show(_format_verdict(view, report))
    for path in report.schedules:
        view.page.show(_format_schedule(view, path))
    if report.stopped:
        view.page.show(view.page.wrap(("stopped: other schedules were not followed", "yellow")))


def _format_verdict(view: CaptureView, report: ValueReport) -> list[Text]:
    outputs = [output for path in report.schedules for output in path.outputs]
    wrong = sum(output.first_wrong is not None for output in outputs)
    unknown = sum(one.status == "unknown" for output in outputs for one in output.passes)
    if wrong:
        verdict = (f"{wrong} of {format_plural(len(outputs), 'output')} wrong", "bold red")
    elif not outputs:
        verdict = ("no output was followed", "bold yellow")
    else:
        verdict = (f"{format_plural(len(outputs), 'output')}, right after every pass", "bold green")
        if unknown:
            verdict = (f"{format_plural(len(outputs), 'output')}, none found wrong", "bold green")
    lines = view.page.wrap((view.capture.snippet, "bold"), "  ", verdict, hang=2)
    if not outputs:
        for missing in view.capture.missing:
            lines += view.page.wrap(("not observed: ", "yellow"), missing, indent=2, hang=2)
    return lines


# *** a schedule


def _format_schedule(view: CaptureView, path: SchedulePath) -> list[Text]:
    page = view.page
    head: list[Part] = [(f"schedule {path.schedule}", "bold"), view.places.format(path.line, "  {}")]
    if path.reason is not None:
        return page.wrap(*head, (f"  not followed: {path.reason}", "yellow"), hang=2)
    told = [output for output in path.outputs if _is_told(output)]
    count = format_plural(len(path.outputs), "output")
    if not told:
        return page.wrap(*head, f"  {count} right{_describe_unknown(path)}", hang=2)
    lines = [Text(), *page.wrap(*head, hang=2)]
    for output in path.outputs:
        lines += _format_output(view, path, output)
    return lines


def _is_told(output: OutputPath) -> bool:
    return output.first_wrong is not None or not output.passes


def _describe_unknown(path: SchedulePath) -> str:
    unknown = [one for output in path.outputs for one in output.passes if one.status == "unknown"]
    if not unknown:
        return ""
    reasons = Counter(one.reason for one in unknown)
    reason, _ = reasons.most_common(1)[0]
    return f" after each pass but {len(unknown)} that could not be evaluated ({reason})"


def _format_output(view: CaptureView, path: SchedulePath, output: OutputPath) -> list[Text]:
    page = view.page
    called = "buffer of the snippet" if output.of == "buffer" else "output"
    name: list[Part] = [f"{called} {output.number} {format_shape(output.shape)} {output.dtype}"]
    node = index_of(view.capture.schedules[path.schedule]).node(output.node)
    if node is not None:
        name += [(f"  {node.op} {node.id}", "bold"), (view.places.format(output.line, "  [{}]"), "cyan")]
    if not output.passes:
        return page.wrap(*name, (f"  not followed: {output.reason}", "yellow"), indent=2, hang=2)
    if output.first_wrong is None:
        return page.wrap(*name, ("  right", "green"), indent=2, hang=2)
    lines = page.wrap(*name, indent=2, hang=2)
    before = (None, *output.passes)
    rows = [_make_row(one, last) for one, last in zip(output.passes, before, strict=False)]
    lines += lay_out_table(page, _COLUMNS, rows, indent=4)
    return lines + _explain(view, path, output, output.first_wrong)


def _make_row(one: PassValue, last: PassValue | None) -> Row:
    """Returns the row of a pass; `last` is the pass before it."""
    about = one.reason or ""
    if one.difference is not None:
        about = _describe_difference(one.difference)
        if last is not None and last.difference == one.difference:
            about = "in the same way"
    return Row((one.name, (_WORDS[one.status], _STYLES[one.status]), about, one.place or ""))


def _describe_difference(found: Difference) -> str:
    where = ", ".join(map(str, found.index))
    return f"[{where}] is {found.got}, should be {found.expected}; {found.wrong} of {found.total}"


# *** what makes it wrong


def _explain(view: CaptureView, path: SchedulePath, output: OutputPath, first: PassValue) -> list[Text]:
    page = view.page
    if output.rewrite is not None:
        return _explain_rewrite(view, path, output.rewrite, first)
    if output.read is not None:
        return _explain_read(view, path, output.read)
    if first.kind == "run":
        is_told = all(one.status == "right" for one in output.passes[:-1])
        lines = page.wrap(_AFTERWARDS if is_told else _NOT_TOLD, indent=4, hang=2)
        return lines + page.wrap((_MORE, "dim"), indent=4)
    reason = output.reason or "what makes it wrong was not found"
    return page.wrap((f"{first.name}: {reason}", "yellow"), indent=4, hang=2)


def _explain_read(view: CaptureView, path: SchedulePath, found: WrongRead) -> list[Text]:
    page = view.page
    reader = _name_kernel(view, path, found.reader_kernel, found.reader)
    writer = _name_kernel(view, path, found.writer_kernel, found.writer)
    memory = f"a buffer of {found.size} {found.dtype}"
    should = "it should read what was there before"
    if found.expected is not None:
        should = f"it should read what launch {found.expected} leaves there"
    sentence = f"{reader} reads {memory} after {writer} wrote it; {should}"
    lines = page.wrap(("the order of the kernels: ", "bold red"), sentence, indent=4, hang=2)
    for kernel, node_id, line in ((reader, found.node, found.line), (writer, found.writer_node, found.writer_line)):
        node = index_of(view.capture.schedules[path.schedule]).node(node_id)
        if node is not None:
            name: list[Part] = [f"{kernel} writes ", (f"{node.op} {node.id}", "bold")]
            lines += page.wrap(*name, (view.places.format(line, "  [{}]"), "cyan"), indent=6, hang=2)
    return lines


def _name_kernel(view: CaptureView, path: SchedulePath, number: int | None, launch: int) -> str:
    kernel = index_of(view.capture.schedules[path.schedule]).kernel(number)
    if kernel is None:
        return f"launch {launch}"
    return f"{kernel.name} #{number}"


def _explain_rewrite(view: CaptureView, path: SchedulePath, found: WrongRewrite, first: PassValue) -> list[Text]:
    page = view.page
    where = format_known(", by the rule at {}", found.rule)
    lines = page.wrap((f"{_STEPS[found.kind]}, in {first.name}{where}:", "bold red"), indent=4, hang=2)
    lines += page.wrap(found.before, indent=6, hang=3)
    lines += page.wrap(f"-> {found.after}", indent=6, hang=3)
    lines += page.wrap(_describe_place(found), indent=6, hang=2)
    if found.extra:
        extra = ", ".join(found.extra)
        lines += page.wrap((f"what became of it depends on {extra}, which it should not", "red"), indent=6, hang=2)
    node = index_of(view.capture.schedules[path.schedule]).node(found.node)
    if node is not None:
        name: list[Part] = ["of node ", (f"{node.op} {node.id}", "bold")]
        lines += page.wrap(*name, (view.places.format(found.line, "  [{}]"), "cyan"), indent=6, hang=2)
    if found.tried > 1:
        lines += page.wrap((_describe_tried(found), "dim"), indent=6, hang=2)
    return lines


def _describe_place(found: WrongRewrite) -> str:
    difference = found.difference
    names = found.ranges
    steps = [f"{name} = {index}" for name, index in zip(names, difference.index, strict=False)]
    rest = difference.index[len(names) :]
    if rest:
        steps.append(f"[{', '.join(map(str, rest))}]")
    at = f"at {', '.join(steps)} " if steps else ""
    count = f"{difference.wrong} of {difference.total}"
    return f"{at}it is {difference.got}, and was {difference.expected}; {count} differ"


def _describe_tried(found: WrongRewrite) -> str:
    skipped = f", {found.skipped} of them could not be evaluated" if found.skipped else ""
    return f"{format_plural(found.tried, 'step')} looked at{skipped}"
