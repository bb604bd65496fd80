"""What a diff says. These frozen dataclasses are the JSON document of `vmapdbg diff --json` (its own schema number).

`before` and `after` name the sides everywhere. Node ids and range names are those of their own side; the
`renamed` of a schedule says which range of the one side is which of the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from vmapdbg.model.capture import Bufferize, Finding, Kernel, Node, Range, SnippetError, Versions
from vmapdbg.model.vocabulary import (
    BufferizeField,
    ChangeStatus,
    KernelField,
    KernelStatus,
    MatchedBy,
    Mode,
    NodeField,
    ValueStatus,
)

DIFF_SCHEMA: Literal[1] = 1
"""Version of the diff's JSON. It changes when a field is renamed, removed or changes its meaning."""


@dataclass(frozen=True)
class Totals:
    """Sums over kernels, except `local_bytes` and `threads`: the most that one kernel has. `buffer_bytes` are the
    GLOBAL BUFFERIZEs that were kept. `seconds` is what the launches of the kernels that were timed took, each the
    median; None where none was, and of one schedule: a program is timed over the whole run."""

    kernels: int
    copies: int
    executed_ops: int
    bytes: int
    local_bytes: int
    threads: int
    buffer_bytes: int
    seconds: float | None = None


@dataclass(frozen=True)
class Side:
    """One capture: what it is of, how it ended, and the totals of its schedules. `name` is the file that it was read
    from, empty after a run."""

    snippet: str
    target: str
    patches: dict[str, bool]
    versions: Versions
    error: SnippetError | None
    schedules: int
    totals: Totals
    mode: Mode = "overlay"
    name: str = ""


@dataclass(frozen=True)
class NodeChange:
    """A node that is on both sides and was treated differently; `changed` names the fields that differ. `src` is one of
    two edits of a program: the node stands in the same place, and reads something else."""

    before: Node
    after: Node
    changed: tuple[NodeField, ...]


@dataclass(frozen=True)
class SameNode:
    """A node that was treated the same on both sides: its two ids, the rest as it is after."""

    before: int
    after: int
    op: str
    shape: tuple[int | str, ...] | None
    ranges: tuple[str, ...] | None
    line: str | None


@dataclass(frozen=True)
class VmapChange:
    """A node whose line in `vmap_map` changed; no ranges: it has none on that side."""

    before: int
    after: int
    op: str
    ranges_before: tuple[str, ...]
    ranges_after: tuple[str, ...]


@dataclass(frozen=True)
class BufferizeChange:
    """One BUFFERIZE on one side or both.

    `changed` names the fields that differ. `added_ranges` are closed after and not before, by their names after;
    `removed_ranges` the other way round.
    `ambient` are the ambient ranges of the node on either side; `lost_before` and `lost_after` those that a kept
    GLOBAL buffer does not close, so that one iteration wins.
    """

    status: ChangeStatus
    op: str
    before: Bufferize | None
    after: Bufferize | None
    changed: tuple[BufferizeField, ...]
    added_ranges: tuple[str, ...]
    removed_ranges: tuple[str, ...]
    ambient: tuple[str, ...]
    lost_before: tuple[str, ...]
    lost_after: tuple[str, ...]


@dataclass(frozen=True)
class KernelSide:
    """A kernel and its number in its schedule."""

    number: int
    kernel: Kernel


@dataclass(frozen=True)
class KernelChange:
    """Kernels that compute the same.

    `fused-from`: one after computes the outputs of several before; `split-into`: the other way round. `matched_by` is
    empty for a kernel of one side. `changed` names the fields that differ, of a pair; `source` is no change where only
    the kernel, its variables or its buffers have other names.
    """

    status: KernelStatus
    matched_by: MatchedBy
    before: tuple[KernelSide, ...]
    after: tuple[KernelSide, ...]
    changed: tuple[KernelField, ...]


@dataclass(frozen=True)
class ValueDiff:
    """One output of a schedule, compared.

    `status` is `equal` (to the bit), `close` (within `rtol` and `atol`), `different` or `unknown` (a side has no
    such output). `first` is the offset in the sample of the first element that differs, `index` its index in the
    tensor where every element was sampled. Numbers are None where they say nothing, infinities and NaN are
    `"inf"`, `"-inf"`, `"nan"`.
    """

    number: int
    status: ValueStatus
    shape_before: tuple[int, ...] | None
    shape_after: tuple[int, ...] | None
    dtype_before: str | None
    dtype_after: str | None
    rtol: float
    atol: float
    max_absolute: float | str | None
    max_relative: float | str | None
    first: int | None
    index: tuple[int, ...] | None
    value_before: float | str | None
    value_after: float | str | None
    different: int
    sampled: int


@dataclass(frozen=True)
class PrintedDiff:
    """What the snippets printed: `line` is the number, from 1, of the first line that differs, None where none does;
    a side that ended before it has None there."""

    equal: bool
    line: int | None
    before: str | None
    after: str | None


@dataclass(frozen=True)
class ScheduleDiff:
    """A pair of schedules, or one that only one side has (`before` or `after` is None: the index).

    `renamed` maps the range names of before to those of after, names that stay included; `removed_ranges` and
    `added_ranges` have no partner. Of two tinygrads the nodes that mean the same are paired; `folded_before` and
    `folded_after` only write that down in another way: a broadcast, a permutation, a store of an output. Their outputs
    stand in no `bufferizes`: some releases have them as arguments. `buffer_op_before` and `buffer_op_after` are what
    the sides call those. `values` is the worst of `outputs`: `different`, `close`, `equal`; `unknown`
    where none was compared.
    """

    before: int | None
    after: int | None
    line_before: str | None
    line_after: str | None
    totals_before: Totals | None
    totals_after: Totals | None
    renamed: dict[str, str]
    removed_ranges: tuple[Range, ...]
    added_ranges: tuple[Range, ...]
    nodes: tuple[NodeChange, ...]
    nodes_only_before: tuple[Node, ...]
    nodes_only_after: tuple[Node, ...]
    same_nodes: tuple[SameNode, ...]
    vmap_map: tuple[VmapChange, ...]
    bufferizes: tuple[BufferizeChange, ...]
    kernels: tuple[KernelChange, ...]
    values: ValueStatus
    outputs: tuple[ValueDiff, ...]
    folded_before: tuple[Node, ...] = ()
    folded_after: tuple[Node, ...] = ()
    buffer_op_before: str = "BUFFERIZE"
    buffer_op_after: str = "BUFFERIZE"

    @property
    def index(self) -> int:
        """The index after, before where only that side has it."""
        index = self.before if self.after is None else self.after
        assert index is not None
        return index

    def pair_nodes(self) -> dict[int, int]:
        """Returns the id after of each node of before that is on both sides."""
        same = {item.before: item.after for item in self.same_nodes}
        return same | {item.before.id: item.after.id for item in self.nodes}

    @property
    def is_pair(self) -> bool:
        """Both sides have this schedule."""
        return self.before is not None and self.after is not None

    @property
    def is_empty(self) -> bool:
        """The scheduler did the same on both sides, and no value differs by more than rounding."""
        if self.totals_before is None or self.totals_after is None:
            return False
        same_copies = self.totals_before.copies == self.totals_after.copies
        same_ranges = not self.removed_ranges and not self.added_ranges
        same_nodes = not (self.nodes or self.nodes_only_before or self.nodes_only_after or self.vmap_map)
        if not (same_copies and same_ranges and same_nodes) or self.values == "different":
            return False
        return all(item.status == "unchanged" for item in (*self.bufferizes, *self.kernels))


@dataclass(frozen=True)
class CaptureDiff:
    """Two captures compared. Captures of different snippets are compared too; `same_snippet` then is false.

    `values` is `different` where any output is, else `close` or `equal` where at least one was compared, else
    `unknown`. `printed` is None where nobody recorded it. `schedules` are in the order of after, those of before
    alone where they stood. `findings_gone` are what lint finds before and not after, `findings_new` the other way
    round. `same_lines` has for lines of before where they stand after, of two edits of a program: lines that are the
    same, and edited ones that are alike.
    """

    schema: Literal[1]
    kind: Literal["diff"]
    before: Side
    after: Side
    same_snippet: bool
    values: ValueStatus
    printed: PrintedDiff | None
    schedules: tuple[ScheduleDiff, ...]
    findings_gone: tuple[Finding, ...] = ()
    findings_new: tuple[Finding, ...] = ()
    same_lines: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def is_empty(self) -> bool:
        """Nothing changed. Patches, versions and targets are labels: that they differ is no change."""
        ended = self.before.error == self.after.error
        same_printed = self.printed is None or self.printed.equal
        return ended and same_printed and all(item.is_empty for item in self.schedules)
