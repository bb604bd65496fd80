"""One schedule with the lookups that every section of the text output needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from rich.text import Text

from vmapdbg.model import Bufferize, Capture, Finding, Kernel, Node, Range, Schedule
from vmapdbg.render.format import Places
from vmapdbg.render.text.layout import Page
from vmapdbg.schedule_index import index_of

ALERT = "bold red"
VMAP = "magenta"
NOTE = "cyan"


class Findings:
    """The findings of a capture, each printed once for every place it belongs to; the rest at the end."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._all = tuple(findings)
        self._placed: set[int] = set()

    def take_for_kernel(self, kernel: Kernel, schedule: int, numbers: Sequence[int]) -> list[Finding]:
        """Returns the findings about the kernels with these numbers of a schedule, which all have this program."""
        return self._take(
            i for i, found in enumerate(self._all) if any(_is_about_kernel(found, kernel, schedule, n) for n in numbers)
        )

    def take_for_node(self, node: Node, schedule: int) -> list[Finding]:
        """Returns the findings about a node of a schedule and no kernel."""
        return self._take(i for i, found in enumerate(self._all) if _is_about_node(found, node, schedule))

    def has_for_node(self, node: Node, schedule: int) -> bool:
        """Tells whether `take_for_node` would return any."""
        return any(_is_about_node(found, node, schedule) for found in self._all)

    def find_for_kernel(self, kernel: Kernel, schedule: int, number: int) -> list[Finding]:
        """Returns the same for one kernel, and leaves them to be printed."""
        return [found for found in self._all if _is_about_kernel(found, kernel, schedule, number)]

    def take_rest(self) -> list[Finding]:
        """Returns the findings that no section has printed."""
        return self._take(i for i in range(len(self._all)) if i not in self._placed)

    def _take(self, numbers: Iterable[int]) -> list[Finding]:
        taken = list(numbers)
        self._placed |= set(taken)
        return [self._all[i] for i in taken]


def _is_about_node(found: Finding, node: Node, schedule: int) -> bool:
    """Ids repeat by schedule. Where the finding does not name one, the line must agree."""
    if found.kernel is not None or found.node != node.id:
        return False
    if found.schedule is not None:
        return found.schedule == schedule
    return found.line is None or node.line is None or found.line == node.line


def _is_about_kernel(found: Finding, kernel: Kernel, schedule: int, number: int) -> bool:
    """Names repeat from schedule to schedule. A finding of an older capture has nothing else."""
    if found.schedule is None or found.number is None:
        return found.kernel == kernel.name
    return (found.schedule, found.number) == (schedule, number)


class ScheduleView:
    """A schedule, the page it is printed on, and what is looked up by node or by range name."""

    def __init__(self, capture: Capture, schedule: Schedule, page: Page, places: Places, findings: Findings) -> None:
        self.capture = capture
        self.schedule = schedule
        self.page = page
        self.places = places
        self.findings = findings

    @cached_property
    def nodes(self) -> dict[int, Node]:
        """Nodes by id."""
        return {node.id: node for node in self.schedule.nodes}

    @cached_property
    def ranges(self) -> dict[str, Range]:
        """Ranges by rendered name."""
        return {item.name: item for item in self.schedule.ranges}

    @cached_property
    def vmap_names(self) -> frozenset[str]:
        """Names of the ranges that a vmap brought."""
        ambient = {name for node in self.schedule.nodes for name in node.ambient}
        return frozenset(ambient | {item.name for item in self.schedule.ranges if item.vmap})

    def op(self, node_id: int) -> str:
        """Returns the op of a node, `?` for an id that the graph does not have."""
        node = self.nodes.get(node_id)
        return "?" if node is None else node.op

    def ambient_of(self, bufferize: Bufferize) -> tuple[str, ...]:
        """Returns the ambient ranges of a BUFFERIZE's node."""
        return index_of(self.schedule).ambient_of(bufferize.node)

    def not_closed(self, bufferize: Bufferize) -> tuple[str, ...]:
        """Returns the ambient ranges that a BUFFERIZE does not close, whether that is a fault or not."""
        return tuple(name for name in self.ambient_of(bufferize) if name not in bufferize.closed_ranges)

    def lost(self, bufferize: Bufferize) -> tuple[str, ...]:
        """Returns the ambient ranges whose iterations overwrite each other in the buffer: the last stays."""
        return index_of(self.schedule).find_lost(bufferize)

    def range_names(self, names: Iterable[str], *, ambient: Iterable[str] = (), mark: bool = False) -> Text:
        """Returns ranges as `rm1*, r4`: vmap ranges coloured, ambient ones (with `mark` all) with a `*`."""
        marked = set(ambient)
        parts: list[Text] = []
        for name in names:
            part = self.page.text(name)
            for vmap_name in self.vmap_names:
                _style_name(part, vmap_name)
            parts.append(self.page.join(part, ("*", VMAP)) if mark or name in marked else part)
        return Text(", ").join(parts)

    def size_of(self, name: str) -> int | str | None:
        """Returns the size of a range, None where the capture does not know it."""
        return self.ranges[name].size if name in self.ranges else None

    def notes_for(self, findings: Iterable[Finding]) -> list[Text]:
        """Returns findings as notes: code, then message, then what to try."""
        return [
            self.page.join((found.code, ALERT), " ", found.message, *self._at(found), *self._advice(found))
            for found in findings
        ]

    def _advice(self, found: Finding) -> list[str]:
        return [f"; try: {found.advice}"] if found.advice else []

    def _at(self, found: Finding) -> list[str]:
        return [] if found.line is None else [f" ({self.places.format(found.line)})"]


def _style_name(text: Text, name: str) -> None:
    """Colours a range name inside an expression such as `(rm1*4+r4)`, and not inside `rm10`."""
    for match in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text.plain):
        text.stylize(VMAP, *match.span())
