"""What `vmapdbg check` and `why --value` found out: the data of their JSON and their text."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from vmapdbg.model.account import UNKNOWN, Account, Counted, Left, add_accounts, settle
from vmapdbg.model.capture import Capture, Race
from vmapdbg.model.crash import Crash
from vmapdbg.model.vocabulary import ComparisonStatus
from vmapdbg.values.tolerance import Tolerance

PatternRule = Literal[
    "repeated", "constant", "reversed", "rotated", "shifted", "swapped", "summed", "slices", "all-but-last", "filled"
]
CheckedKind = Literal["output", "assigned", "input", "live", "unchosen", "pending", "other"]
OrderKind = Literal["stale reader", "early reader"]
Filling = Literal["zero", "nan"]
Maker = Literal["scheduler", "lowering", "codegen", "compiler", "launch", "not-told"]
NumberEditKind = Literal["float", "double", "subtract-mean"]
NumberFaultKind = Literal["not-finite", "lost-digits", "unwritten"]
PassStatus = Literal["right", "wrong", "unknown"]
PassKind = Literal["rewrite", "order", "codegen", "run"]
FollowedKind = Literal["output", "buffer"]
RewriteKind = Literal["rule", "node", "ranges", "write", "overwrites"]
_ELSEWHERE = {"calls", "schedules", "launches"}  # counts of what is compared as outputs, buffers and replays


@dataclass(frozen=True)
class Pattern:
    """How a wrong array follows from the right array. Each `rule` sets its own fields:

    - `repeated`: along `axis` all `size` slices equal the right slice number `first`.
    - `constant`: every element is the same number: zero or NaN (`filled`), or the right element at the offset `first`
      of `size`, if there is such an element.
    - `reversed`: the slices along `axis` are in reverse order.
    - `rotated`, `shifted`: each slice along `axis` is the right slice `shift` further on, going around or not.
    - `swapped`: the axes `axis` and `other_axis` are exchanged; `same_size` says whether their sizes are equal.
    - `summed`: along `axis` each slice is the sum of all `size`.
    - `slices`, `all-but-last`: the wrong elements are those in the slices `first` to `last` of `size` along `axis`;
      `filled` says whether they are zero or NaN.
    - `filled`: the wrong elements are somewhere, and all zero or NaN.

    `amount` is always None: the rules that had it were removed."""

    rule: PatternRule
    axis: int | None = None
    other_axis: int | None = None
    same_size: bool | None = None
    size: int | None = None
    shift: int | None = None
    first: int | None = None
    last: int | None = None
    amount: None = None
    filled: Filling | None = None


@dataclass(frozen=True)
class Comparison:
    """The result of comparing one array.

    `status` is `equal` (to the bit, or the same numbers), `close` (within the tolerance), `rounding` (beyond it, but no
    further than the computation's own rounding, measured in double precision) or `wrong`. `wrong` of the `total`
    elements differ by more than the tolerance. `index`, `got` and `expected` belong to the first of them. A renderer
    sets `pattern`, the sentence about `pattern_data`."""

    status: ComparisonStatus
    total: int
    wrong: int
    index: tuple[int, ...] | None
    got: float | int | str | None
    expected: float | int | str | None
    pattern: str | None
    tolerance: Tolerance
    pattern_data: Pattern | None = None

    @property
    def difference(self) -> "Difference | None":
        """How a wrong array is wrong."""
        if self.status != "wrong" or self.index is None:
            return None
        assert self.got is not None
        assert self.expected is not None
        return Difference(self.index, self.got, self.expected, self.wrong, self.total)


@dataclass(frozen=True)
class StaleValue:
    """A wrong value that is exactly the result of reading a buffer of the snippet at the wrong time: after the write to
    it (`is_late`), or before. `buffer` is the number of the assigned buffer, None for a sharded buffer.

    `kind`: `stale reader`, a tensor that the snippet made before a write, and that is computed after it; `early
    reader`, which is computed before an earlier write of the program. `lines` are the lines of the writes; they are
    draws of random numbers if the buffer is the counter of these (`is_draw`)."""

    buffer: int | None
    is_late: bool
    kind: OrderKind | None = None
    lines: tuple[str, ...] = ()
    is_draw: bool = False


@dataclass(frozen=True)
class OverwrittenInput:
    """A buffer that a replay by TinyJit reads and overwrites without an assign: its later contents give exactly the
    wrong value. `number` counts the inputs of the function in tinygrad's order, None if the buffer is not an input."""

    number: int | None


@dataclass(frozen=True)
class Misplaced:
    """A wrong output whose right values are in the buffer of `node`, which kernel number `kernel` wrote; its tensor has
    another buffer, of `shown`, by kernel number `shown_kernel` (None: a copy). The tensor map is wrong."""

    node: int
    kernel: int | None
    shown: int
    shown_kernel: int | None


@dataclass(frozen=True)
class WrongVariable:
    """A variable that gives the wrong values with the value `got`, and the right ones with `expected`."""

    name: str
    got: int
    expected: int


@dataclass(frozen=True)
class EarlierArguments:
    """Arguments of an earlier call of TinyJit's function that explain the value of a replay: `inputs` by their numbers,
    and `variables`. `replay` counts the calls, 0 is the captured one. `is_all`: all that the calls differ in."""

    replay: int
    inputs: tuple[int, ...]
    variables: tuple[WrongVariable, ...]
    is_all: bool


@dataclass(frozen=True, kw_only=True)
class OutputCheck:
    """One tensor that the snippet realized, or one of its buffers, compared with the reference.

    `shape` is that of the buffer.

    - `of` says what was compared: `output`; `assigned`, a buffer that the snippet assigns to; `input`, a buffer that
      changed without an assign; `live`, the buffer of a tensor that the graph does not have, which changed; `unchosen`,
      elements that an item assignment changed and its index does not choose; `pending`, a tensor with a write that is
      not in the graph, and that was there no more after the schedule; `other`, the buffer of a tensor that is no
      output and gets a value, which depends on what the snippet made before a write. Buffers have their own numbers.
    - `is_written`: whether a kernel wrote to an assigned buffer, None if unknown.
    - `writer`, `writer_node`: the compute kernel that wrote to a buffer that changed, and the node that it should have
      written; None if unknown.
    - `stale`, `overwritten`: why an output is wrong, if it was read at the wrong time.
    - `exchanged`: the numbers of two inputs of TinyJit's function: with them exchanged, numpy gives a replay's values.
    - `replayed`: arguments of an earlier call with which numpy gives a replay's values.
    - `misplaced`: its values are in the buffer of another tensor.
    - `line`: the line of a pending write.
    - `oracle` is always `numpy`, `rows` always None: other oracles were removed."""

    number: int
    shape: tuple[int, ...]
    dtype: str
    oracle: str = "numpy"
    comparison: Comparison
    rows: str | None = None
    of: CheckedKind = "output"
    is_written: bool | None = None
    stale: StaleValue | None = None
    writer: int | None = None
    writer_node: int | None = None
    overwritten: tuple[OverwrittenInput, ...] = ()
    line: str | None = None
    exchanged: tuple[int, int] | None = None
    replayed: EarlierArguments | None = None
    misplaced: Misplaced | None = None


@dataclass(frozen=True)
class Misread:
    """A right buffer that a kernel reads at the wrong steps of its scope, which gives exactly the kernel's value.

    The buffer holds `node`; `ranges` are its ambient ranges, with `steps` steps together. `wrong` of the steps read the
    part of another step: the first is `step`, which gets the part of `read`."""

    node: int
    ranges: tuple[str, ...]
    steps: int
    wrong: int
    step: tuple[int, ...]
    read: tuple[int, ...]


@dataclass(frozen=True)
class StaleRead:
    """A kernel that read memory at a wrong time. The proof: by numpy, the kernel gives the wrong values with what the
    memory held, and the right values with what it held at another time of the schedule.

    `argument` is the number of the kernel's argument. With `is_late` the kernel ran after a write and should run
    before it, else the other way round. `writer` is the number of the compute kernel of that write, `writer_node` the
    node that it writes; None if unknown."""

    argument: int
    is_late: bool
    writer: int | None
    writer_node: int | None


@dataclass(frozen=True)
class UnwrittenElements:
    """So many elements of a kernel's argument that nothing has written: the kernel reads them, and they change what it
    computes. Argument 0 is its result: the kernel itself does not write them."""

    argument: int
    elements: int


@dataclass(frozen=True)
class WrongLaunch:
    """How a kernel ran otherwise than its schedule says, if numpy gives the right values with what the schedule says.

    - `arguments`: the numbers of arguments that got other buffers; if only the values show it, two that were exchanged.
    - `variable`: a variable with another value. Only the values show it.
    - Without both: the kernels ran in another order."""

    arguments: tuple[int, ...] = ()
    variable: WrongVariable | None = None


@dataclass(frozen=True)
class KernelFault:
    """Who made a wrong buffer. The kernel as scheduled is run by numpy on what it really read; if that is right, its
    linear program is run, too.

    - `made_by`: `scheduler`, the kernel as scheduled is wrong; `codegen`, only the linear program is wrong; `compiler`,
      both are right, so the renderer, the compiler or the machine made the fault; `lowering`, one of the latter two,
      because the linear program could not be run; `launch`, it did not run as its schedule says; `not-told`, unknown.
    - `is_same`: the kernel or program gives the same wrong values.
    - `reason`: why `made_by` is unknown; how the linear program is wrong if it gives no values; or, for `compiler`, why
      the kernel as scheduled could not be run.
    - `stale`: the arguments that it read at a wrong time, if that alone explains the fault.
    - `is_promoted`: C's integer promotion alone explains the fault: C computes integers smaller than an int as int.
    - `unwritten`: elements that nothing has written, in its result, or used by it.
    - `launch`: how it was launched, if the launch made the fault."""

    made_by: Maker
    reason: str | None = None
    is_same: bool | None = None
    stale: tuple[StaleRead, ...] = ()
    is_promoted: bool = False
    unwritten: tuple[UnwrittenElements, ...] = ()
    launch: WrongLaunch | None = None


@dataclass(frozen=True)
class BufferCheck:
    """One buffer between kernels. It holds `node`, and the compute kernel number `kernel` wrote it (None for a copy).

    `shape` has the sizes of the node's ambient ranges first, then its own axes. `missing` are the ambient ranges that
    have no dimension in the buffer. `comparison` is None if the buffer could not be compared; `reason` says why. For
    the first wrong buffer only: `reads` are the nodes whose buffers its kernel reads, `misread` is a right buffer that
    it reads wrongly, and `fault` says who made the fault."""

    node: int
    kernel: int | None
    shape: tuple[int, ...]
    dtype: str
    missing: tuple[str, ...]
    comparison: Comparison | None
    reason: str | None
    reads: tuple[int, ...] = ()
    misread: Misread | None = None
    fault: KernelFault | None = None

    @property
    def is_wrong(self) -> bool:
        return self.comparison is not None and self.comparison.status == "wrong"

    @property
    def stale(self) -> tuple[StaleRead, ...]:
        """The arguments that its kernel read at a wrong time."""
        return () if self.fault is None else self.fault.stale


@dataclass(frozen=True)
class LostWrite:
    """A write that the snippet asked for at `line` and that no schedule has. `shape` is the shape of the written value;
    the buffer has `size` elements of `dtype`."""

    line: str | None
    shape: tuple[int, ...]
    size: int
    dtype: str


@dataclass(frozen=True)
class CutGradient:
    """A gradient, asked for at `line`, that is zero although the value depends on the tensor of this `shape` and
    `dtype`: gradients of tinygrad 0.12 end at an ASSIGN."""

    line: str | None
    shape: tuple[str, ...]
    dtype: str


@dataclass(frozen=True)
class WrongGradient:
    """A gradient of tinygrad that differs from finite differences, for target `number` of a call, made at `line`.

    `got` and `expected`: the derivative of the loss along a random direction. The gradient rule of one of the `ops` (of
    the reference) makes it wrong, for the node of the method of Tensor `method` at `op_line`; no ops: unknown."""

    number: int
    shape: tuple[int, ...]
    dtype: str
    line: str | None
    got: float
    expected: float
    ops: tuple[str, ...] = ()
    op_line: str | None = None
    method: str | None = None


@dataclass(frozen=True)
class GradientCheck:
    """A call of autograd at `line` for `asked` targets, of which `compared` were compared with finite differences."""

    line: str | None
    asked: int
    compared: int = 0
    wrong: tuple[WrongGradient, ...] = ()
    left: tuple[Left, ...] = ()


@dataclass(frozen=True)
class UnwrittenRead:
    """A buffer of `size` elements of `dtype` that a schedule reads and that no kernel wrote: TinyJit captured the
    schedule at `line`, which makes it, and its replays write to other memory."""

    line: str | None
    size: int
    dtype: str


@dataclass(frozen=True)
class ExpectedOutput:
    """What an output of a failed schedule should hold, by numpy: `first` are its first elements."""

    number: int
    shape: tuple[int, ...]
    dtype: str
    first: tuple[float | int | str, ...]


@dataclass(frozen=True)
class NumberEdit:
    """An edit after which the worst output has so many `digits`: all that an op depends on in `float`, or in `double`;
    or `subtract-mean`: over some `axes`, of the tensor that `method` makes at the user's `line`. For a sum in a narrow
    dtype it has at least so many, by the bound of the roundings of a sum in float."""

    kind: NumberEditKind
    digits: float
    line: str | None = None
    method: str | None = None
    axes: tuple[int, ...] = ()


@dataclass(frozen=True)
class NumberFault:
    """What makes numbers go wrong although tinygrad computes what the program asks for: an op, or memory.

    - `kind`: `not-finite`, the first op in the order of the graph that makes NaN or infinity of finite numbers (or NaN
      of infinities); `lost-digits`, the first op whose operands are exact and whose result is not. The proof: without
      it `outputs` of the schedule's outputs and buffers have less NaN and infinity, or have their digits. `unwritten`,
      memory that nothing has written: the `outputs` have other values if something else is there.
    - `op`: the op of the reference ("reduce add": a sum of `terms` numbers), None if memory that the schedule reads has
      NaN or infinity already. `method` is the method of Tensor that is called at the user's `line`.
    - `faulty` of the `total` elements of its value are so (of lost digits: the worst). The first, at `index`, is `got`,
      computed of `operands`; for lost digits it is `expected` in double precision.
    - `digits`: how many digits the worst output still has, as a share of its largest element.
    - `edits` of the program that numpy has tried, and that leave outputs their digits.
    - `reason`: why no op is known."""

    kind: NumberFaultKind
    outputs: int
    op: str | None = None
    dtype: str | None = None
    line: str | None = None
    method: str | None = None
    index: tuple[int, ...] = ()
    got: float | int | str | None = None
    expected: float | int | str | None = None
    operands: tuple[float | int | str, ...] = ()
    terms: int = 0
    faulty: int = 0
    total: int = 0
    digits: float = 0
    edits: tuple[NumberEdit, ...] = ()
    reason: str | None = None

    @property
    def is_finding(self) -> bool:
        """Whether the schedule makes the numbers go wrong. NaN may be in what it reads, or be wanted."""
        return self.op is not None or self.kind == "lost-digits"

    @property
    def origin(self) -> tuple[str | None, ...]:
        """What is the same in the next step of a training."""
        return self.kind, self.op, self.line, self.method


@dataclass(frozen=True)
class KernelRace:
    """A race in a launch of compute kernel number `kernel`, called `name`, which writes the buffer of `node`: certain
    with what the kernel loaded and the variables that it had."""

    name: str
    kernel: int | None
    node: int
    race: Race

    @property
    def origin(self) -> tuple[object, ...]:
        """What is the same in the next step of a training."""
        return self.name, self.race.buffer, self.race.kinds


@dataclass(frozen=True, kw_only=True)
class ScheduleCheck:
    """One schedule.

    - `asked` counts what there was to compare; `left` says why something was not compared, `unchecked` as sentences.
    - `buffers`: if an output is wrong, the buffers between the kernels up to the first wrong buffer.
    - `failed`: the error of a schedule that raised; `failed_kernel` and `failed_node` are the number of the compute
      kernel that raised while it was compiled or ran, and the node that it writes; `crash` is the place in tinygrad;
      `expected` is what the outputs should hold.
      `stock_runs`: whether it runs without patches, None if it was not tried.
    - `evaluations`: how many graphs the reference computed.
    - `replay`: the number of a replay by TinyJit, from 1: the kernels ran again with other inputs. 0: the captured call
      itself, which runs as a replay from 0.13 on.
    - `lost`: writes to buffers that it reads, which no schedule has. `cut`: gradients that were asked for before it.
    - `gradients`: under `--gradients`, the calls of autograd since the schedule before.
    - `unwritten`: buffers that it reads and that no kernel wrote.
    - `is_sharded`: its values are on several devices at once.
    - `numbers`: what makes its values NaN or infinity, unless only constants do, and what loses their digits.
    - `races`: of kernels whose addresses are loaded or have variables."""

    schedule: int
    line: str | None
    outputs: tuple[OutputCheck, ...]
    buffers: tuple[BufferCheck, ...]
    unchecked: tuple[str, ...]
    failed: str | None
    stock_runs: bool | None = None
    evaluations: int
    failed_kernel: int | None = None
    failed_node: int | None = None
    replay: int | None = None
    crash: Crash | None = None
    expected: tuple[ExpectedOutput, ...] = ()
    lost: tuple[LostWrite, ...] = ()
    cut: tuple[CutGradient, ...] = ()
    gradients: tuple[GradientCheck, ...] = ()
    unwritten: tuple[UnwrittenRead, ...] = ()
    is_sharded: bool = False
    numbers: tuple[NumberFault, ...] = ()
    races: tuple[KernelRace, ...] = ()
    asked: dict[Counted, int] = field(default_factory=dict[str, int])
    left: tuple[Left, ...] = ()

    @property
    def wrong(self) -> tuple[OutputCheck, ...]:
        return tuple(output for output in self.outputs if output.comparison.status == "wrong")

    @property
    def account(self) -> Account:
        """What was compared of what there was to compare."""
        kinds = Counter(output.of for output in self.outputs)
        compared = {"outputs": kinds["output"], "buffers": kinds["assigned"]}
        if self.replay is not None:
            compared = {"replays": int(bool(self.outputs))}
        asked = self.asked | {"gradients": sum(one.asked for one in self.gradients)}
        compared["gradients"] = sum(one.compared for one in self.gradients)
        left = [*self.left, *(reason for one in self.gradients for reason in one.left)]
        return settle(asked, compared, left, UNKNOWN if self.failed is None else "the schedule failed")

    @property
    def first_wrong_buffer(self) -> BufferCheck | None:
        return next((buffer for buffer in self.buffers if buffer.is_wrong), None)


@dataclass(frozen=True)
class CheckReport:
    """All schedules of one run of a snippet. `left` schedules were not compared because the comparison was stopped."""

    schedules: tuple[ScheduleCheck, ...]
    left: int = 0

    def settle(self, capture: Capture) -> Account:
        """Returns what was compared of what happened in the run."""
        rest = UNKNOWN
        if self.left:
            rest = "the comparison was stopped"
        elif capture.error is not None:
            rest = "the program did not end well"
        return settle_checks(capture.account or Account(), (check.account for check in self.schedules), rest)


def settle_checks(counted: Account, checks: Iterable[Account], rest: str) -> Account:
    """Returns what was compared (`checks`) of what happened. For what has no other reason, `rest` is the reason."""
    compared = add_accounts(checks)
    seen = {what: count for what, count in counted.seen.items() if what not in _ELSEWHERE}
    return settle(seen, compared.compared, (*compared.left, *counted.left), rest)


# *** the value of an output after each pass of the scheduler: `why --value`


@dataclass(frozen=True)
class Difference:
    """`wrong` of the `total` elements are wrong. The first is at `index`: it is `got` and should be `expected`."""

    index: tuple[int, ...]
    got: float | int | str
    expected: float | int | str
    wrong: int
    total: int


@dataclass(frozen=True)
class PassValue:
    """An output after one pass: the rewrite of the whole graph that tinygrad calls `name`, called at `place`
    (`file:line`). Two more rows come at the end, without a place: the kind `order` has the result of the kernels as the
    scheduler made them, run by numpy in their order on one memory; the kind `run` has the real result. `difference`
    says how a value is wrong, `reason` why it is unknown."""

    name: str
    place: str | None
    status: PassStatus
    difference: Difference | None = None
    reason: str | None = None
    kind: PassKind = "rewrite"


@dataclass(frozen=True)
class WrongRewrite:
    """The first step of a pass that changes a value.

    - `kind`: `rule`, the rule at `rule` (`file:line`) replaced `before` by `after`; `node`, several rewrites did, and
      the guilty rewrite is unknown; `write`, a rewrite replaced a write by something else; `overwrites`, a rewrite took
      memory of the snippet for another buffer; `ranges`, a node of the tensor graph has another value at its ranges,
      and `after` is its replacement or its buffer.
    - `node`, `line`: its id in the Capture, and the user's line.
    - `difference`: `before` is what is expected. The index has the steps of `ranges`, then further axes. `extra` are
      the ranges that only `after` depends on.
    - `tried`, `skipped`: how many steps of the pass were evaluated, and how many could not be."""

    kind: RewriteKind
    before: str
    after: str
    rule: str | None
    difference: Difference
    ranges: tuple[str, ...]
    node: int | None
    line: str | None
    tried: int
    skipped: int
    extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class OutputPath:
    """One output of a schedule after each of its `passes`.

    In the first wrong pass, `rewrite` makes it wrong; `reason` says why it is unknown. `of` is `output`, or `buffer`
    for a buffer of the snippet that is wrong after the last kernel: it should hold what is assigned to it, or what it
    held before. Buffers have their own numbers. If code generation makes it wrong, `optimizations` have the value of
    the kernel without optimizations, and with each of them alone."""

    number: int
    shape: tuple[int, ...]
    dtype: str
    passes: tuple[PassValue, ...]
    node: int | None = None
    line: str | None = None
    rewrite: WrongRewrite | None = None
    reason: str | None = None
    of: FollowedKind = "output"
    optimizations: tuple[PassValue, ...] = ()

    @property
    def first_wrong(self) -> PassValue | None:
        return next((one for one in self.passes if one.status == "wrong"), None)


@dataclass(frozen=True)
class SchedulePath:
    """One schedule. `reason` says why its outputs could not be followed; `asked` is how many there are."""

    schedule: int
    line: str | None
    outputs: tuple[OutputPath, ...] = ()
    reason: str | None = None
    asked: int = 0

    @property
    def account(self) -> Account:
        """What was followed of what the snippet asked for."""
        left = [Left("outputs", self.asked, self.reason)] if self.reason is not None else []
        for output in self.outputs:
            if not output.passes:
                left.append(Left("outputs", 1, output.reason or UNKNOWN))
            left += [Left("passes", 1, one.reason or UNKNOWN) for one in output.passes if one.status == "unknown"]
        followed = sum(output.of == "output" and bool(output.passes) for output in self.outputs)
        return settle({"outputs": self.asked}, {"outputs": followed}, left)


@dataclass(frozen=True)
class ValueReport:
    """The schedules that were followed. `stopped`: it was stopped before the last of them."""

    schedules: tuple[SchedulePath, ...]
    stopped: bool = False

    def settle(self, counted: Account | None, is_part: bool) -> Account:
        """Returns what was followed of the outputs that the run has (`counted`), or that a part of it was asked for."""
        total = add_accounts(path.account for path in self.schedules)
        if is_part or counted is None:
            return total
        names = ("outputs", "replays", "other schedules")
        seen = {what: counted.seen[what] for what in names if what in counted.seen}
        replays = Left("replays", seen.get("replays", 0), "no pass runs in a replay")
        rest = "it was stopped" if self.stopped else UNKNOWN
        return settle(seen, total.compared, (*total.left, *counted.left, replays), rest)

    @property
    def is_wrong(self) -> bool:
        """Whether an output is wrong after any pass."""
        return any(one.first_wrong is not None for path in self.schedules for one in path.outputs)
