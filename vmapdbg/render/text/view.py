"""One schedule with the lookups that every section of the text output needs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.text import Text

from vmapdbg.model.capture import Capture, Finding, Schedule
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import format_known
from vmapdbg.render.findings import Findings
from vmapdbg.render.format import Places
from vmapdbg.render.text.layout import Page

ALERT = "bold red"
VMAP = "magenta"
NOTE = "cyan"


class CaptureView:
    """A capture, the page it is printed on, and what has to be known from schedule to schedule: the findings and the
    sources that are printed already."""

    def __init__(self, capture: Capture, page: Page) -> None:
        self.capture = capture
        self.page = page
        self.places = Places.of(capture)
        self.findings = Findings(capture.findings)
        self.printed_sources: dict[str, str] = {}
        """Source -> the name of the kernel that it was printed for."""


class ScheduleView:
    """A schedule, the page it is printed on, and what is looked up by node or by range name."""

    def __init__(self, whole: CaptureView, schedule: Schedule) -> None:
        self.whole = whole
        self.schedule = schedule
        self.index = index_of(schedule)
        self.capture = whole.capture
        self.page = whole.page
        self.places = whole.places
        self.findings = whole.findings

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
