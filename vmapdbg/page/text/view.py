"""One schedule of a page, of one run or of two, with what every section of the text output looks up."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import cached_property

from rich.text import Text

from vmapdbg.diff import CaptureDiff, ScheduleDiff
from vmapdbg.diff.pairing import Renaming
from vmapdbg.model.capture import Capture, Finding, Schedule
from vmapdbg.model.schedule_index import ScheduleIndex, index_of
from vmapdbg.model.wording import format_known
from vmapdbg.page.findings import Findings
from vmapdbg.page.format import scale_down
from vmapdbg.page.sentences import Names
from vmapdbg.page.text.layout import AFTER, ALERT, BEFORE, CHANGED, Page

VMAP = "magenta"
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

_UNITS = ("k", "M", "G", "T", "P")
_VMAP_NAME = re.compile(r"(?<!\w)rm\d\w*'?\*?")


class RunView:
    """What all schedules of a page share: the page, and the sources that are printed already.

    `capture` is the run, None for the text of a diff. `copies_source` prints source as it is, to be copied; `unified`
    prints changed source as hunks.
    """

    def __init__(
        self,
        page: Page,
        *,
        capture: Capture | None = None,
        diff: CaptureDiff | None = None,
        copies_source: bool = False,
        unified: bool = False,
    ) -> None:
        self.page, self.diff = page, diff
        self.copies_source, self.unified = copies_source, unified
        self.schedules = {} if capture is None else {schedule.index: schedule for schedule in capture.schedules}
        self.patches = {} if capture is None else capture.patches
        self.findings = Findings(() if capture is None else capture.findings)
        self.printed_sources: dict[tuple[str, str], str] = {}
        """Source before and after -> the name of the first kernel that it was printed for."""


class ScheduleView:
    """A schedule as a pair, or the part of it that is asked for. With one run both sides are equal.

    `whole` is the whole schedule if `pair` is a part: names come from it.
    """

    def __init__(self, run: RunView, pair: ScheduleDiff, whole: ScheduleDiff | None = None) -> None:
        self.run, self.pair = run, pair
        self.whole = whole or pair
        self.page, self.places, self.findings = run.page, run.page.places, run.findings
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
        notes: list[Text] = []
        for found in findings:
            where, advice = self.places.format(found.line, " ({})"), format_known("; try: {}", found.advice)
            notes.append(self.page.join((found.code, ALERT), f" {found.message}{where}{advice}"))
        return notes

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
    def names_before(self) -> Names:
        """Names for the sentences of before, as after has them."""
        return self._name_side("before", self.renaming)

    @cached_property
    def names_after(self) -> Names:
        """Names for the sentences of after."""
        return self._name_side("after")

    def _name_side(self, side: str, renaming: Renaming | None = None) -> Names:
        nodes = [getattr(item, side) for item in self.whole.nodes]
        nodes += [*getattr(self.whole, f"nodes_only_{side}"), *getattr(self.whole, f"folded_{side}")]
        ops = {getattr(item, side): item.op for item in self.whole.same_nodes} | {node.id: node.op for node in nodes}
        return Names(lambda node: ops.get(node, "?"), renaming)

    def line(self, before: str | None, after: str | None) -> Text:
        """Returns the user's line of both sides, once if it is the same line."""
        if before is None or after is None or self.diff.same_lines.get(before, before) == after:
            return self.page.text(self.places.format(after or before))
        return self.page.change(self.places.format(before), self.places.format(after))

    # *** both

    @property
    def buffer_op(self) -> str:
        """tinygrad's name for a BUFFERIZE, of both sides if they differ."""
        names = [self.pair.buffer_op_before] * (self.pair.before is not None)
        names += [self.pair.buffer_op_after] * (self.pair.after is not None)
        return "/".join(dict.fromkeys(names))

    def names(self, names: Iterable[str], *, ambient: Iterable[str] = (), style: str = "") -> Text:
        """Returns range names as `rm1*, r4`: vmap ranges coloured, the `ambient` ones with a `*`."""
        starred = set(ambient)
        whole = Text(", ").join(self.page.text(name + "*" * (name in starred), style) for name in names)
        for match in _VMAP_NAME.finditer(whole.plain):
            whole.stylize(VMAP, *match.span())
        return whole

    def merge_names(self, before: Iterable[str], after: Iterable[str], ambient: Iterable[str] = ()) -> Text:
        """Returns the ranges of both sides in one tuple: `(+rm1*, r2, -r4')`. The names of before are translated."""
        left, right, starred = list(map(self.renaming.translate, before)), list(after), set(ambient)
        parts: list[Text] = []
        for tag, i, end, j, end_after in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
            if tag == "equal":
                parts += [self.names([name], ambient=starred) for name in right[j:end_after]]
                continue
            for sign, style, names in (("-", BEFORE, left[i:end]), ("+", AFTER, right[j:end_after])):
                parts += [self.page.text(f"{sign}{name}{'*' * (name in starred)}", f"bold {style}") for name in names]
        return self.page.join("(", Text(", ").join(parts), ")")


def format_short(count: int) -> str:
    """Returns a number of ops in few characters: `950`, `9,500`, `5.6M`."""
    if abs(count) < 10_000:
        return f"{count:,}"
    # 999.5 would be rounded to 1000
    value, power = scale_down(count, 1000, 999.5, len(_UNITS))
    if abs(value) < 999.5:
        return f"{value:.3g}{_UNITS[power]}"
    return f"{value:,.0f}{_UNITS[power]}"
