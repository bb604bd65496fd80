"""What `vmapdbg check` found out: one ScheduleCheck for each schedule. The data of its JSON, and of its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vmapdbg.model.crash import Crash
from vmapdbg.model.vocabulary import ComparisonStatus
from vmapdbg.values.tolerance import Tolerance

Rule = Literal[
    "repeated",
    "constant",
    "reversed",
    "rotated",
    "shifted",
    "swapped",
    "summed",
    "scaled",
    "offset",
    "slices",
    "all-but-last",
    "filled",
]

CheckedKind = Literal["output", "assigned", "input", "live", "unchosen"]

Filling = Literal["zero", "nan"]

Maker = Literal["scheduler", "lowering", "codegen", "compiler", "not-told"]


@dataclass(frozen=True)
class Pattern:
    """How a wrong array comes from the right one. Of the fields those of its `rule` are set:

    - `repeated`: along `axis` all `size` slices are the right one of number `first`.
    - `constant`: every element is one number: `filled` says whether it is zero or NaN; else it is that of the right
      element at the offset `first` of `size`, where there is such a one.
    - `reversed`: the slices along `axis` are in reverse.
    - `rotated`, `shifted`: each slice along `axis` is the right one `shift` further on, going around or not.
    - `swapped`: read in the order of two other axes, `axis` and `other_axis`, which have the same size or not
      (`same_size`).
    - `summed`: along `axis` each slice is the sum of all `size`.
    - `scaled`, `offset`: every element is `amount` times the right one, or `amount` more.
    - `slices`, `all-but-last`: the wrong elements are those in the slices `first` to `last` of `size` along `axis`;
      `filled` says whether they are zero or NaN.
    - `filled`: the wrong elements are somewhere, and all zero or NaN.
    """

    rule: Rule
    axis: int | None = None
    other_axis: int | None = None
    same_size: bool | None = None
    size: int | None = None
    shift: int | None = None
    first: int | None = None
    last: int | None = None
    amount: float | None = None
    filled: Filling | None = None


@dataclass(frozen=True)
class Comparison:
    """What came of comparing one array.

    `status` is `equal` (to the bit, or the same numbers), `close` (within the tolerance), `rounding` (beyond it, but no
    further than the computation's own rounding, measured in double precision) or `wrong`. `wrong` counts the elements
    beyond the tolerance of the `total`. `index`, `got` and `expected` are those of the first wrong one. `pattern` is a
    sentence about `pattern_data`, which a renderer fills in.
    """

    status: ComparisonStatus
    total: int
    wrong: int
    index: tuple[int, ...] | None
    got: float | int | str | None
    expected: float | int | str | None
    pattern: str | None
    tolerance: Tolerance
    pattern_data: Pattern | None = None


@dataclass(frozen=True)
class StaleValue:
    """A wrong value that is exactly what comes out where a buffer of the snippet is read at the wrong time: after the
    write to it (`is_late`), or before. `buffer` is the number of the assigned buffer, None where it has none, as one
    that is sharded."""

    buffer: int | None
    is_late: bool


@dataclass(frozen=True)
class OverwrittenInput:
    """What a replay by TinyJit reads, that nothing in the call assigns to and the replay wrote over: a wrong value is
    exactly what comes out with what it held afterwards. `number` is that of the input among those of the function, in
    tinygrad's order, None where it is none of them."""

    number: int | None


@dataclass(frozen=True, kw_only=True)
class OutputCheck:
    """One tensor that the snippet realized, or one of its buffers, compared with the reference.

    `shape` is that of the buffer.

    - `of` says what was compared: `output`; `assigned`, a buffer that the snippet assigns to; `input`, a buffer that
      changed without an assign; `live`, the buffer of a tensor that the graph does not have, which changed; `unchosen`,
      elements that an item assignment changed and its index does not choose. Buffers have their own numbers.
    - `is_written`: whether a kernel wrote to an assigned buffer, None if unknown.
    - `writer`, `writer_node`: the compute kernel that wrote to a buffer that changed, and the node that it should have
      written; None if unknown.
    - `stale`, `overwritten`: why an output is wrong, if it was read at the wrong time.
    - `oracle` is always `numpy`, `rows` always None: other oracles were removed.
    """

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


@dataclass(frozen=True)
class Misread:
    """A right buffer that a kernel reads at the wrong steps of its scope: the kernel's value is what comes out of that.

    `node` is the one whose buffer it is, `ranges` are its ambient ranges, which have `steps` steps together. At `wrong`
    of them another one's part was read; the first is `step`, and what it got is that of the step `read`.
    """

    node: int
    ranges: tuple[str, ...]
    steps: int
    wrong: int
    step: tuple[int, ...]
    read: tuple[int, ...]


@dataclass(frozen=True)
class StaleRead:
    """A kernel that read memory at a wrong time, which is proven: with what the memory held at another time of the
    schedule, numpy computes the right values from the kernel, and with what it held the wrong ones.

    `argument` is the number of the kernel's argument. With `is_late` the kernel ran after a write that it should have
    come before, else before one that it should have come after; `writer` is the number of the compute kernel of that
    write, `writer_node` the node whose buffer that kernel writes (None: not known)."""

    argument: int
    is_late: bool
    writer: int | None
    writer_node: int | None


@dataclass(frozen=True)
class KernelFault:
    """Who made a wrong buffer: its kernel as the scheduler made it was run by numpy, on what it really read, and where
    that is right its linear program.

    `made_by` is `scheduler` where the kernel as scheduled is wrong, too; `codegen` where that is right and the linear
    program wrong; `compiler` where the linear program is right: then the renderer, the compiler or the machine made the
    fault; `lowering` where the linear program could not be run, for a `reason`: one of these two. It is `not-told` for
    a `reason`. `is_same`: what is wrong, too, gives the same wrong values; `reason` says how the linear program is
    wrong where it gives none, and of `compiler` why the kernel as scheduled could not be run.
    `stale` are the arguments that it read at a wrong time, where that alone makes them wrong.
    """

    made_by: Maker
    reason: str | None = None
    is_same: bool | None = None
    stale: tuple[StaleRead, ...] = ()


@dataclass(frozen=True)
class BufferCheck:
    """One buffer between kernels, in the order of the schedule. `node` is the id of the node it holds, `kernel` the
    number of the compute kernel that wrote it (None for a copy). `shape` has the sizes of the node's ambient ranges
    first, then its own axes. `missing` are the ambient ranges that the buffer has no dimension for. `comparison` is
    None where the buffer could not be compared, for the `reason`. Of the first wrong buffer, `reads` are the nodes
    whose buffers its kernel reads, `misread` is the one of them that is right and read wrongly, and `fault` says who
    made the fault (None for the other buffers)."""

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
    def stale(self) -> tuple[StaleRead, ...]:
        """What its kernel read at a wrong time, which makes it wrong."""
        return () if self.fault is None else self.fault.stale


@dataclass(frozen=True)
class LostWrite:
    """A write that the snippet asked for at `line` and that no schedule has: `shape` is that of what is written, `size`
    how many elements of `dtype` the buffer has."""

    line: str | None
    shape: tuple[int, ...]
    size: int
    dtype: str


@dataclass(frozen=True)
class CutGradient:
    """A gradient that is asked for at `line` and that is zero although the value depends on the tensor, of this `shape`
    and `dtype`: tinygrad 0.12 does not follow it through an ASSIGN."""

    line: str | None
    shape: tuple[str, ...]
    dtype: str


@dataclass(frozen=True)
class ExpectedOutput:
    """What an output of a schedule that failed should have been, by numpy: `first` are its first elements."""

    number: int
    shape: tuple[int, ...]
    dtype: str
    first: tuple[float | int | str, ...]


@dataclass(frozen=True, kw_only=True)
class ScheduleCheck:
    """One schedule. `unchecked` says why nothing, or not everything, was compared. `buffers` is filled where an
    output is wrong: the buffers up to the first wrong one. `failed` is the error of a schedule that raised;
    `stock_runs` is always None, since the oracle `stock` was removed. `evaluations` is how many graphs the reference
    ran. `failed_kernel` is the number of the compute kernel that raised while it was compiled
    or ran, `failed_node` the node of its buffer. `replay` is the number of a replay by TinyJit, from 1: its kernels
    were run once more, with other inputs. Of a schedule that failed, `crash` is where tinygrad did, and `expected` what
    its outputs should have been. `lost` are writes to buffers that it reads, which no schedule has and none can have
    any more; `cut` are gradients that were asked for before it, after the schedule before. `is_sharded`: values of it
    are on several devices at once.
    """

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
    is_sharded: bool = False

    @property
    def wrong(self) -> tuple[OutputCheck, ...]:
        return tuple(output for output in self.outputs if output.comparison.status == "wrong")

    @property
    def first_wrong_buffer(self) -> BufferCheck | None:
        return next((b for b in self.buffers if b.comparison is not None and b.comparison.status == "wrong"), None)


@dataclass(frozen=True)
class CheckReport:
    """All schedules of one run of a snippet. `left` counts those that were not compared because the comparison was
    stopped."""

    schedules: tuple[ScheduleCheck, ...]
    left: int = 0
