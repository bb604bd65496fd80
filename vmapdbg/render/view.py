"""One schedule with the lookups that every section of the text output needs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

from rich.text import Text

from vmapdbg.ambient import find_ambient, find_lost
from vmapdbg.model import Bufferize, Capture, Finding, Kernel, Node, Range, Schedule
from vmapdbg.render.format import Places
from vmapdbg.render.layout import Page

ALERT = "bold red"
VMAP = "magenta"
NOTE = "cyan"


class Findings:
    """The findings of a capture, each printed once for every place it belongs to; the rest at the end."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._all = tuple(findings)
        self._placed: set[int] = set()

    def take_for_kernel(self, kernel: Kernel) -> list[Finding]:
        """Returns the findings about a kernel of that name."""
        return self._take(i for i, found in enumerate(self._all) if found.kernel == kernel.name)

    def take_for_node(self, node: Node) -> list[Finding]:
        """Returns the findings about a node and no kernel. Ids repeat by schedule: the line must agree."""
        return self._take(i for i, found in enumerate(self._all) if self._is_about(found, node))

    def has_for_node(self, node: Node) -> bool:
        """Tells whether `take_for_node` would return any."""
        return any(self._is_about(found, node) for found in self._all)

    def has_for_kernel(self, kernel: Kernel) -> bool:
        """Tells whether `take_for_kernel` would return any."""
        return any(found.kernel == kernel.name for found in self._all)

    def take_rest(self) -> list[Finding]:
        """Returns the findings that no section has printed."""
        return self._take(i for i in range(len(self._all)) if i not in self._placed)

    def _is_about(self, found: Finding, node: Node) -> bool:
        same_line = found.line is None or node.line is None or found.line == node.line
        return found.kernel is None and found.node == node.id and same_line

    def _take(self, numbers: Iterable[int]) -> list[Finding]:
        taken = list(numbers)
        self._placed |= set(taken)
        return [self._all[i] for i in taken]


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
        return find_ambient(self.schedule, bufferize)

    def not_closed(self, bufferize: Bufferize) -> tuple[str, ...]:
        """Returns the ambient ranges that a BUFFERIZE does not close, whether that is a fault or not."""
        return tuple(name for name in self.ambient_of(bufferize) if name not in bufferize.closed_ranges)

    def lost(self, bufferize: Bufferize) -> tuple[str, ...]:
        """Returns the ambient ranges whose iterations overwrite each other in the buffer: the last stays."""
        return find_lost(self.schedule, bufferize)

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
        """Returns findings as notes: code, then message."""
        return [self.page.join((found.code, ALERT), " ", found.message, *self._at(found)) for found in findings]

    def _at(self, found: Finding) -> list[str]:
        return [] if found.line is None else [f" ({self.places.format(found.line)})"]


def _style_name(text: Text, name: str) -> None:
    """Colours a range name inside an expression such as `(rm1*4+r4)`, and not inside `rm10`."""
    for match in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text.plain):
        text.stylize(VMAP, *match.span())
