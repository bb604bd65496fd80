"""What observing stock tinygrad gives: plain records with UOps in them, no sentences."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vmapdbg.model.capture import Output

UOp = Any
OVERLAY = "overlay"
"""The first part of the file of a decision of our pass."""


class Origin(NamedTuple):
    """Where a UOp comes from: `file:number` of the user's code, and the method of Tensor that is called there, None
    where it is none."""

    line: str
    method: str | None


@dataclass(frozen=True)
class Condition:
    """A test that a decision stood under: its line and text in tinygrad's source, and whether it held.

    `values` has its parts (names, attributes, subscripts) with what they were when the test was evaluated; a part that
    was not evaluated is absent. `holds` is None where the outcome is a value whose truth would have to be computed.
    """

    line: int
    text: str
    holds: bool | None
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """A statement of tinygrad's source that decided something: `file` is relative to tinygrad's folder.

    `conditions` are in the order of the source, those of a rule that called the function first. `operands` are the
    UOps that the function was called with.
    """

    file: str
    line: int
    function: str
    text: str
    conditions: tuple[Condition, ...]
    operands: dict[str, UOp]

    @property
    def place(self) -> str:
        """`indexing.py:278`, or `overlay/indexing.py:147` for a decision of our pass."""
        folder = f"{OVERLAY}/" if self.file.startswith(OVERLAY) else ""
        return f"{folder}{os.path.basename(self.file)}:{self.line}"

    def find_value(self, text: str) -> Any:
        """Returns the value of a part of its conditions, by the part's text; None where there is none."""
        return next((c.values[text] for c in reversed(self.conditions) if text in c.values), None)


@dataclass(frozen=True)
class RealizeDecision:
    """A node was put into the realize map: with `axes`, or all of its axes (None)."""

    node: UOp
    axes: tuple[int, ...] | None
    decision: Decision


@dataclass(frozen=True)
class Verdict:
    """What one rule about a buffer answered.

    `outcome` is "kept" (the rule looked at a reader and refused), "removed", "narrowed" (it stays, with fewer axes or
    as another kind of memory) or "stored". `reader` is the INDEX that was looked at, None where the rule takes none.
    """

    outcome: str
    stage: UOp
    reader: UOp | None
    decision: Decision | None = None
    # a rule of the overlay's own, with its numbers
    rule: str = ""
    numbers: dict[str, int | float | str] = field(default_factory=dict)


@dataclass
class ObservedBuffer:
    """One buffer of a node that the pass made (BUFFERIZE or STAGE), and what became of it.

    `made_by` is None for the pass itself, else the decision that put it in later. `verdicts` has the last one of each
    rule and outcome, in the order they were given. `readers` are the (buffer, INDEX) that the rules looked at.
    `buffer` is the BUFFER UOp that it is stored to, None where it is LOCAL, or where it is no more.
    """

    node: UOp | None
    stage: UOp
    made_by: Decision | None = None
    verdicts: dict[tuple[str, int, str], Verdict] = field(default_factory=dict)
    readers: dict[tuple[UOp, UOp], None] = field(default_factory=dict)
    stored: bool = False
    buffer: UOp | None = None
    # the ranges that are still open after its store
    left_open: tuple[UOp, ...] = ()


@dataclass(frozen=True)
class ObservedKernel:
    """A launch of the schedule, and the node whose value (or STORE) it writes; None where that was not followed."""

    ast: UOp
    buffers: tuple[UOp, ...]
    is_compute: bool
    variables: dict[str, int]
    node: UOp | None


@dataclass
class ObservedPass:
    """One run of the rangeify pass and what came of it. `settings` are the switches of the scheduler as they were."""

    tsink: UOp
    toposort: dict[UOp, None]
    consumers: dict[UOp, dict[UOp, None]]
    range_map: dict[UOp, tuple[tuple[UOp, ...], tuple[UOp, ...]]] = field(default_factory=dict)
    realized: dict[UOp, list[RealizeDecision]] = field(default_factory=dict)
    buffers: list[ObservedBuffer] = field(default_factory=list)
    kernels: list[ObservedKernel] = field(default_factory=list)
    # BUFFER or PARAM UOp -> the node it holds
    held: dict[UOp, UOp] = field(default_factory=dict)
    # node -> user's line and method, for every node that has one of its own or of its neighbours
    origins: dict[UOp, Origin] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    # decided by the job, not by tinygrad: put in as realize points, and let go
    forced: frozenset[UOp] = frozenset()
    released: frozenset[UOp] = frozenset()
    # reported by the overlay; empty for stock tinygrad
    ambient: dict[UOp, tuple[UOp, ...]] = field(default_factory=dict)
    scope_ranges: frozenset[UOp] = frozenset()
    # a loop over a scope's RANGE while the pass ran -> that RANGE
    loops: dict[UOp, UOp] = field(default_factory=dict)
    # node -> why a fusion was refused there: its `patch`, `rule` and `numbers`
    refusals: dict[UOp, Any] = field(default_factory=dict)
    # reduce that stock would split -> the axes of a gather, and the shapes of stock's way
    unsplit: dict[UOp, Any] = field(default_factory=dict)


@dataclass
class ObservedSchedule:
    """One schedule the snippet asked for.

    `passed` is None where the pass did not run (the graph was refused). Out of tinygrad's schedule cache (`cached`) it
    is that of the first time; `not_in_key` then has the switches that were set otherwise: name -> (then, now). The
    cache's key does not have them, so the schedule may not be what they ask for.
    """

    line: str | None
    key: bytes
    cached: bool = False
    not_in_key: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    passed: ObservedPass | None = None
    # what was realized of it, where values are asked for
    outputs: list[Output] = field(default_factory=list)
