"""The data that all parts of vmapdbg share: one Capture of one run of a snippet.

These frozen dataclasses are the JSON contract (schema 1): field names are the JSON keys, in this order. The accepted
values of a field are in `vocabulary`. The child process builds a Capture, `store` writes it to files and reads it back,
`page` shows it. Nothing here knows tinygrad.

A field with a default was added to schema 1 later: older files do not have it.

Terms are tinygrad's own, except one: an **ambient range** of a node is a vmap RANGE that the node's value depends on
but that its range tuples (`in_ranges`, `out_ranges`) do not contain, because VMAPOUT strips it. A buffer for such a
node needs its ambient ranges as extra dimensions, or all batch elements are stored in the same place."""

from dataclasses import dataclass, field
from typing import Literal

from vmapdbg.model import vocabulary
from vmapdbg.model.account import Account
from vmapdbg.model.crash import Crash

SCHEMA: Literal[1] = 1
"""Version of the JSON contract. It changes when a field is renamed, removed or changes its meaning."""


@dataclass(frozen=True)
class Condition:
    """A condition in tinygrad's source that led to a decision: its line, its text, and whether it was true (None if
    unknown). `values` maps the text of its parts to their rendered values at that time."""

    line: int
    text: str
    holds: bool | None
    values: dict[str, str]


@dataclass(frozen=True)
class Decision:
    """The statement of tinygrad's source that decided. `file` is relative to tinygrad's folder
    (`schedule/indexing.py`), `function` contains the statement; `conditions` are in the order of the source."""

    file: str
    line: int
    function: str
    text: str
    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class Reason:
    """One decision: a rule and its operands, which `vocabulary` lists for each rule.

    `nodes` are ids, `ranges` are rendered as tinygrad renders them. If a rule is about pairs of them, `nodes[i]`
    belongs to `ranges[i]`. `numbers` are counts and measurements, by name. `axis` is where consumers disagree: an axis
    of the node, or the name of an ambient range. `at` is the place in tinygrad's code that decided, if it was observed.
    """

    rule: vocabulary.Rule
    nodes: tuple[int, ...] = ()
    ranges: tuple[str, ...] = ()
    numbers: dict[str, int | float | str] = field(default_factory=dict[str, int | float | str])
    axis: int | str | None = None
    at: Decision | None = None


@dataclass(frozen=True)
class Realized:
    """Why a buffer is asked for at a node. The node is realized if the buffer is kept.

    `axes` are the axes with new ranges (all axes: a GLOBAL buffer; some: a LOCAL buffer). `reason` is one word.
    `detail` is a sentence with the op, the consumers or the ranges that caused it. It is written from `reasons`, which
    are in the order in which they decided."""

    axes: tuple[int, ...]
    reason: vocabulary.RealizedReason
    detail: str
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Outside:
    """A range that leaves its axis: it goes from `lowest` to `highest`, and the axis has `size` elements."""

    axis: int
    range: str
    lowest: int
    highest: int
    size: int


@dataclass(frozen=True)
class Unsplit:
    """A reduce that stock tinygrad splits into two kernels, and that a patch of the overlay leaves whole.

    `rule` is the reason. `gather`: along `axes` of its source an index picks one element. `rest` are the axes that
    stock would reduce together with these, and that now are a reduce of their own. Shapes: stock's first kernel would
    reduce `source` to `between`, its second kernel `between` to `result`. `detail` is a sentence about all of this."""

    rule: vocabulary.UnsplitRule
    axes: tuple[int, ...]
    rest: tuple[int, ...]
    source: tuple[int, ...]
    between: tuple[int, ...]
    result: tuple[int, ...]
    detail: str = ""


@dataclass(frozen=True)
class Node:
    """One UOp of the tensor graph as the rangeify pass saw it. A node's id is larger than the ids of its sources.

    `shape` is None for an op without a shape. `src` are node ids. Ranges are rendered as tinygrad renders them (`r4`,
    `rm1`, `(r4*2+r5)`), one for each axis; `ambient` are range names. `line` is `file:number` of the user's code. `arg`
    is the op's argument: the axes of a reduce, the argument of a movement op, a constant, a varg. `outside` are the
    `in_ranges` that leave the shape of its first source. `method` is the method of Tensor called at `line` that creates
    the node (`softmax`), if any. `unsplit` is why it is one reduce if stock tinygrad would have two. `function` is the
    index of the user's function that `line` is in; a gradient has the line and the function of its forward node."""

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
    function: int | None = None
    phase: vocabulary.Phase | None = None


@dataclass(frozen=True)
class Function:
    """A function of the user, as it was called: its qualified name (`Block.__call__`, `<module>`), its file, and the
    index of its caller among the functions of the Capture. Calls of one function by one caller are one Function."""

    name: str
    file: str
    caller: int | None


@dataclass(frozen=True)
class Range:
    """One RANGE of a schedule: its rendered name, its size (a string if symbolic), its axis type (LOOP, REDUCE or
    OUTER), and whether a VMAPIN or VMAPOUT created it."""

    name: str
    size: int | str
    axis_type: vocabulary.AxisType
    vmap: bool


@dataclass(frozen=True)
class VmapEntry:
    """One line of `vmap_map`: the ambient ranges that `node` depends on."""

    node: int
    ranges: tuple[str, ...]


@dataclass(frozen=True)
class Bufferize:
    """One BUFFERIZE that the pass created for `node`.

    `closed_ranges` are its dimensions, ambient ranges first; `size` is in elements, `bytes` in bytes. `reason` is a
    sentence, written from `decided`: which test of the cost function decided the `outcome`, with its numbers.
    `left_open` are ranges of its value, except OUTER ranges, that its store does not close. `outside` are ranges of a
    reader's index that leave the axis of the buffer."""

    node: int
    closed_ranges: tuple[str, ...]
    ambient: tuple[str, ...]
    size: int
    bytes: int
    addrspace: vocabulary.AddressSpace
    outcome: vocabulary.Outcome
    reason: str
    left_open: tuple[str, ...] = ()
    outside: tuple[Outside, ...] = ()
    decided: Reason | None = None

    @property
    def holds_memory(self) -> bool:
        """Whether it is kept as a buffer in GLOBAL memory."""
        return self.outcome == "kept" and self.addrspace == "GLOBAL"


@dataclass(frozen=True)
class Loop:
    """A loop of a kernel, a dimension of its threads, or a variable that advances with each launch (`kind`): its name
    in the source and its trip count."""

    name: str
    size: int
    kind: vocabulary.LoopKind


@dataclass(frozen=True)
class Access:
    """All loads, or all stores (`kind`), of one buffer in a kernel: facts for all steps of its loops and threads.

    Counts are in elements. `size` is the buffer's size. `lowest` and `highest` bound the elements that are accessed
    when the gate is true; a bound outside of the buffer is really reached. Both are None if undecided. `address`,
    `gate` and `source_line` (a line of the kernel's source, from 1; None if unknown) belong to the access that leaves
    the buffer or loses a loop, else to the first access.

    For stores: `lost` are the loops and threads whose steps store different values to the same place. `stores` counts
    stored elements, with repetitions, but without loops that no address uses. `elements` counts different elements,
    and `missing` is the first element of the buffer that is never stored. They are None if undecided."""

    buffer: str
    kind: vocabulary.AccessKind
    addrspace: vocabulary.AddressSpace
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
    """An accumulator in registers that is initialised again in each step of the `loops` that add to it, and read after
    them: it has only their last step. `source_line` initialises it (a line of the kernel's source, from 1; None if
    unknown)."""

    buffer: str
    loops: tuple[Loop, ...]
    source_line: int | None


@dataclass(frozen=True)
class Race:
    """Two accesses of one `element` of a buffer by two `threads` of a group (of the launch, for GLOBAL memory), without
    a barrier between; `kinds` are the kinds of both, in order. `repeated`: the second is in the next step of this loop.
    `source_line` has the second (a line of the kernel's source, from 1; None if unknown)."""

    buffer: str
    kinds: tuple[vocabulary.AccessKind, vocabulary.AccessKind]
    element: int
    threads: tuple[int, int]
    repeated: str | None
    source_line: int | None


@dataclass(frozen=True)
class WrongTime:
    """A kernel reads memory that existed before the schedule in another order than the graph asks for. `buffer` is its
    argument, `node` the BUFFER or PARAM. `early` are the numbers of kernels that write it before this kernel, which
    should read the old values. `late` are the numbers of kernels that write it after this kernel, which should read
    the new values."""

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
    access: vocabulary.ArgumentAccess


@dataclass(frozen=True)
class Measured:
    """How long the launches of a kernel took by the device's clock: how many were timed, and the median, the shortest
    and the longest time, in seconds. With several `runs` (a diff takes turns) `launches` counts one run, and `median`
    is the median of the runs' medians.

    `first` is the time of the first launch. `spread` is the distance between the quartiles; None if there are too few
    launches."""

    launches: int
    median: float
    least: float
    most: float
    runs: int = 1
    first: float | None = None
    spread: float | None = None


@dataclass(frozen=True)
class OptimizationTime:
    """The least time of a launch of a kernel, in seconds, of several in turns: with `all` its optimizations, `none`, or
    one alone (`UPCAST 0 4`: the optimization, its axis, its argument). None for a `reason`."""

    name: str
    seconds: float | None
    reason: str | None = None


@dataclass(frozen=True)
class Kernel:
    """One compute kernel as rendered for `target`.

    `local_bytes` is LOCAL (threadgroup, shared) memory. `threads` is global x local size, including the threads over
    which a CPU kernel splits its work. `executed_ops` counts the ops of the linear program: each op times the trip
    counts of the loops around it times the threads, over all `launches`; `bytes` counts its loads and stores in the
    same way. `redundancy` is executed ops over the ops that the tensor graph asks for (None if it asks for none).
    `launches` is how often the schedule runs it (an OUTER range runs one kernel many times). `key` is the hex
    `ast.key`. `outputs` are the nodes whose buffers it writes, `nodes` all nodes that it computes.

    For lint: `accesses` describe its memory (None if the capture does not have them), `fresh` is true if the schedule
    created the buffer that it writes, `open_loops` are loops without an end, `local_limit` is the LOCAL memory of the
    target for a group of threads, `resets` are accumulators that lose values, `races` accesses that nothing orders,
    `races_unknown` says why there may be others, `wrong_times` are reads in the wrong order. `overwrites` is a BUFFER
    or PARAM from before the schedule that it writes although nothing assigns to it.

    `failed` is the error of a kernel that tinygrad cannot make a program of: it has no name and no source, and its
    numbers are zero. `measured` has the times of all launches of its program (None if not timed).

    `title` says what the kernel computes (`matmul 64x64x256 + gelu`), from its `main` node: the largest reduce, else
    the last computation. The kernel has the `phase` and the function of that node. `lanes` is the width of its widest
    load or store of GLOBAL memory, in elements. `beam` is the median time of a launch, in seconds, after BEAM optimized
    the kernel (`show --beam`), None if it did not. `peak` is the most bytes that values have while a launch of it runs
    (`--memory`). `optimizations`: its times with others than its own (`show --optimizations`)."""

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
    races: tuple[Race, ...] = ()
    races_unknown: str | None = None
    failed: "SnippetError | None" = None
    measured: Measured | None = None
    wrong_times: tuple[WrongTime, ...] = ()
    overwrites: int | None = None
    title: str = ""
    main: int | None = None
    phase: vocabulary.Phase | None = None
    lanes: int | None = None
    beam: float | None = None
    peak: int | None = None
    optimizations: tuple[OptimizationTime, ...] = ()

    @property
    def is_undecided(self) -> bool:
        """Whether not all addresses are known, as far as lint must know them to judge it."""
        return self.races_unknown is not None or any(access.lowest is None for access in self.accesses or ())


@dataclass(frozen=True)
class Output:
    """One tensor that the snippet realized. `digest` is the hex sha256 of its bytes; `sample` has up to 1,024 elements,
    evenly spaced from the first, with NaN and infinities as `"nan"`, `"inf"`, `"-inf"`."""

    shape: tuple[int, ...]
    dtype: str
    digest: str
    sample: tuple[float | str, ...]


@dataclass(frozen=True)
class Schedule:
    """One schedule of the snippet: the graph, the decisions, the kernels. `copies` counts other items (copies between
    devices, views). `outputs` are read only on request, as by `diff`.

    `cached`: it is from tinygrad's schedule cache. The cache's key does not include the scheduler's switches, so a
    cached schedule may not obey them: `not_in_key` has the switches with another value then, as `{name: [then, now]}`.
    `buffer_op` is tinygrad's name for a BUFFERIZE: STAGE since 0.13.

    `bisect --decisions` decides for some nodes: `forced` nodes became realize points, `released` nodes did not although
    a rule asked for it."""

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

    `schedule` is the index of its schedule, `number` the number of its kernel there, `source_line` a line of the
    kernel's source (from 1). `advice` says what to try."""

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
    """The versions that a capture was made with. `tree` is the tinygrad that was asked for: a release, a folder, or a
    commit of a folder; "" is the installed tinygrad. `commit` is the commit of a checkout, as git describes it."""

    vmapdbg: str
    tinygrad: str
    python: str
    tree: str = ""
    commit: str | None = None


DIED = "ChildDied"  # the type of the error of a run whose process died


@dataclass(frozen=True)
class SnippetError:
    """The error that ended the snippet: the exception's type name, its message, the user's `file:line`.

    `crash` is where tinygrad raised it, None if the snippet did. The type is `EndlessRewrite` if tinygrad was stopped
    because it would not end."""

    type: str
    message: str
    line: str | None
    crash: Crash | None = None


@dataclass(frozen=True)
class MarkTime:
    """A phase that the user marks (`vmapdbg.mark`), or calls of a TinyJit: its wall time and the time in kernels, in
    seconds, summed over all `calls`, and how many launches of kernels it has."""

    name: str
    seconds: float
    calls: int
    launches: int
    kernels: float


@dataclass(frozen=True)
class LaunchTime:
    """A launch: its kernel, by a digest of its source (`digest_source`), and its time in seconds."""

    kernel: str
    seconds: float


@dataclass(frozen=True)
class Timing:
    """What the wall time of a program goes into, in seconds: `importing` (up to the import of tinygrad), `python`,
    `scheduling` (with what vmapdbg records), `compiling`, `launching` (also waiting) and `kernels`. `launches` are in
    their order."""

    seconds: float
    parts: dict[str, float]
    marks: tuple[MarkTime, ...]
    launches: tuple[LaunchTime, ...] = ()


@dataclass(frozen=True)
class Device:
    """What a device reaches, measured by small kernels: arithmetic ops a second, bytes of GLOBAL memory a second, and
    the seconds of a launch that does nothing. `threads` is how many threads run at the same time; None: many."""

    name: str
    ops: float
    bytes: float
    launch: float
    threads: int | None


@dataclass(frozen=True)
class Placement:
    """A value that a kernel or a copy writes: `node` of a schedule, its `line`, and its `bytes`. None if unknown."""

    schedule: int | None
    node: int | None
    line: str | None
    bytes: int


@dataclass(frozen=True)
class LaunchPlace:
    """A launch of the run, counted from 0, of a schedule, with the number of its kernel (None for a copy). A
    `schedule` of None: the launch is not known."""

    launch: int
    schedule: int | None
    kernel: int | None


@dataclass(frozen=True)
class LiveBuffer:
    """A buffer that has memory at the peak. `kind`: a kernel computes it, a launch copies it, it is data of Python, or
    no launch writes it (`empty`).

    `value` is what is written to it first. `name` says where the snippet's globals hold it at the end (`model.w`).
    `first` and `last` are the first and the last launch that use it, None without one. It has its memory from launch
    `since` until launch `until`. If it `is_planned`, it is a part of memory that tinygrad's planner shares among values
    of a schedule: `shares` are the others that have a byte of it at another time, at most four of `others`."""

    kind: vocabulary.BufferKind
    value: Placement
    device: str
    dtype: str
    name: str
    first: LaunchPlace | None
    last: LaunchPlace | None
    since: int
    until: int
    is_planned: bool = False
    shares: tuple[Placement, ...] = ()
    others: int = 0


@dataclass(frozen=True)
class PartPeak:
    """The most memory while a part of the run ran: equal schedules, of which `schedule` is the first, or the calls of
    the TinyJit `name` from number `call` on (0: runs its function, 1: captures, 2: replays). `times` counts them."""

    name: str
    line: str | None
    times: int
    bytes: int
    schedule: int | None = None
    call: int | None = None


@dataclass(frozen=True)
class MemoryAdvice:
    """A change that lowers the peak, predicted from the recorded lifetimes and not tried: `recompute` values for their
    later readers, which executes `ops` again, keep them in `half` precision, or `free` the Tensor `name` after `line`.

    `buffers` are concerned at the peak, with these `bytes` together. `peak` is the peak that results, in bytes."""

    kind: vocabulary.MemoryAdviceKind
    line: str | None
    name: str
    buffers: int
    bytes: int
    peak: int
    ops: int = 0


@dataclass(frozen=True)
class Memory:
    """What memory the run had, by tinygrad's counter on all devices together: `peak` in bytes, reached `at` a launch.
    `line` is the user's line that ran it; None for what the snippet left lazy.

    `timeline` has the most bytes for intervals of its `launches`, as (first launch, bytes). `live` are the largest
    buffers at the peak; `rest` counts the others, `rest_bytes` their bytes. `unused` is memory of the planner that no
    value uses then. The bytes of all of these are the peak."""

    peak: int
    at: LaunchPlace
    line: str | None
    launches: int
    timeline: tuple[tuple[int, int], ...]
    live: tuple[LiveBuffer, ...]
    rest: int
    rest_bytes: int
    unused: int
    parts: tuple[PartPeak, ...]
    advice: tuple[MemoryAdvice, ...]


@dataclass(frozen=True)
class Capture:
    """Everything that is known about one run of a snippet.

    `mode` is `overlay` (tinygrad 0.12.0 with the overlay and its patches) or `observe` (any tinygrad, nothing
    replaced). `missing` has a sentence for each part that could not be observed. `peak_bytes` is the most memory that
    tinygrad had allocated at a time, None if it was not measured (`--memory`, `bisect --by memory`). `account` compares
    what happened with what the capture has; None if it was not counted. `functions` are the user's functions that make
    nodes, a caller before what it calls. `timing` and `device` are None if the program was not timed. `memory` says
    what the peak is made of, None without `--memory`. `sources` has the text of each of the user's files that lines
    name, as it was after the run: no command reads a file because a saved capture names it."""

    schema: Literal[1]
    kind: Literal["capture"] = field(default="capture", kw_only=True)
    versions: Versions
    snippet: str
    target: str
    patches: dict[str, bool]
    error: SnippetError | None
    schedules: tuple[Schedule, ...]
    findings: tuple[Finding, ...]
    mode: vocabulary.Mode = "overlay"
    missing: tuple[str, ...] = ()
    peak_bytes: int | None = None
    account: Account | None = None
    functions: tuple[Function, ...] = ()
    timing: Timing | None = None
    device: Device | None = None
    memory: Memory | None = None
    sources: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def patches_off(self) -> str:
        """The names of the patches that are off."""
        return ", ".join(name for name, is_on in self.patches.items() if not is_on)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels of all schedules, in order."""
        return tuple(kernel for schedule in self.schedules for kernel in schedule.kernels)
