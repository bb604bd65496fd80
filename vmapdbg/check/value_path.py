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
    """`wrong` elements of the `total` are wrong. The first of them is at `index`, where `got` stands in place of
    `expected`."""

    index: tuple[int, ...]
    got: float | int | str
    expected: float | int | str
    wrong: int
    total: int


@dataclass(frozen=True)
class PassValue:
    """What an output is after one pass: the rewrite of the whole graph that tinygrad calls `name`, asked for at `place`
    (`file:line`). Two more come at the end, without a place: of the `kind` `order` what the kernels give as the
    scheduler made them, run by numpy one after the other in their order, on one memory; and of the kind `run` what came
    of running them. Where it is wrong, `difference` says how; where that is not known, `reason` says why."""

    name: str
    place: str | None
    status: PassStatus
    difference: Difference | None = None
    reason: str | None = None
    kind: PassKind = "rewrite"


@dataclass(frozen=True)
class WrongRead:
    """A kernel that reads memory in another state than the graph of kernels says: the launch of number `reader`, in
    order from 0, reads what the launch `writer` left there; it should read what `expected` left there, None: what was
    there before all of them. `reads` says in what, and `size` how many elements of `dtype` that has. `reader_kernel`
    and `writer_kernel` are the numbers of the compute kernels, None for a copy; `node` is the id of the reader's node
    and `line` the user's, `writer_node` and `writer_line` those of the writer."""

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

    `kind` is `rule` for one rewrite: the rule at `rule` (`file:line`) made `after` of `before`. It is `node` where
    several rewrites made `after` of `before`, none of which can be told to be the one; `write` for a rewrite that makes
    something else of a write, `overwrites` for one that takes memory of the snippet for a buffer of its own; and
    `ranges` for a node of the tensor graph that has another value by the ranges that it was given: `after` is what
    became of it, or its buffer.
    `node` is its id in the Capture, `line` the user's. `difference` has the value of `before` as what is expected; its
    index is that of the steps of the ranges `ranges`, and of axes behind them. `extra` are those of them that only
    `after` depends on. `tried` is how many steps of the pass were looked at, `skipped` how many of these could not be
    evaluated.
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
    """One output of a schedule: `shape` and `dtype` of the value, the id of its `node` and the user's `line`. `passes`
    are in order. `rewrite` is what makes it wrong in the first pass after which it is wrong, `read` where that is the
    order of the kernels; where that is not known, `reason` says why. `of` is `output`; or `buffer` for one of the
    snippet that is wrong in the end: it should hold what is assigned to it, or what it held before. These have numbers
    of their own."""

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
    """The schedules that were followed. `stopped`: it was stopped before it was through with all of them."""

    schedules: tuple[SchedulePath, ...]
    stopped: bool = False

    @property
    def is_wrong(self) -> bool:
        """Whether an output is wrong after any pass."""
        return any(one.first_wrong is not None for path in self.schedules for one in path.outputs)
