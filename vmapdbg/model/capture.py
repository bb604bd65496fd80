"""The data every part of vmapdbg speaks: one Capture of one run of a snippet.

These frozen dataclasses are the JSON contract (schema 1): field names are the JSON keys, in this order. The accepted
values of a field stand in `vocabulary`. The child process builds a Capture, `data` turns it into plain data and back,
`store` reads and writes it, `render` makes the sentences and shows it. Nothing here knows tinygrad.

A field with a default came to schema 1 later than the others: a file from before does not have it.

Terms are tinygrad's own. One is ours: an **ambient range** of a node is a vmap RANGE that the node's value
depends on and that its own range tuple (`in_ranges`, `out_ranges`) does not hold, because VMAPOUT strips it on
the way in. A buffer for such a node needs its ambient ranges as extra dimensions, or every batch element lands
in the same place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from vmapdbg.model.crash import Crash
from vmapdbg.model.vocabulary import (
    AccessKind,
    AddressSpace,
    ArgumentAccess,
    AxisType,
    LoopKind,
    Mode,
    Outcome,
    RealizedReason,
    Rule,
    UnsplitRule,
)

SCHEMA: Literal[1] = 1
"""Version of the JSON contract. It changes when a field is renamed, removed or changes its meaning."""


@dataclass(frozen=True)
class Condition:
    """A test in tinygrad's source that a decision stood under: its line, its text, and whether it held (None where that
    would have to be computed). `values` has its parts by their text, rendered, as they were when it was tested."""

    line: int
    text: str
    holds: bool | None
    values: dict[str, str]


@dataclass(frozen=True)
class Decision:
    """The statement of tinygrad's source that decided. `file` is relative to tinygrad's folder
    (`schedule/indexing.py`), `function` is the one that the statement is in; `conditions` are in the order of the
    source."""

    file: str
    line: int
    function: str
    text: str
    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class Reason:
    """One decision as data: a rule, and what it was applied to.

    `nodes` are ids, `ranges` are rendered as tinygrad renders them. Where a rule is about pairs of them, `nodes[i]`
    belongs to `ranges[i]`. `numbers` are what was counted or measured, by name. `axis` is where consumers disagree: an
    axis of the node, or the name of an ambient range. Which operands a rule has is said beside it in `vocabulary`. `at`
    is where tinygrad's own code decided so, where that was observed.
    """

    rule: Rule
    nodes: tuple[int, ...] = ()
    ranges: tuple[str, ...] = ()
    numbers: dict[str, int | float | str] = field(default_factory=dict[str, int | float | str])
    axis: int | str | None = None
    at: Decision | None = None


@dataclass(frozen=True)
class Realized:
    """Why a node is written to a buffer.

    `axes` are the axes given new ranges (all of them: a GLOBAL buffer; some: a LOCAL one). `reason` says it in a word.
    `detail` is a sentence that names the op, the consumers or the ranges that caused it; it is made from `reasons`, the
    one that decided first.
    """

    axes: tuple[int, ...]
    reason: RealizedReason
    detail: str
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Outside:
    """A range that leaves the axis it indexes: it goes from `lowest` to `highest`, and the axis has `size` elements."""

    axis: int
    range: str
    lowest: int
    highest: int
    size: int


@dataclass(frozen=True)
class Unsplit:
    """A reduce that stock tinygrad would make in two kernels, and a patch of the overlay leaves whole.

    `rule` says what it is instead, `gather`: along `axes` of its source an index picks one element. `rest` are the axes
    that stock would add up with these, and that are a reduce of their own now. Stock's first kernel would make
    `between` of `source` and store it, its second one `result` of that (shapes). `detail` is a sentence made of it all.
    """

    rule: UnsplitRule
    axes: tuple[int, ...]
    rest: tuple[int, ...]
    source: tuple[int, ...]
    between: tuple[int, ...]
    result: tuple[int, ...]
    detail: str = ""


@dataclass(frozen=True)
class Node:
    """One UOp of the tensor graph as the rangeify pass saw it. A node's id is larger than those of its sources.

    `shape` is None for an op without one. `src` are node ids. Ranges are rendered as tinygrad renders them
    (`r4`, `rm1`, `(r4*2+r5)`), one an axis; `ambient` are range names. `line` is `file:number` of the user's code.
    `arg` is what else makes the op what it is: the axes of a reduce, the argument of a movement op, a constant, a
    varg. `outside` are those of its `in_ranges` that leave the shape of its first source. `method` is
    the method of Tensor that is called at `line` and makes the node (`softmax`), None where the call is of no method.
    `unsplit` is why it is one reduce where stock tinygrad would have two, None where that is not so.
    """

    id: int
    op: str
    dtype: str
    shape: tuple[int | str, ...] | None
    src: tuple[int, ...]
    in_ranges: tuple[str, ...] | None
    out_ranges: tuple[str, ...] | None
    ambient: tuple[str, ...]
    realized: Realized | None
    line: str | None
    arg: str
    outside: tuple[Outside, ...] = ()
    method: str | None = None
    unsplit: Unsplit | None = None


@dataclass(frozen=True)
class Range:
    """One RANGE of a schedule: its rendered name, its size (a string where symbolic), LOOP, REDUCE or OUTER,
    and whether a VMAPIN or VMAPOUT brought it."""

    name: str
    size: int | str
    axis_type: AxisType
    vmap: bool


@dataclass(frozen=True)
class VmapEntry:
    """One line of `vmap_map`: the ambient ranges that `node` depends on."""

    node: int
    ranges: tuple[str, ...]


@dataclass(frozen=True)
class Bufferize:
    """One BUFFERIZE the pass made for `node`.

    `closed_ranges` are its dimensions, ambient ones first; `size` is in elements, `bytes` in bytes. `reason`
    is a sentence that says which test of the cost function decided its `outcome`, with the numbers; it is made from
    `decided`. `left_open` are ranges of its value that its store does not close, OUTER ones apart. `outside` are ranges
    of a reader's index that leave the axis of the buffer.
    """

    node: int
    closed_ranges: tuple[str, ...]
    ambient: tuple[str, ...]
    size: int
    bytes: int
    addrspace: AddressSpace
    outcome: Outcome
    reason: str
    left_open: tuple[str, ...] = ()
    outside: tuple[Outside, ...] = ()
    decided: Reason | None = None


@dataclass(frozen=True)
class Loop:
    """A loop of a kernel, a dimension of its threads, or a variable that goes on with each launch: its name in the
    source, its trip count, and which of the three it is."""

    name: str
    size: int
    kind: LoopKind


@dataclass(frozen=True)
class Access:
    """What all the loads, or all the stores (`kind`), of a kernel do to one buffer: facts that hold for every step of
    its loops and threads, counted in elements.

    `size` is the buffer's. `lowest` and `highest` bound the elements that are accessed where the gate holds; an end
    outside of the buffer is really reached. Both are None where that could not be decided. `address`, `gate`
    and `source_line` (a line of the kernel's source, from 1; None where it cannot be told) are those of the access that
    leaves the buffer, or loses a loop, else of the first.

    For stores: `lost` are the loops and threads whose steps store different values to the same place. `stores` is how
    many elements are stored, one that is stored twice counted twice (loops that no address uses left out), `elements`
    how many different ones, `missing` the first of the buffer that is not among them. None where undecided, or none.
    """

    buffer: str
    kind: AccessKind
    addrspace: AddressSpace
    size: int
    lowest: int | None
    highest: int | None
    address: str
    gate: str | None
    source_line: int | None
    lost: tuple[Loop, ...]
    stores: int | None
    elements: int | None
    missing: int | None


@dataclass(frozen=True)
class Reset:
    """An accumulator of a kernel, in registers, that is initialised anew in each step of the `loops` that add to it,
    and read when they are done: only their last step is in it. `source_line` is where it is initialised (a line of the
    kernel's source, from 1; None where it cannot be told)."""

    buffer: str
    loops: tuple[Loop, ...]
    source_line: int | None


@dataclass(frozen=True)
class WrongTime:
    """A kernel reads memory that was there before the schedule at another time than the graph asks for. `buffer` is its
    argument, `node` the BUFFER or PARAM. `early` are the numbers of the kernels that write it before this one although
    the graph has this one read what was there before them; `late` those that write it after this one although it should
    read what they wrote."""

    buffer: str
    node: int
    early: tuple[int, ...]
    late: tuple[int, ...]


@dataclass(frozen=True)
class BufferArg:
    """One buffer argument of a kernel. `size` is in elements."""

    name: str
    size: int
    dtype: str
    access: ArgumentAccess


@dataclass(frozen=True)
class Measured:
    """How long the launches of a kernel took in this run, by the device's own clock: how many were timed, and the
    median, the shortest and the longest, in seconds. Of several `runs` (a diff takes turns) `launches` are those of
    one, and `median` is the median of theirs."""

    launches: int
    median: float
    least: float
    most: float
    runs: int = 1


@dataclass(frozen=True)
class Kernel:
    """One compute kernel as rendered for `target`.

    `local_bytes` is LOCAL (threadgroup, shared) memory. `threads` is global x local size, the threads a CPU
    kernel splits its work over included. `executed_ops` is what the linear program executes: each op times the
    trip counts of the loops around it times the threads, over all `launches`. `bytes` is what those loads and
    stores move. `redundancy` is executed ops over the ops the tensor graph asks for (None where it asks for
    none). `launches` is how often the schedule runs it (an OUTER range runs one kernel many times). `key` is
    the hex `ast.key`. `outputs` are the nodes whose buffers it writes, `nodes` all nodes computed in it. `accesses` are
    the facts about its memory that `lint` decides from, None in a capture that has none. `fresh` tells that the
    schedule made the buffer it writes: nothing else has been stored there. `open_loops` are loops of the program
    without an end. `local_limit` is the LOCAL memory that the target has for a group of threads, None where it has no
    such memory. `resets` are accumulators that lose what was added to them. `failed` is the error of a kernel that
    tinygrad makes no program of: it has no name and no source, and its numbers are zero. `measured` has the times
    of all launches of its program in the run, None where it was not timed, or did not run. `wrong_times` is what it
    reads at another time than the graph asks for. `overwrites` is the BUFFER or PARAM, there before the schedule, that
    it writes although nothing in the graph assigns to it; None where there is none. `predicted` is the time of one
    launch, in seconds, that the overlay's cost model expects on the device that the kernel was timed on
    (`tinygrad/codegen/_cost.py`). It is good for putting kernels in order, and half of the predictions for the CPU are
    0.5 to 1.5 of the measured time (`bench/cost_model.py`); None where the kernel was not timed, where codegen fails
    on it without BEAM, and on an observed tinygrad.
    """

    name: str
    target: str
    source: str
    global_size: tuple[int | str, ...]
    local_size: tuple[int | str, ...] | None
    local_bytes: int
    threads: int
    executed_ops: int
    bytes: int
    redundancy: float | None
    buffers: tuple[BufferArg, ...]
    nodes: tuple[int, ...]
    lines: tuple[str, ...]
    outputs: tuple[int, ...]
    launches: int
    key: str
    accesses: tuple[Access, ...] | None = None
    fresh: bool = False
    open_loops: tuple[str, ...] = ()
    local_limit: int | None = None
    resets: tuple[Reset, ...] = ()
    failed: SnippetError | None = None
    measured: Measured | None = None
    wrong_times: tuple[WrongTime, ...] = ()
    overwrites: int | None = None
    predicted: float | None = None


@dataclass(frozen=True)
class Output:
    """One tensor that the snippet realized. `digest` is the hex sha256 of its bytes; `sample` has at most 1,024 of its
    elements, evenly spaced from the first (every one of them where there are no more), NaN and infinities as
    `"nan"`, `"inf"`, `"-inf"`."""

    shape: tuple[int, ...]
    dtype: str
    digest: str
    sample: tuple[float | str, ...]


@dataclass(frozen=True)
class Schedule:
    """One schedule the snippet made: the graph, the decisions, the kernels. `copies` counts what is no compute
    kernel (copies between devices, views). `outputs` are read only where they are asked for, as `diff` does.

    `cached` tells that it came out of tinygrad's schedule cache. The cache's key does not hold the scheduler's
    switches: `not_in_key` has those that were set otherwise when the schedule was made, as `{name: [then, now]}`. So
    the schedule may not be what they ask for. `buffer_op` is tinygrad's name for what `bufferizes` are: STAGE from 0.13
    on.

    `forced` are the nodes that were made realize points, and `released` those that were not made ones although a rule
    asked for it, because the run was told to (`bisect --decisions`).
    """

    index: int
    line: str | None
    copies: int
    nodes: tuple[Node, ...]
    ranges: tuple[Range, ...]
    vmap_map: tuple[VmapEntry, ...]
    bufferizes: tuple[Bufferize, ...]
    kernels: tuple[Kernel, ...]
    outputs: tuple[Output, ...]
    cached: bool = False
    not_in_key: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    buffer_op: str = "BUFFERIZE"
    forced: tuple[int, ...] = ()
    released: tuple[int, ...] = ()


@dataclass(frozen=True)
class Finding:
    """One fault that a lint rule found; `code` is stable (`VD101`).

    `schedule` is the index of the schedule it is in, `number` that of the kernel there, `source_line` the line of the
    kernel's source (from 1). `advice` says what to try.
    """

    code: str
    kernel: str | None
    node: int | None
    line: str | None
    message: str
    schedule: int | None = None
    number: int | None = None
    source_line: int | None = None
    advice: str = ""


@dataclass(frozen=True)
class Versions:
    """What the capture was made with. `tree` is the tinygrad that was asked for: a release, a folder, or a commit of
    one; empty for the installed one. `commit` is that of a checkout, as git describes it."""

    vmapdbg: str
    tinygrad: str
    python: str
    tree: str = ""
    commit: str | None = None


@dataclass(frozen=True)
class SnippetError:
    """How the snippet ended, when not well: the exception's type name, its message, the user's `file:line`. `crash` is
    where tinygrad raised it, None where the snippet itself did. The type of what was stopped because tinygrad would
    never have ended is `EndlessRewrite`."""

    type: str
    message: str
    line: str | None
    crash: Crash | None = None


@dataclass(frozen=True)
class Capture:
    """All that one run of a snippet showed.

    `mode` is how tinygrad was looked at: with the overlay and its patches on tinygrad 0.12.0, or any tinygrad observed
    as it is, with nothing replaced. `missing` has a sentence for each part that could not be observed.
    """

    schema: Literal[1]
    kind: Literal["capture"] = field(default="capture", kw_only=True)
    versions: Versions
    snippet: str
    target: str
    patches: dict[str, bool]
    error: SnippetError | None
    schedules: tuple[Schedule, ...]
    findings: tuple[Finding, ...]
    mode: Mode = "overlay"
    missing: tuple[str, ...] = ()

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Those of all schedules, in their order."""
        return tuple(kernel for schedule in self.schedules for kernel in schedule.kernels)
