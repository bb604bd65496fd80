"""The rows of the kernels, each program or each change once: cost, launch, findings, and source."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from vmapdbg.diff.result import KernelSide
from vmapdbg.diff.source import MarkedSpan, align_sources, keep_near
from vmapdbg.install.targets import language_of
from vmapdbg.model.capture import Access, Finding, Kernel
from vmapdbg.model.schedule_index import group_equal
from vmapdbg.model.wording import join_first
from vmapdbg.page.format import compare_facts, format_seconds
from vmapdbg.page.html.nodes import NodeKey, list_sides
from vmapdbg.page.html.source import Part, split_code
from vmapdbg.page.overview import KernelRow
from vmapdbg.page.speed import describe_kernel
from vmapdbg.page.text.kernels import list_parts, name_change
from vmapdbg.page.view import Findings, View

_MOST_SOURCE = 600_000
"""So many characters of all sources are in the page, the most important kernels first."""
_A_LINE = 24
"""The markup of a line counts as so many characters."""
_PLAIN = frozenset({"tn", "tb", "tf"})
"""Numbers and names stay plain: a kernel has so many that their colours would be half of the page."""
_MOST_PARTS = 8
_AROUND = 3
"""Equal lines further than this from a change are left out."""


@dataclass(frozen=True)
class CodeLine:
    """A line of a kernel's source; `node` names the node whose buffer it stores, `says` what it accesses."""

    parts: Sequence[Part]
    node: str = ""
    says: str = ""
    codes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CodeRow:
    """A line of both sources, or None. A source alone is `after`."""

    before: CodeLine | None
    after: CodeLine | None
    same: bool


@dataclass
class KernelView:
    """A row of the kernels. `facts` are names with both values. `rows` have the source, each with the count of lines
    left out above it; `cut` says what of the source is not in the page."""

    row: KernelRow
    name: str
    facts: list[tuple[str, str, str]]
    name_before: str = ""
    note: str = ""
    faults: Sequence[tuple[Finding, int]] = ()
    rows: Sequence[tuple[int, CodeRow | None]] = ()
    cut: str = ""

    @property
    def is_one_sided(self) -> bool:
        """Whether only one side has kernels."""
        return not (self.row.change.before and self.row.change.after)

    @property
    def is_alone(self) -> bool:
        """Whether it has one source: of one side, or of two equal sides."""
        return self.is_one_sided or not self.row.is_changed


def merge_findings(findings: Iterable[Finding]) -> list[tuple[Finding, int]]:
    """Returns the first finding of each kind in a program, at a line, and how many there are."""
    merged = group_equal(findings, lambda finding: (finding.code, finding.kernel, finding.line))
    return [(same[0], len(same)) for same in merged]


def view_kernels(
    view: View, rows: Sequence[KernelRow], name_node: Callable[[str, NodeKey], str]
) -> Iterator[KernelView]:
    """Yields the rows to show, in their order. `name_node` names a node of a side."""
    sources = _Sources(view, name_node)
    for row in rows:
        shown = KernelView(row, row.kernel.name, _list_facts(row, view))
        if view.is_pair:
            before, shown.name = name_change(row.change, lambda side: side.kernel.name)
            shown.name_before = before * (before != shown.name)
            words, parts = list_parts(row.change)
            shown.note = words + join_first([side.kernel.name for side in parts], _MOST_PARTS)
        else:
            about = sources.findings["after"].about_kernel
            faults = (about(place.pair.index, [place.change.after[0].number]) for place in row.places)
            shown.faults = merge_findings(chain.from_iterable(faults))
        sources.add_to(shown)
        yield shown


# *** facts


def _list_facts(row: KernelRow, view: View) -> list[tuple[str, str, str]]:
    """Names with their values before and after, without the work: of one run the same; of two what differs."""
    kernel, before, after = row.kernel, row.before, row.after
    if not view.is_pair:
        return [(name, value, value) for name, value in describe_kernel(kernel, view.after.device).items() if value]
    facts = [("computes", kernel.title, kernel.title)] if kernel.title else []
    facts.append(("launches", f"{before.launches:,}", f"{after.launches:,}"))
    if before.seconds or after.seconds:
        facts.append(("time", format_seconds(before.seconds), format_seconds(after.seconds)))
    if len(row.change.before) == len(row.change.after) == 1:
        facts += compare_facts(row.change.before[0].kernel, row.change.after[0].kernel)
    return facts


# *** source


class _Sources:
    """Adds sources to rows as long as the page does not become too large."""

    def __init__(self, view: View, name_node: Callable[[str, NodeKey], str]) -> None:
        self.command, self.name_node = "diff" if view.is_pair else "show", name_node
        self.left = _MOST_SOURCE
        self.findings = {"before": Findings(view.before.findings), "after": Findings(view.after.findings)}

    def add_to(self, shown: KernelView) -> None:
        sides = list(list_sides(shown.row.places[0]))
        if shown.is_alone:
            sides = [next(side for side in sides if side[2])]
        kernels = [each.kernel for _, _, some in sides for each in some]
        size = sum(len(kernel.source) for kernel in kernels)
        if size > self.left:
            name = f"vmapdbg {self.command} --kernel {shown.row.kernel.name}"
            shown.cut = f"{size:,} characters of source are not in the page: {name} has them"
            return
        if shown.is_alone:
            shown.rows = [(0, CodeRow(None, line, True)) for line in self._list_code(*sides[0])]
        else:
            after, before = (list(self._list_code(*side)) for side in sides)
            shown.rows = _pair_lines(before, after, {kernel.name for kernel in kernels})
        rows = [row for _, row in shown.rows if row is not None]
        lines = [line for row in rows for line in (row.before, row.after) if line is not None]
        self.left = max(self.left - len(_join_lines(lines)) - _A_LINE * len(lines), 0)

    def _list_code(self, side: str, schedule: int, kernels: Sequence[KernelSide]) -> Iterator[CodeLine]:
        for each in kernels:
            kernel = each.kernel
            if len(kernels) > 1:
                yield CodeLine([("tc", f"// #{each.number} {kernel.name}")])
            node = self.name_node(side, (schedule, kernel.outputs[0])) if kernel.outputs else ""
            yield from _split_source(kernel, node, self.findings[side].about_kernel(schedule, [each.number]))


def _split_source(kernel: Kernel, node: str, findings: Iterable[Finding]) -> Iterator[CodeLine]:
    """Yields the lines of a kernel's source. `node` is the name of its first output."""
    source = kernel.source.strip("\n")
    if not source:
        return
    codes: dict[int | None, list[str]] = defaultdict(list)
    for finding in findings:
        codes[finding.source_line].append(finding.code)
    accesses: dict[int | None, list[Access]] = defaultdict(list)
    for access in kernel.accesses or ():
        accesses[access.source_line].append(access)
    # a capture does not say which of several outputs a buffer belongs to
    written = [buffer.name for buffer in kernel.buffers if buffer.access != "read"]
    is_only = len(written) == len(kernel.outputs) == 1
    for number, parts in enumerate(split_code(source, language_of(kernel.target), _PLAIN), start=1):
        says = "; ".join(f"{each.kind} {each.buffer}[{each.address}]" for each in accesses[number])
        is_store = is_only and any((each.kind, each.buffer) == ("store", written[0]) for each in accesses[number])
        yield CodeLine(parts, node if is_store else "", says, tuple(codes[number]))


def _join_lines(lines: Iterable[CodeLine]) -> str:
    return "\n".join("".join(text for _, text in line.parts) for line in lines)


def _pair_lines(
    before: Sequence[CodeLine], after: Sequence[CodeLine], names: Collection[str]
) -> list[tuple[int, CodeRow | None]]:
    """Pairs equal and similar lines, and leaves out equal lines far from any change. `names` are the kernels' names."""
    rows, left, right = list[CodeRow](), iter(before), iter(after)
    for pair in align_sources(_join_lines(before), _join_lines(after), names):
        one = None if pair.before is None else next(left, None)
        other = None if pair.after is None else next(right, None)
        if one is not None and other is not None and not pair.is_same:
            one = replace(one, parts=_split_marks(pair.before or "", pair.marks_before))
            other = replace(other, parts=_split_marks(pair.after or "", pair.marks_after))
        rows.append(CodeRow(one, other, pair.is_same))
    changed = [number for number, row in enumerate(rows) if not row.same]
    return list(keep_near(rows, changed, _AROUND))


def _split_marks(text: str, marks: Sequence[MarkedSpan]) -> list[Part]:
    """A line in parts, with the class `mk` for what changed. It has no other colours: two kinds are too many."""
    parts, end = list[Part](), 0
    for start, stop in marks:
        parts += [("", text[end:start]), ("mk", text[start:stop])]
        end = stop
    return [part for part in [*parts, ("", text[end:])] if part[1]]
