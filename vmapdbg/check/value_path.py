"""How the value of an output goes through the passes of tinygrad's scheduler: the data of `vmapdbg why --value`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PassStatus = Literal["right", "wrong", "unknown"]
PassKind = Literal["rewrite", "order", "run"]
FollowedKind = Literal["output", "buffer"]
RewriteKind = Literal["rule", "node", "ranges", "write", "overwrites"]


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
class WrongRead:
    """A kernel that reads memory in the wrong state: launch number `reader`, from 0, reads what launch `writer` left
    there. It should read what launch `expected` left there; None: the contents before all launches.

    `reads` is the kind of memory, with `size` elements of `dtype`. `reader_kernel` and `writer_kernel` are the numbers
    of the compute kernels, None for a copy. `node` and `line` belong to the reader, `writer_node` and `writer_line` to
    the writer."""

    reader: int
    writer: int
    expected: int | None
    reads: str
    size: int
    dtype: str
    reader_kernel: int | None = None
    writer_kernel: int | None = None
    node: int | None = None
    line: str | None = None
    writer_node: int | None = None
    writer_line: str | None = None


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
    - `tried`, `skipped`: how many steps of the pass were evaluated, and how many could not be.
    """

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

    In the first wrong pass, `rewrite` makes it wrong; if the order of the kernels is wrong, `read` does; `reason` says
    why neither is known. `of` is `output`, or `buffer` for a buffer of the snippet that is wrong after the last kernel:
    it should hold what is assigned to it, or what it held before. Buffers have their own numbers."""

    number: int
    shape: tuple[int, ...]
    dtype: str
    passes: tuple[PassValue, ...]
    node: int | None = None
    line: str | None = None
    rewrite: WrongRewrite | None = None
    read: WrongRead | None = None
    reason: str | None = None
    of: FollowedKind = "output"

    @property
    def first_wrong(self) -> PassValue | None:
        return next((one for one in self.passes if one.status == "wrong"), None)


@dataclass(frozen=True)
class SchedulePath:
    """One schedule. `reason` says why its outputs could not be followed."""

    schedule: int
    line: str | None
    outputs: tuple[OutputPath, ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class ValueReport:
    """The schedules that were followed. `stopped`: it was stopped before the last of them."""

    schedules: tuple[SchedulePath, ...]
    stopped: bool = False

    @property
    def is_wrong(self) -> bool:
        """Whether an output is wrong after any pass."""
        return any(one.first_wrong is not None for path in self.schedules for one in path.outputs)
