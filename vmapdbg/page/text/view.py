"""One schedule with the lookups that every section of the text output needs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

from rich.text import Text

from vmapdbg.model.capture import Bufferize, Capture, Finding, Kernel, Node, Schedule
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import format_known
from vmapdbg.page.findings import Findings
from vmapdbg.page.format import Places
from vmapdbg.page.overview.selection import Selected
from vmapdbg.page.text.layout import Page

ALERT = "bold red"
VMAP = "magenta"
NOTE = "cyan"


class CaptureView:
    """A capture, the page it is printed on, and what has to be known from schedule to schedule: the findings and the
    sources that are printed already. With `copies_source` a source is printed as it is, to be copied."""

    def __init__(self, capture: Capture, page: Page, copies_source: bool = False) -> None:
        self.capture = capture
        self.page = page
        self.copies_source = copies_source
        self.places = Places.of(capture)
        self.findings = Findings(capture.findings)
        self.printed_sources: dict[str, str] = {}
        """Source -> the name of the kernel that it was printed for."""


class ScheduleView:
    """A schedule, or what is selected of it, the page it is printed on, and what is looked up by node or by range
    name."""

    def __init__(self, whole: CaptureView, schedule: Schedule, selected: Selected | None = None) -> None:
        self.whole = whole
        self.schedule = schedule
        self.selected = selected
        self.index = index_of(schedule)
        self.capture = whole.capture
        self.page = whole.page
        self.places = whole.places
        self.findings = whole.findings

    def has_node(self, node: int) -> bool:
        """Tells whether a node is to be shown."""
        return self.selected is None or node in self.selected.nodes

    @cached_property
    def nodes(self) -> list[Node]:
        """The nodes to be shown."""
        return [node for node in self.schedule.nodes if self.has_node(node.id)]

    @cached_property
    def bufferizes(self) -> list[Bufferize]:
        """The BUFFERIZEs to be shown."""
        return [item for item in self.schedule.bufferizes if self.has_node(item.node)]

    @cached_property
    def kernels(self) -> dict[int, Kernel]:
        """The kernels to be shown, by their number in the schedule."""
        numbered = enumerate(self.schedule.kernels)
        return {n: kernel for n, kernel in numbered if self.selected is None or n in self.selected.kernels}

    def range_names(self, names: Iterable[str], *, ambient: Iterable[str] = (), mark: bool = False) -> Text:
        """Returns ranges as `rm1*, r4`: vmap ranges coloured, ambient ones (with `mark` all) with a `*`."""
        marked = set(ambient)
        parts: list[Text] = []
        for name in names:
            part = self.page.text(name)
            for vmap_name in self.index.vmap_names:
                _style_name(part, vmap_name)
            if mark or name in marked:
                part.append("*", VMAP)
            parts.append(part)
        return Text(", ").join(parts)

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


def _style_name(text: Text, name: str) -> None:
    """Colours a range name inside an expression such as `(rm1*4+r4)`, and not inside `rm10`."""
    for match in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text.plain):
        text.stylize(VMAP, *match.span())
