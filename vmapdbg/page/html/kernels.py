"""Kernels that are one program, each once: what they cost, where they stand, their source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from vmapdbg.model.capture import Access, Capture, Finding, Kernel
from vmapdbg.model.wording import format_plural
from vmapdbg.page.format import describe_times, format_bytes, format_dims, format_ids
from vmapdbg.page.html.code import Part, split_kernel
from vmapdbg.page.html.nodes import NodeKey
from vmapdbg.page.overview import KernelRow, Place
from vmapdbg.page.text.overview import list_limits

_MOST_SOURCE = 60_000
"""So many characters of a kernel's source are in the page."""
_MOST_OF_ALL = 600_000
"""So many of all kernels together, those with the most work first."""
_A_LINE = 20
"""What stands around a line in the page counts as so many characters more."""


@dataclass(frozen=True)
class CodeLine:
    """A line of a kernel's source. `node` is the one whose buffer is stored there, where the capture says so; `says`
    what it accesses; `codes` are those of findings about it."""

    parts: Sequence[Part]
    node: NodeKey | None
    says: str
    codes: tuple[str, ...]


@dataclass(frozen=True)
class FoundFault:
    """A finding, and how often it was found in a program."""

    finding: Finding
    count: int


@dataclass(frozen=True)
class KernelView:
    """Kernels that are one program."""

    number: int
    group: KernelRow
    code: list[CodeLine]
    cut: str
    """Says that the source goes on."""
    facts: list[tuple[str, str]]
    notes: list[str]
    faults: list[FoundFault]


def view_kernels(groups: Sequence[KernelRow], numbers: Sequence[int], capture: Capture) -> list[KernelView]:
    """Returns the groups of a capture's kernels to show, in their order; `numbers` are those that they have."""
    found: dict[tuple[int | None, int | None], list[Finding]] = defaultdict(list)
    for finding in capture.findings:
        found[finding.schedule, finding.number].append(finding)
    views: list[KernelView] = []
    left = _MOST_OF_ALL
    for number, group in zip(numbers, groups, strict=True):
        views.append(_view(number, group, found, min(left, _MOST_SOURCE)))
        shown = views[-1].code
        left -= min(left, len(group.kernel.source) + _A_LINE * len(shown))
    return views


def merge_findings(findings: Sequence[Finding]) -> list[FoundFault]:
    """Returns findings that say the same of the same line, layer after layer, as one."""
    merged: dict[tuple[str, str | None, str | None], list[Finding]] = defaultdict(list)
    for finding in findings:
        merged[finding.code, finding.kernel, finding.line].append(finding)
    return [FoundFault(same[0], len(same)) for same in merged.values()]


def _view(
    number: int, group: KernelRow, found: dict[tuple[int | None, int | None], list[Finding]], most: int
) -> KernelView:
    kernel, place = group.kernel, group.places[0]
    own = [finding for where in group.places for finding in found.get((where.schedule, where.position), ())]
    source = kernel.source.strip("\n")
    shown = source[:most]
    cut = ""
    if len(shown) < len(source):
        left = len(source) - len(shown)
        cut = f"{left:,} characters of the source are not in the page: vmapdbg show --kernel {kernel.name} has them"
    code = view_source(kernel, place.schedule, shown, found.get((place.schedule, place.position), ()))
    return KernelView(number, group, code, cut, _list_facts(group), list(list_limits(group)), merge_findings(own))


def view_source(kernel: Kernel, schedule: int, source: str, findings: Sequence[Finding]) -> list[CodeLine]:
    """Returns the lines of a kernel's source; `findings` are those about it."""
    if not source:
        return []
    codes: dict[int | None, list[str]] = defaultdict(list)
    for finding in findings:
        codes[finding.source_line].append(finding.code)
    accesses: dict[int | None, list[Access]] = defaultdict(list)
    for access in kernel.accesses or ():
        accesses[access.source_line].append(access)
    lines: list[CodeLine] = []
    for number, parts in enumerate(split_kernel(source, kernel.target), start=1):
        here = accesses.get(number, [])
        stored = any(_is_output(access, kernel) for access in here)
        node = (schedule, kernel.outputs[0]) if stored else None
        says = "; ".join(f"{access.kind} {access.buffer}[{access.address}]" for access in here)
        lines.append(CodeLine(parts, node, says, tuple(codes.get(number, ()))))
    return lines


def _is_output(access: Access, kernel: Kernel) -> bool:
    """Whether a line stores the buffer of the kernel's one output. A capture does not say which of several outputs a
    buffer belongs to."""
    written = [buffer.name for buffer in kernel.buffers if buffer.access != "read"]
    return access.kind == "store" and len(kernel.outputs) == 1 and written == [access.buffer]


def _list_facts(group: KernelRow) -> list[tuple[str, str]]:
    kernel = group.kernel
    launch = f"{format_dims(kernel.global_size)} global"
    if kernel.local_size is not None:
        launch += f", {format_dims(kernel.local_size)} local"
    facts = [
        ("launched as", f"{launch}, {format_plural(kernel.threads, 'thread')}"),
        ("ops, one kernel", f"{kernel.executed_ops:,}"),
        ("bytes, one kernel", f"{kernel.bytes:,}"),
    ]
    if times := describe_times(kernel):
        facts.append(("time", times))
    if kernel.redundancy is not None:
        facts.append(("redundancy", f"{kernel.redundancy:,.1f} times the ops the graph asks for"))
    if kernel.local_bytes:
        facts.append(("LOCAL memory", format_bytes(kernel.local_bytes)))
    facts.append(("in the run", _list_places(group.places)))
    return facts


def _list_places(places: Sequence[Place]) -> str:
    numbers: dict[int, list[int]] = defaultdict(list)
    for place in places:
        numbers[place.schedule].append(place.position)
    parts = [f"#{format_ids(same)} of schedule {schedule}" for schedule, same in list(numbers.items())[:4]]
    if len(numbers) > 4:
        parts.append(f"and in {len(numbers) - 4} schedules more")
    return ", ".join(parts)
