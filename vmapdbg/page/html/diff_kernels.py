"""The kernels of two sides, each change once: what they cost before and after, and their source side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from vmapdbg.diff import KernelSide
from vmapdbg.diff.source import LinePair, Mark, align_sources
from vmapdbg.model.capture import Finding, Kernel
from vmapdbg.model.wording import format_plural, join_first
from vmapdbg.page.format import format_bytes, format_dims, format_seconds
from vmapdbg.page.html.code import Part, choose_near
from vmapdbg.page.html.kernels import CodeLine, view_source
from vmapdbg.page.overview import KernelRow

_MOST_SOURCE = 200_000
"""A change with more characters of source, of both sides together, is not compared line by line."""
_MOST_OF_ALL = 500_000
"""So many characters of the source of all changes are in the page, those of the largest first."""
_A_LINE = 60
"""What stands around a line in the page counts as so many characters more."""
_AROUND = 3
"""Lines further than this from a change are left out."""
_SIGNS = {"unchanged": "=", "only-before": "-", "only-after": "+"}
_WORDS = {"fused-from": "fused", "split-into": "split", "only-before": "only before", "only-after": "only after"}


@dataclass(frozen=True)
class CodeRow:
    """A line of both sources; None: that side has none here. `gap` counts the equal lines that are left out before."""

    before: CodeLine | None = None
    after: CodeLine | None = None
    same: bool = False
    gap: int = 0


@dataclass
class ChangeView:
    """A row of the kernels: a change, and what is shown of it."""

    number: int
    group: KernelRow
    sign: str
    word: str
    name_before: str
    name: str
    facts: list[tuple[str, str, str]]
    """A name, and its value before and after."""
    relation: str = ""
    rows: list[CodeRow] = field(default_factory=list[CodeRow])
    cut: str = ""

    @property
    def is_changed(self) -> bool:
        """Whether the sides differ."""
        return self.group.change.status != "unchanged"


def view_changes(groups: Sequence[KernelRow], findings: Mapping[str, Sequence[Finding]]) -> list[ChangeView]:
    """Returns the changes to show, in their order; `findings` are those of the sides `before` and `after`."""
    views: list[ChangeView] = []
    left = _MOST_OF_ALL
    for number, group in enumerate(groups):
        view = _view(number, group)
        views.append(view)
        rows = _list_rows(group, findings) if left and _count_source(group) <= _MOST_SOURCE else []
        size = sum(map(_measure, rows))
        if rows and size <= left:
            view.rows = rows
            left -= size
        elif count := _count_source(group):
            view.cut = f"{count:,} characters of source are not in the page: vmapdbg diff --kernel has them"
    return views


def _view(number: int, group: KernelRow) -> ChangeView:
    change = group.change
    before, after = _join_names(change.before), _join_names(change.after)
    relation = ""
    if change.status in ("fused-from", "split-into"):
        sides = change.before if change.status == "fused-from" else change.after
        words = change.status.replace("-", " ")
        relation = f"{words} {join_first([side.kernel.name for side in sides], 8)}"
        before = after = (change.after if change.status == "fused-from" else change.before)[0].kernel.name
    return ChangeView(
        number=number,
        group=group,
        sign=_SIGNS.get(change.status, "~"),
        word=_WORDS.get(change.status, change.status),
        name_before=before if after and before != after else "",
        name=after or before,
        facts=_list_facts(group),
        relation=relation,
    )


def _join_names(sides: Sequence[KernelSide]) -> str:
    return ", ".join(side.kernel.name or "(no program)" for side in sides)


def _list_facts(group: KernelRow) -> list[tuple[str, str, str]]:
    """What differs, and how often it is so."""
    change, before, after = group.change, group.before, group.after
    facts = [
        ("ops", f"{before.ops:,}", f"{after.ops:,}"),
        ("bytes", format_bytes(before.bytes), format_bytes(after.bytes)),
        ("launches", f"{before.launches:,}", f"{after.launches:,}"),
    ]
    if before.seconds or after.seconds:
        facts.append(("time", format_seconds(before.seconds), format_seconds(after.seconds)))
    if len(change.before) == len(change.after) == 1:
        facts += _compare_kernels(change.before[0].kernel, change.after[0].kernel)
    if len(group.places) > 1:
        places = format_plural(len(group.places), "time")
        facts.append(("in the run", places, places))
    return facts


def _compare_kernels(before: Kernel, after: Kernel) -> list[tuple[str, str, str]]:
    facts = [
        ("global size", format_dims(before.global_size), format_dims(after.global_size)),
        ("local size", format_dims(before.local_size), format_dims(after.local_size)),
        ("threads", f"{before.threads:,}", f"{after.threads:,}"),
        ("LOCAL memory", format_bytes(before.local_bytes), format_bytes(after.local_bytes)),
    ]
    return [fact for fact in facts if fact[1] != fact[2]]


# *** source


def _count_source(group: KernelRow) -> int:
    change = group.change
    sides = change.after if change.status == "unchanged" else (*change.before, *change.after)
    return sum(len(side.kernel.source) for side in sides)


def _measure(row: CodeRow) -> int:
    lines = [line for line in (row.before, row.after) if line is not None]
    return sum(_A_LINE + sum(len(text) for _, text in line.parts) for line in lines)


def _list_rows(group: KernelRow, findings: Mapping[str, Sequence[Finding]]) -> list[CodeRow]:
    change, place = group.change, group.places[0].pair
    after = _list_code(change.after, place.after, findings["after"])
    if change.status == "unchanged":
        return [CodeRow(None, line, same=True) for line in after]
    before = _list_code(change.before, place.before, findings["before"])
    if len(change.before) == len(change.after) == 1:
        return _fold(_align(change.before[0].kernel, change.after[0].kernel, before, after))
    return [CodeRow(one, other) for one, other in zip_longest(before, after)]


def _list_code(sides: Sequence[KernelSide], schedule: int | None, findings: Sequence[Finding]) -> list[CodeLine]:
    lines: list[CodeLine] = []
    for side in sides:
        if len(sides) > 1:
            lines.append(CodeLine([("tc", f"// #{side.number} {side.kernel.name}")], None, "", ()))
        own = [f for f in findings if f.schedule == schedule and f.number == side.number]
        lines += view_source(side.kernel, schedule or 0, side.kernel.source.strip("\n"), own)
    return lines


def _align(before: Kernel, after: Kernel, left: Sequence[CodeLine], right: Sequence[CodeLine]) -> list[CodeRow]:
    rows: list[CodeRow] = []
    ones, others = iter(left), iter(right)
    pairs = align_sources(before.source.strip("\n"), after.source.strip("\n"), {before.name, after.name})
    for pair in pairs:
        one = None if pair.before is None else next(ones, None)
        other = None if pair.after is None else next(others, None)
        rows.append(_mark(pair, one, other))
    return rows


def _mark(pair: LinePair, one: CodeLine | None, other: CodeLine | None) -> CodeRow:
    if one is None or other is None or pair.is_same:
        return CodeRow(one, other, same=pair.is_same)
    return CodeRow(
        replace(one, parts=_split(pair.before or "", pair.marks_before)),
        replace(other, parts=_split(pair.after or "", pair.marks_after)),
    )


def _split(text: str, marks: Sequence[Mark]) -> list[Part]:
    """Returns a line in parts, what changed in it of the class `mk`. It has no other colours: two are too many."""
    parts: list[Part] = []
    end = 0
    for start, stop in marks:
        parts += [("", text[end:start]), ("mk", text[start:stop])]
        end = stop
    return [part for part in [*parts, ("", text[end:])] if part[1]]


def _fold(rows: Sequence[CodeRow]) -> list[CodeRow]:
    """Leaves out the equal lines that are far from any other."""
    changed = [number for number, row in enumerate(rows) if not row.same]
    shown: list[CodeRow] = []
    end = 0
    for number, gap in choose_near(len(rows), changed, _AROUND):
        shown.append(replace(rows[number], gap=gap))
        end = number + 1
    if end < len(rows):
        shown.append(CodeRow(gap=len(rows) - end))
    return shown
