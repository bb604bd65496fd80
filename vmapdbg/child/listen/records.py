"""What was recorded: plain records with UOps in them, no sentences."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from vmapdbg.model.capture import Condition, Decision, Output
from vmapdbg.model.vocabulary import Phase

UOp = Any
SCOPES = frozenset({"VMAPIN", "VMAPOUT"})
OVERLAY = "overlay"
"""The first part of the file of a decision of our pass."""


class Origin(NamedTuple):
    """Where the user's code makes a UOp: `file:number`, the method of Tensor that it calls there, if any, the index of
    the user's function in `UserLines.functions`, and the phase of the program."""

    line: str
    method: str | None
    function: int | None = None
    phase: Phase = "forward"


@dataclass(frozen=True)
class DecisionRecord(Decision):
    """A decision as it was seen. The `values` of its conditions are not rendered yet: parts (names, attributes,
    subscripts) and their values at that time, without the parts that were not evaluated. The conditions of a rule that
    called the function come first. `operands` are the UOps among the function's arguments."""

    operands: dict[str, UOp]

    def find_value(self, text: str) -> Any:
        """Returns the value of a part of its conditions, by the part's text; None if unknown."""
        return next((c.values[text] for c in reversed(self.conditions) if text in c.values), None)

    def find_condition(self, about: str) -> Condition | None:
        """Returns the first condition that held and has `about` in its text."""
        return next((c for c in self.conditions if c.holds and about in c.text), None)


class RealizeDecision(NamedTuple):
    """The pass put a node into the realize map: with `axes`, or all of its axes (None)."""

    axes: tuple[int, ...] | None
    decision: DecisionRecord


@dataclass(frozen=True)
class Verdict:
    """The answer of one rule about a buffer. `reader` is the INDEX that the rule looked at, if any."""

    stage: UOp
    reader: UOp | None
    decision: DecisionRecord | None = None
    rule: str = ""  # a rule of the overlay, with its numbers
    numbers: dict[str, int | float | str] = field(default_factory=dict)


@dataclass
class BufferRecord:
    """A buffer that the pass made for a node (BUFFERIZE or STAGE), and its fate. `made_by` is None for the pass itself,
    else the decision that put it in later. `verdicts` has the last of each outcome: "kept" (a rule looked at a reader
    and refused), "removed", "narrowed" (it stays, with fewer axes or as other memory) or "stored". `readers` are the
    (buffer, INDEX) that the rules looked at. `buffer` is the BUFFER that it is stored to, None if LOCAL or removed."""

    node: UOp | None
    stage: UOp
    made_by: DecisionRecord | None = None
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    readers: dict[tuple[UOp, UOp], None] = field(default_factory=dict)
    stored: bool = False
    buffer: UOp | None = None
    left_open: tuple[UOp, ...] = ()  # the ranges that are still open after its store


@dataclass(frozen=True)
class Launch:
    """A launch of a schedule: a kernel or a copy. `ast` is what is compiled, a SINK for a compute kernel; `buffers` are
    its BUFFERs (or PARAMs) in the order of its slots, output first. `variables` has the values that the schedule gives.
    `node` is the node whose value (or STORE) it writes, None if unknown; then `parts` are the nodes whose ops it has.
    `count` joins launches that differ only in the values of the variables `varied`."""

    ast: UOp
    buffers: tuple[UOp, ...]
    is_compute: bool
    variables: dict[str, int] = field(default_factory=dict)
    node: UOp | None = None
    parts: tuple[UOp, ...] = ()
    count: int = 1
    varied: frozenset[str] = frozenset()


def group_launches(launches: Sequence[Launch]) -> list[list[int]]:
    """Groups the numbers of launches that differ only in a variable's value, as in the steps of an OUTER range."""
    groups: dict[Any, list[int]] = {}
    for number, launch in enumerate(launches):
        place = None if launch.variables else number
        groups.setdefault((launch.ast, launch.buffers, place), []).append(number)
    return list(groups.values())


def count_launches(passed: "PassRecord | None") -> int:
    """Returns how often the kernels and copies of a schedule run, on all of their devices."""
    launches = () if passed is None else passed.kernels
    counted = ((launch.count, launch.buffers[0].device if launch.buffers else None) for launch in launches)
    return sum(count * (len(device) if isinstance(device, tuple) else 1) for count, device in counted)


def number_kernels(launches: Sequence[Launch]) -> list[int | None]:
    """Returns for each launch the number of its compute kernel, None for a copy."""
    kernels = (group for group in group_launches(launches) if launches[group[0]].is_compute)
    numbers = {launch: number for number, group in enumerate(kernels) for launch in group}
    return [numbers.get(launch) for launch in range(len(launches))]


@dataclass(eq=False)  # compared by identity: a pass has one record
class PassRecord:
    """One run of the rangeify pass and what followed. `settings` are the scheduler's switches at that time. If it
    `is_derived`, no function of the scheduler is known: all is read off the rewrites of the graph and their rules.
    `end` says whether its kernels are known (`scheduled`), or tinygrad raised before; "" if neither was seen."""

    tsink: UOp
    toposort: dict[UOp, None]
    consumers: dict[UOp, dict[UOp, None]]
    range_map: dict[UOp, tuple[tuple[UOp, ...], tuple[UOp, ...]]] = field(default_factory=dict)
    realized: dict[UOp, list[RealizeDecision]] = field(default_factory=dict)
    buffers: list[BufferRecord] = field(default_factory=list)
    kernels: list[Launch] = field(default_factory=list)
    end: Literal["", "scheduled", "failed"] = ""
    held: dict[UOp, UOp] = field(default_factory=dict)  # BUFFER or PARAM UOp -> the node it holds
    origins: dict[UOp, Origin] = field(default_factory=dict)  # node -> user's line and method, or its neighbours'
    settings: dict[str, Any] = field(default_factory=dict)
    is_derived: bool = False
    forced: frozenset[UOp] = frozenset()  # put in as realize points by the job, not by tinygrad
    released: frozenset[UOp] = frozenset()  # let go by the job
    # the RANGEs of vmap scopes, and node -> the RANGEs of scopes that its value depends on
    scope_ranges: frozenset[UOp] = frozenset()
    ambient: dict[UOp, tuple[UOp, ...]] = field(default_factory=dict)
    vmap_map: dict[UOp, tuple[UOp, ...]] | None = None  # the pass's own map of ambient ranges, if any
    loops: dict[UOp, UOp] = field(default_factory=dict)  # loop over a scope's RANGE during the pass -> RANGE
    refusals: dict[UOp, Any] = field(default_factory=dict)  # node -> `patch`, `rule`, `numbers` of a refused fusion
    # reduce that stock would split -> the axes of a gather, and the shapes of stock's way
    unsplit: dict[UOp, Any] = field(default_factory=dict)


@dataclass
class ScheduleRecord:
    """One schedule the snippet asked for. `passed` is None if the pass did not run (the graph was refused). From
    tinygrad's schedule cache (`cached`) it has the pass of the first time; then `not_in_key` has switches with another
    value, name -> (then, now), that the cache's key lacks: the schedule may not be what they ask for."""

    line: str | None
    key: bytes
    cached: bool = False
    not_in_key: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    passed: PassRecord | None = None
    outputs: list[Output] = field(default_factory=list)  # the realized values, if the job asks for values


def find_passes(schedules: Iterable[ScheduleRecord]) -> list[PassRecord]:
    """Returns each run of the pass once, in their order."""
    return [passed for passed in dict.fromkeys(one.passed for one in schedules) if passed is not None]
