"""One schedule of a diff with what every section of its text output needs: names, marks, and `a -> b`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher

from rich.text import Text

from vmapdbg.diff import CaptureDiff, ScheduleDiff
from vmapdbg.diff.pairing import Renaming
from vmapdbg.page.format import Places, scale_down
from vmapdbg.page.sentences import Names
from vmapdbg.page.text.layout import Page
from vmapdbg.page.text.view import ALERT, VMAP

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
"""The style of what has a status; most have none."""

_UNITS = ("k", "M", "G", "T", "P")
_VMAP_NAME = re.compile(r"(?<!\w)rm\d\w*'?")


class NamesAfter(Names):
    """What the nodes and ranges of before are called after; what has no partner there has a `'`."""

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


class DiffView:
    """A schedule of a diff, the page it is printed on, and the ranges of before in the names of after."""

    def __init__(
        self, diff: CaptureDiff, schedule: ScheduleDiff, page: Page, places: Places, whole: ScheduleDiff | None = None
    ) -> None:
        """`whole` is the schedule where `schedule` is only what is selected of it."""
        whole = whole or schedule
        self.diff = diff
        self.schedule = schedule
        self.page = page
        self.places = places
        lone = (item.name for item in whole.removed_ranges)
        self.renaming = Renaming(whole.renamed, whole.pair_nodes(), lone)
        ops = {item.before: item.op for item in whole.same_nodes}
        ops |= {item.before.id: item.before.op for item in whole.nodes}
        ops |= {node.id: node.op for node in (*whole.nodes_only_before, *whole.folded_before)}
        self.names_before = NamesAfter(ops, self.renaming)
        ops_after = {item.after: item.op for item in whole.same_nodes}
        ops_after |= {item.after.id: item.after.op for item in whole.nodes}
        ops_after |= {node.id: node.op for node in (*whole.nodes_only_after, *whole.folded_after)}
        self.names_after = Names(lambda node: ops_after.get(node, "?"))

    def line(self, before: str | None, after: str | None) -> Text:
        """Returns the user's line of both sides, as one where it is the same."""
        if before is None or after is None or self.diff.same_lines.get(before, before) == after:
            return self.page.text(self.places.format(after or before))
        return self.change(self.places.format(before), self.places.format(after))

    @property
    def buffer_op(self) -> str:
        """What tinygrad calls a BUFFERIZE, on both sides where they differ."""
        schedule = self.schedule
        names = [schedule.buffer_op_before] * (schedule.before is not None)
        names += [schedule.buffer_op_after] * (schedule.after is not None)
        return "/".join(dict.fromkeys(names))

    def change(self, before: str, after: str) -> Text:
        """Returns `before -> after`, or one of them where they are the same."""
        if before == after:
            return self.page.text(after)
        return self.page.join((before, BEFORE), " -> ", (after, AFTER))

    def names(self, names: Iterable[str], *, ambient: Iterable[str] = (), style: str = "") -> Text:
        """Returns range names as `rm1*, r4`: vmap ranges coloured, those in `ambient` with a `*`."""
        starred = set(ambient)
        parts = [self.page.text(name + "*" * (name in starred), style) for name in names]
        whole = Text(", ").join(parts)
        for match in _VMAP_NAME.finditer(whole.plain):
            whole.stylize(VMAP, *match.span())
        return whole

    def merge_names(self, before: Iterable[str], after: Iterable[str], ambient: Iterable[str] = ()) -> Text:
        """Returns both sides' ranges in one tuple: `(+rm1*, r2, -r4')`. The names of before are translated here."""
        left, right, starred = list(map(self.renaming.translate, before)), list(after), set(ambient)
        parts: list[Text] = []
        for tag, i, end, j, end_after in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
            if tag == "equal":
                parts += [self.names([name], ambient=starred) for name in right[j:end_after]]
                continue
            parts += [self.page.text(f"-{name}{'*' * (name in starred)}", f"bold {BEFORE}") for name in left[i:end]]
            added = right[j:end_after]
            parts += [self.page.text(f"+{name}{'*' * (name in starred)}", f"bold {AFTER}") for name in added]
        return self.page.join("(", Text(", ").join(parts), ")")


def join_change(before: str, after: str) -> str:
    """Returns `1 -> 2`, or one of them where they are the same or the other is empty."""
    if not before or not after or before == after:
        return before or after
    return f"{before} -> {after}"


def format_ratio(before: float, after: float) -> str:
    """Returns `(0.38x)`, and nothing where there is no ratio to speak of."""
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
    # 999.5 is what would be rounded to 1000
    value, power = scale_down(count, 1000, 999.5, len(_UNITS))
    if abs(value) < 999.5:
        return f"{value:.3g}{_UNITS[power]}"
    return f"{value:,.0f}{_UNITS[power]}"
