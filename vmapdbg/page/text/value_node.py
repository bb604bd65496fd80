"""Prints the own value of a node that is asked about: after each pass, in its kernels, and in its buffer."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from vmapdbg.check.value_path import NodePath, PassValue, SchedulePath, ValueReport, WrongRewrite
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import format_plural
from vmapdbg.page.format import format_shape
from vmapdbg.page.text.layout import Part, lay_out_table
from vmapdbg.page.text.value_rows import COLUMNS, explain_rewrite, make_row
from vmapdbg.page.text.view import CaptureView

_NO_BUFFER = "no buffer holds it: what its kernel computes for it when it runs is not seen"
_ENDED = "after {} it is part of something else: nothing stands for it any more that could be compared"
_RIGHT = "it is right as far as it can be followed: what makes the output wrong comes after it, or beside it"
_WRONG = "nothing that it goes into is wrong by it"


def format_node_verdict(view: CaptureView, report: ValueReport) -> list[Part]:
    """Returns what is said of the nodes that are asked about, in front of what is said of the outputs."""
    nodes = [(path, node) for path in report.schedules for node in path.nodes]
    if not nodes:
        return []
    wrong = [node for _, node in nodes if node.first_wrong is not None]
    if len(nodes) == 1:
        path, node = nodes[0]
        word = ("wrong", "bold red") if wrong else _describe_right(node)
        return [_name(view, path, node), " ", word, "; "]
    if wrong:
        return [(f"{len(wrong)} of {format_plural(len(nodes), 'node')} wrong", "bold red"), "; "]
    return [(f"{format_plural(len(nodes), 'node')}, none found wrong", "bold green"), "; "]


def _describe_right(node: NodePath) -> Part:
    if not any(one.status == "right" for one in node.passes):
        return "not followed", "bold yellow"
    return "right", "bold green"


def format_nodes(view: CaptureView, path: SchedulePath) -> list[Text]:
    """Returns the nodes of a schedule that are asked about: of several only the first wrong one with all its passes."""
    wrong = next((node for node in path.nodes if node.first_wrong is not None), None)
    lines: list[Text] = []
    for node in path.nodes:
        if len(path.nodes) == 1 or node is wrong:
            lines += _format_node(view, path, node)
        else:
            lines += view.page.wrap(*_head(view, path, node), *_summarize(node), indent=2, hang=2)
    return lines


def is_told_of_node(path: SchedulePath, rewrite: WrongRewrite) -> bool:
    """Tells whether a step that changes a value was explained already, at a node that is asked about."""
    wrong = next((node for node in path.nodes if node.first_wrong is not None), None)
    told = wrong and wrong.rewrite
    if told is None:
        return False
    return (told.kind, told.before, told.after) == (rewrite.kind, rewrite.before, rewrite.after)


def _summarize(node: NodePath) -> Iterable[Part]:
    first = node.first_wrong
    if first is not None:
        return (f"  wrong, first in {first.name}", "red"), ""
    if not node.passes:
        return (f"  not followed: {node.reason}", "yellow"), ""
    return ("  ", _describe_right(node))


def _name(view: CaptureView, path: SchedulePath, node: NodePath) -> Text:
    op = index_of(view.capture.schedules[path.schedule]).op(node.node)
    return view.page.join(f"node {op} {node.node}")


def _head(view: CaptureView, path: SchedulePath, node: NodePath) -> list[Part]:
    head: list[Part] = [(_name(view, path, node).plain, "bold")]
    if node.passes:
        head.append(f"  {format_shape(node.shape)} {node.dtype}")
    if node.steps:
        steps = " x ".join(map(str, node.steps))
        head.append(f" at each of {steps} steps")
    return [*head, (view.places.format(node.line, "  [{}]"), "cyan")]


def _format_node(view: CaptureView, path: SchedulePath, node: NodePath) -> list[Text]:
    page = view.page
    head = _head(view, path, node)
    if not node.passes:
        return page.wrap(*head, (f"  not followed: {node.reason}", "yellow"), indent=2, hang=2)
    lines = page.wrap(*head, indent=2, hang=2)
    more = ", ..." if node.total > len(node.numbers) else ""
    numbers = ", ".join(map(str, node.numbers))
    lines += page.wrap(f"numpy computes {numbers}{more}", indent=4, hang=2)
    before = (None, *node.passes)
    rows = [make_row(_name_row(view, path, one), one, last) for one, last in zip(node.passes, before, strict=False)]
    lines += lay_out_table(page, COLUMNS, rows, indent=4)
    return lines + _explain(view, path, node)


def _name_row(view: CaptureView, path: SchedulePath, one: PassValue) -> str:
    kernel = index_of(view.capture.schedules[path.schedule]).kernel(one.kernel)
    if one.kind == "kernel" and kernel is not None:
        return f"in {kernel.name} #{one.kernel} as scheduled"
    return one.name


def _explain(view: CaptureView, path: SchedulePath, node: NodePath) -> list[Text]:
    page = view.page
    lines: list[Text] = []
    first = node.first_wrong
    if node.rewrite is not None and first is not None:
        lines += explain_rewrite(view, path, node.rewrite, first)
    elif node.reason is not None and first is not None:
        lines += page.wrap((f"{first.name}: {node.reason}", "yellow"), indent=4, hang=2)
    if node.ended is not None:
        lines += page.wrap((_ENDED.format(node.ended), "dim"), indent=4, hang=2)
    elif not any(one.kind == "run" for one in node.passes):
        lines += page.wrap((_NO_BUFFER, "dim"), indent=4, hang=2)
    is_output_wrong = any(output.first_wrong is not None for output in path.outputs)
    if first is None and is_output_wrong:
        lines += page.wrap(_RIGHT, indent=4, hang=2)
    elif first is not None and not is_output_wrong:
        lines += page.wrap((_WRONG, "yellow"), indent=4, hang=2)
    return lines
