"""The result of a diff: the JSON document of `vmapdbg diff --json`, with a schema number of its own.

The sides are called `before` and `after`. Node ids and range names belong to their side; `renamed` of a schedule maps
range names of before to range names of after."""

from dataclasses import dataclass, field
from typing import Literal

from vmapdbg.model import vocabulary
from vmapdbg.model.account import Account
from vmapdbg.model.capture import Bufferize, Finding, Kernel, Node, Range, SnippetError, Versions

DIFF_SCHEMA: Literal[1] = 1
"""Version of the diff's JSON. It changes when a field is renamed, removed or changes its meaning."""


@dataclass(frozen=True)
class Totals:
    """Sums over kernels, except `local_bytes` and `threads`: the maximum of one kernel. `buffer_bytes` are the GLOBAL
    BUFFERIZEs that were kept. `seconds` is the time of all launches of timed kernels, each counted as the median; None
    if none was timed, and for a single schedule, because a program is timed over the whole run."""

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
    """One capture: its snippet and settings, how it ended, and the totals of its schedules. `name` is the file that it
    was read from, "" after a run."""

    snippet: str
    target: str
    patches: dict[str, bool]
    versions: Versions
    error: SnippetError | None
    schedules: int
    totals: Totals
    mode: vocabulary.Mode = "overlay"
    name: str = ""


@dataclass(frozen=True)
class NodeChange:
    """A node that is on both sides and was treated differently; `changed` names the fields that differ. `src` differs
    only between two edits of a program: the node has the same position but reads something else."""

    before: Node
    after: Node
    changed: tuple[vocabulary.NodeField, ...]


@dataclass(frozen=True)
class SameNode:
    """A node that was treated the same on both sides: its two ids, and its fields after."""

    before: int
    after: int
    op: str
    shape: tuple[int | str, ...] | None
    ranges: tuple[str, ...] | None
    line: str | None


@dataclass(frozen=True)
class VmapChange:
    """A node whose entry in `vmap_map` changed. A side without an entry has no ranges."""

    before: int
    after: int
    op: str
    ranges_before: tuple[str, ...]
    ranges_after: tuple[str, ...]


@dataclass(frozen=True)
class BufferizeChange:
    """One BUFFERIZE on one side or both.

    `changed` names the fields that differ. `added_ranges` are closed only after, `removed_ranges` only before.
    `ambient` are the ambient ranges of the node on either side. `lost_before` and `lost_after` are the ambient ranges
    that a kept GLOBAL buffer does not close, so that only one iteration survives."""

    status: vocabulary.ChangeStatus
    op: str
    before: Bufferize | None
    after: Bufferize | None
    changed: tuple[vocabulary.BufferizeField, ...]
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

    `fused-from`: one kernel after computes the outputs of several kernels before; `split-into`: the reverse.
    `matched_by` is "" for a kernel of one side. `changed` names the fields of a pair that differ. Other names of the
    kernel, its variables or its buffers are no change of `source`."""

    status: vocabulary.KernelStatus
    matched_by: vocabulary.MatchedBy
    before: tuple[KernelSide, ...]
    after: tuple[KernelSide, ...]
    changed: tuple[vocabulary.KernelField, ...]

    @property
    def sides(self) -> tuple[KernelSide, ...]:
        """The kernels of both sides."""
        return (*self.before, *self.after)


@dataclass(frozen=True)
class ValueDiff:
    """One output of a schedule, compared.

    `status` is `equal` (to the bit), `close` (within `rtol` and `atol`), `different` or `unknown` (not compared).
    `left` is why it is not compared: `one-side` (the schedule is on one side), `not-paired` (nothing but their graphs
    says that the two schedules are the same), `output-count` (they have more outputs on one side), `not-read` (a side
    is a file without values), `not-deterministic` (two runs of before have other values).

    `first` is the offset in the sample of the first element that differs, `index` its index in the tensor if every
    element was sampled. Unknown numbers are None; infinities and NaN are `"inf"`, `"-inf"`, `"nan"`."""

    number: int
    status: vocabulary.ValueStatus
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
    left: vocabulary.ValueLeft = ""


@dataclass(frozen=True)
class PrintedDiff:
    """What the snippets printed. `line` is the number, from 1, of the first line that differs, None if none does. The
    line of a side that ended earlier is None. `left` is `not-deterministic` if only lines differ that also differ
    between two runs of before."""

    equal: bool
    line: int | None
    before: str | None
    after: str | None
    left: vocabulary.ValueLeft = ""


@dataclass(frozen=True)
class ScheduleDiff:
    """A pair of schedules, or a schedule of one side. `before` and `after` are their indices, None if there is none.

    `renamed` maps range names of before to range names of after, including equal names; `removed_ranges` and
    `added_ranges` have no partner. For two tinygrads, nodes with the same meaning are paired. `folded_before` and
    `folded_after` are nodes that only show another node's value: a broadcast, a permutation, a store of an output. Then
    `bufferizes` does not contain outputs, because they are arguments in some releases. `buffer_op_before` and
    `buffer_op_after` are the names of a BUFFERIZE.

    `paired_by` is how the two were found to be the same: by `line` and order, by the `order` of all schedules, by equal
    graphs (`graph`), or by similar ones (`alike`). `values` is the worst status of `outputs`, `unknown` if none was
    compared. `not_deterministic`: two runs of before make other schedules here."""

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
    values: vocabulary.ValueStatus
    outputs: tuple[ValueDiff, ...]
    folded_before: tuple[Node, ...] = ()
    folded_after: tuple[Node, ...] = ()
    buffer_op_before: str = "BUFFERIZE"
    buffer_op_after: str = "BUFFERIZE"
    paired_by: vocabulary.PairedBy = ""
    not_deterministic: bool = False

    @property
    def index(self) -> int:
        """The index after, or before if there is no schedule after."""
        index = self.before if self.after is None else self.after
        assert index is not None
        return index

    def pair_nodes(self) -> dict[int, int]:
        """Maps the ids of before to the ids of after, for nodes on both sides."""
        same = {item.before: item.after for item in self.same_nodes}
        return same | {item.before.id: item.after.id for item in self.nodes}

    @property
    def is_pair(self) -> bool:
        """Whether both sides have this schedule."""
        return self.before is not None and self.after is not None

    @property
    def is_empty(self) -> bool:
        """Whether no value differs by more than rounding, and the scheduler did the same on both sides, or does
        something else in each run."""
        return self.values != "different" and (self.not_deterministic or self.is_same)

    @property
    def is_same(self) -> bool:
        """Whether the scheduler did the same on both sides."""
        if self.totals_before is None or self.totals_after is None:
            return False
        changes = (self.removed_ranges, self.added_ranges, self.nodes, self.nodes_only_before, self.nodes_only_after)
        if any(changes) or self.vmap_map or self.totals_before.copies != self.totals_after.copies:
            return False
        return all(item.status == "unchanged" for item in (*self.bufferizes, *self.kernels))


@dataclass(frozen=True)
class CaptureDiff:
    """Two captures compared. `same_snippet` is false if they are of different snippets.

    `values` is `different` if any output is, else `close` or `equal` if any was compared, else `unknown`. `printed` is
    None if it was not recorded. `schedules` are in the order of after; a schedule of before alone follows its
    predecessor. `findings_gone` are the findings of lint before that are gone after, `findings_new` are new after. For
    two edits of a program, `same_lines` maps lines of before to equal or similar lines of after. `account` compares
    what the runs did with what was compared; None if it was not counted. Its reasons may be those of `ValueDiff`."""

    schema: Literal[1]
    kind: Literal["diff"]
    before: Side
    after: Side
    same_snippet: bool
    values: vocabulary.ValueStatus
    printed: PrintedDiff | None
    schedules: tuple[ScheduleDiff, ...]
    findings_gone: tuple[Finding, ...] = ()
    findings_new: tuple[Finding, ...] = ()
    same_lines: dict[str, str] = field(default_factory=dict[str, str])
    account: Account | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed. Other patches, versions and targets are no change."""
        ended = self.before.error == self.after.error
        same_printed = self.printed is None or self.printed.equal or bool(self.printed.left)
        return ended and same_printed and all(item.is_empty for item in self.schedules)
