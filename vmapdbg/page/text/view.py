"""One schedule of a page, of one run or of two, with what every section of the text output looks up."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import SequenceMatcher
from functools import cached_property
from typing import TypeVar

from rich.text import Text

from vmapdbg.diff import CaptureDiff, ScheduleDiff
from vmapdbg.diff.pairing import Renaming
from vmapdbg.model.capture import Capture, Finding, Schedule
from vmapdbg.model.schedule_index import ScheduleIndex, index_of
from vmapdbg.model.wording import format_known
from vmapdbg.page.findings import Findings
from vmapdbg.page.format import Places, scale_down
from vmapdbg.page.sentences import Names
from vmapdbg.page.text.layout import Page

ALERT = "bold red"
VMAP = "magenta"
NOTE = "cyan"
BEFORE = "red"
AFTER = "green"
CHANGED = "yellow"
MARKS = {
    "unchanged": ("=", "dim"),
    "changed": ("~", CHANGED),
    "only-before": ("-", BEFORE),
    "only-after": ("+", AFTER),
    "fused-from": ("~", CHANGED),
    "split-into": ("~", CHANGED),
}
"""The mark of a status, and its colour."""
STATUS_STYLES = {"unchanged": "dim", "different": ALERT}
"""The style of a row or word with a status; most have none."""

_Amount = TypeVar("_Amount", int, float)
_UNITS = ("k", "M", "G", "T", "P")
_VMAP_NAME = re.compile(r"(?<!\w)rm\d\w*'?\*?")


class CaptureView:
    """A capture and the page that it is printed on."""

    def __init__(self, capture: Capture, page: Page) -> None:
        self.capture, self.page = capture, page
        self.places = Places.of(capture)


class RunView:
    """What all schedules of a page share: the page, the short names of places, and what is printed already.

    `capture` is the run, None for the text of a diff. `copies_source` prints source as it is, to be copied; `unified`
    prints changed source as hunks.
    """

    def __init__(
        self,
        page: Page,
        places: Places,
        *,
        capture: Capture | None = None,
        diff: CaptureDiff | None = None,
        copies_source: bool = False,
        unified: bool = False,
    ) -> None:
        self.page, self.places = page, places
        self.diff = diff
        self.copies_source, self.unified = copies_source, unified
        self.schedules = {} if capture is None else {schedule.index: schedule for schedule in capture.schedules}
        self.patches = {} if capture is None else capture.patches
        self.findings = Findings(() if capture is None else capture.findings)
        self.printed_sources: dict[tuple[str, str], str] = {}
        """Source before and after -> the name of the first kernel that it was printed for."""


class NamesAfter(Names):
    """Names the nodes and ranges of before as after does; a node or range without a partner gets a `'`."""

    def __init__(self, ops: Mapping[int, str], renaming: Renaming) -> None:
        super().__init__(lambda node: ops.get(node, "?"))
        self.renaming = renaming

    def label(self, node: int) -> str:
        partner = self.renaming.nodes.get(node)
        if partner is None:
            return f"{super().label(node)}'"
        return f"{self.op_of(node)} {partner}"

    def range(self, name: str) -> str:
        return self.renaming.translate(name)


class ScheduleView:
    """A schedule as a pair, or the part of it that is asked for. With one run both sides are equal.

    `whole` is the whole schedule if `pair` is a part: names come from it.
    """

    def __init__(self, run: RunView, pair: ScheduleDiff, whole: ScheduleDiff | None = None) -> None:
        self.run, self.pair = run, pair
        self.whole = whole or pair
        self.page, self.places, self.findings = run.page, run.places, run.findings
        self.is_pair = run.diff is not None

    # *** one run

    @property
    def schedule(self) -> Schedule:
        """The schedule of a page with one run."""
        return self.run.schedules[self.pair.index]

    @property
    def index(self) -> ScheduleIndex:
        return index_of(self.schedule)

    def notes_for(self, findings: Iterable[Finding]) -> list[Text]:
        """Returns findings as notes: code, then message, then what to try."""
        return [
            self.page.join(
                (found.code, ALERT),
                " ",
                found.message,
                self.places.format(found.line, " ({})"),
                format_known("; try: {}", found.advice),
            )
            for found in findings
        ]

    # *** two runs

    @property
    def diff(self) -> CaptureDiff:
        assert self.run.diff is not None, "a page with one run has no diff"
        return self.run.diff

    @cached_property
    def renaming(self) -> Renaming:
        """The ranges and nodes of before in the names of after."""
        lone = (item.name for item in self.whole.removed_ranges)
        return Renaming(self.whole.renamed, self.whole.pair_nodes(), lone)

    @cached_property
    def names_before(self) -> NamesAfter:
        """Names for the sentences of before."""
        whole = self.whole
        ops = {item.before: item.op for item in whole.same_nodes}
        ops |= {item.before.id: item.before.op for item in whole.nodes}
        ops |= {node.id: node.op for node in (*whole.nodes_only_before, *whole.folded_before)}
        return NamesAfter(ops, self.renaming)

    @cached_property
    def names_after(self) -> Names:
        """Names for the sentences of after."""
        whole = self.whole
        ops = {item.after: item.op for item in whole.same_nodes}
        ops |= {item.after.id: item.after.op for item in whole.nodes}
        ops |= {node.id: node.op for node in (*whole.nodes_only_after, *whole.folded_after)}
        return Names(lambda node: ops.get(node, "?"))

    def line(self, before: str | None, after: str | None) -> Text:
        """Returns the user's line of both sides, once if it is the same line."""
        if before is None or after is None or self.diff.same_lines.get(before, before) == after:
            return self.page.text(self.places.format(after or before))
        return self.change(self.places.format(before), self.places.format(after))

    # *** both

    @property
    def buffer_op(self) -> str:
        """tinygrad's name for a BUFFERIZE, of both sides if they differ."""
        names = [self.pair.buffer_op_before] * (self.pair.before is not None)
        names += [self.pair.buffer_op_after] * (self.pair.after is not None)
        return "/".join(dict.fromkeys(names))

    def change(self, before: str, after: str) -> Text:
        return join_change_text(self.page, before, after)

    def compare(self, before: _Amount, after: _Amount, write: Callable[[_Amount], str]) -> Text:
        return compare_amounts(self.page, before, after, write)

    def names(self, names: Iterable[str], *, ambient: Iterable[str] = (), style: str = "") -> Text:
        """Returns range names as `rm1*, r4`: vmap ranges coloured, the `ambient` ones with a `*`."""
        starred = set(ambient)
        whole = Text(", ").join(self.page.text(name + "*" * (name in starred), style) for name in names)
        for match in _VMAP_NAME.finditer(whole.plain):
            whole.stylize(VMAP, *match.span())
        return whole

    def merge_names(self, before: Iterable[str], after: Iterable[str], ambient: Iterable[str] = ()) -> Text:
        """Returns the ranges of both sides in one tuple: `(+rm1*, r2, -r4')`. Those of before are translated here."""
        left, right, starred = list(map(self.renaming.translate, before)), list(after), set(ambient)
        parts: list[Text] = []
        for tag, i, end, j, end_after in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
            if tag == "equal":
                parts += [self.names([name], ambient=starred) for name in right[j:end_after]]
                continue
            parts += [self._mark_name("-", name, BEFORE, starred) for name in left[i:end]]
            parts += [self._mark_name("+", name, AFTER, starred) for name in right[j:end_after]]
        return self.page.join("(", Text(", ").join(parts), ")")

    def _mark_name(self, sign: str, name: str, style: str, starred: set[str]) -> Text:
        return self.page.text(f"{sign}{name}{'*' * (name in starred)}", f"bold {style}")


def join_change_text(page: Page, before: str, after: str, ratio: str = "") -> Text:
    """Returns `before -> after` in two colours, or the value alone if both sides are the same."""
    if before == after:
        return page.text(after)
    return page.join((before, BEFORE), " -> ", (after, AFTER), ratio)


def compare_amounts(page: Page, before: _Amount, after: _Amount, write: Callable[[_Amount], str]) -> Text:
    """Returns `1,000 -> 500 (0.50x)`, or the amount alone if both are written alike."""
    return join_change_text(page, write(before), write(after), format_ratio(before, after))


def join_change(before: str, after: str) -> str:
    """Returns `1 -> 2`, or one value if the other is empty or the same."""
    if not before or not after or before == after:
        return before or after
    return f"{before} -> {after}"


def format_ratio(before: float, after: float) -> str:
    """Returns ` (0.38x)`, nothing if one of the amounts is zero."""
    if before <= 0 or after <= 0:
        return ""
    ratio = after / before
    if ratio < 10:
        return f" ({ratio:.2f}x)"
    return f" ({ratio:,.0f}x)"


def format_short(count: int) -> str:
    """Returns a number of ops in few characters: `950`, `9,500`, `5.6M`."""
    if abs(count) < 10_000:
        return f"{count:,}"
    # 999.5 would be rounded to 1000
    value, power = scale_down(count, 1000, 999.5, len(_UNITS))
    if abs(value) < 999.5:
        return f"{value:.3g}{_UNITS[power]}"
    return f"{value:,.0f}{_UNITS[power]}"
