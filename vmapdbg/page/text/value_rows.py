"""Parts of what is printed of how a value goes through the passes of the scheduler: the row of a pass, and the step
that makes the value wrong."""

from __future__ import annotations

from rich.text import Text

from vmapdbg.check.value_path import Difference, PassValue, SchedulePath, WrongRewrite
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import format_known, format_plural
from vmapdbg.page.text.layout import Column, Part, Row
from vmapdbg.page.text.view import CaptureView

COLUMNS = (
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


def make_row(name: str, one: PassValue, last: PassValue | None) -> Row:
    """Returns the row of a pass, which is called `name`; `last` is the one before it."""
    about = one.reason or ""
    if one.became is not None and one.status == "right" and (last is None or last.became != one.became):
        about = one.became
    if one.difference is not None:
        about = _describe_difference(one.difference)
        if last is not None and last.difference == one.difference:
            about = "in the same way"
    return Row((name, (_WORDS[one.status], _STYLES[one.status]), about, one.place or ""))


def _describe_difference(found: Difference) -> str:
    where = ", ".join(map(str, found.index))
    return f"[{where}] is {found.got}, should be {found.expected}; {found.wrong} of {found.total}"


def explain_rewrite(view: CaptureView, path: SchedulePath, found: WrongRewrite, first: PassValue) -> list[Text]:
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
