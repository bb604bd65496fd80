"""The overlay's observer: keeps what the overlay reports until the snippet is done. Runs in the child.

The overlay calls one method for each decision; nothing is computed here that can wait, so that the snippet
runs at its own speed. `extract` turns the records into the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from vmapdbg.child.listen.outputs import note_values
from vmapdbg.child.listen.recording import Recording
from vmapdbg.child.listen.user_lines import find_user_line, note_lines
from vmapdbg.install.observer import Observer
from vmapdbg.model.capture import Output

UOp = Any


@dataclass
class Disagreement:
    """The consumers of a node ask for different ranges: `asked` has (consumer, range) for the first axis on which they
    differ, and `where` says which, an axis of the node or an ambient RANGE."""

    where: int | UOp
    asked: list[tuple[UOp, UOp]]


@dataclass
class Ending:
    """`axes` of a node got new ranges because ranges end in EXPANDs below it: `ranges` maps each to its EXPAND."""

    axes: list[int]
    ranges: dict[UOp, UOp]


@dataclass
class Verdict:
    """What the cost function saw, and whether it kept the buffer. `again`: by the guard, its readers compute it.
    `reused`: why it is kept, or should be, for the sake of its readers; a rule and its numbers."""

    value: UOp
    buffer: UOp
    kept: bool
    again: bool = False
    reused: Any | None = None


@dataclass
class BufferizeRecord:
    """One BUFFERIZE that the pass made; `verdict` is that of the cost function's last test of it."""

    buffer: UOp
    ambient: tuple[UOp, ...]
    stored: bool = False
    verdict: Verdict | None = None
    # (BUFFERIZE, INDEX) of each reader that the cost function was asked about
    readers: dict[tuple[UOp, UOp], None] = field(default_factory=dict)
    # the ranges that are still open after its store
    left_open: tuple[UOp, ...] = ()


@dataclass
class Launched:
    """A kernel of a schedule: its AST, its BUFFER UOps, output first, and how often it is launched.

    `variables` are those that have another value in each launch, where the launches follow one another with nothing
    between them.
    """

    ast: UOp
    buffers: tuple[UOp, ...]
    count: int
    variables: frozenset[str]

    @property
    def is_compute(self) -> bool:
        return is_compute(self.ast)


@dataclass
class PassRecord:
    """One run of the rangeify pass and what came of its buffers."""

    tsink: UOp
    toposort: dict[UOp, None]
    consumers: dict[UOp, dict[UOp, None]]
    forced: dict[UOp, tuple[Any, UOp]]
    context: Any
    scope_ranges: frozenset[UOp]
    disagreements: dict[UOp, Disagreement] = field(default_factory=dict)
    endings: dict[UOp, Ending] = field(default_factory=dict)
    # node -> why a fusion was refused there: its `patch`, `rule` and `numbers`
    refusals: dict[UOp, Any] = field(default_factory=dict)
    # reduce that stock would split -> what it is instead: the axes of a gather, and the shapes of stock's way
    unsplit: dict[UOp, Any] = field(default_factory=dict)
    bufferizes: dict[UOp, BufferizeRecord] = field(default_factory=dict)
    # tag -> tinygrad's notes on the UOp with that tag, as they are now: a later line that makes the same UOp
    # rewrites them
    notes: list[Any] = field(default_factory=list)
    # BUFFER UOp -> the node it holds; a kernel is known by the buffer it writes
    buffers: dict[UOp, UOp] = field(default_factory=dict)
    # the same BUFFER UOp -> the BUFFERIZE that it was stored for, with the dimensions that were left
    stored: dict[UOp, UOp] = field(default_factory=dict)
    # in the order of the schedule
    kernels: list[Launched] = field(default_factory=list)
    # for each launch of the schedule the BUFFER UOp that it writes, and the number of its compute kernel
    items: list[tuple[UOp, int | None]] = field(default_factory=list)

    def find_ids(self) -> dict[UOp, int]:
        """Returns the id that each node has in the Capture."""
        return {u: i for i, u in enumerate(filter(is_node, self.toposort))}


@dataclass
class ScheduleRecord:
    """One schedule the snippet asked for. `passed` is None until the pass has run for it."""

    line: str | None
    key: bytes
    passed: PassRecord | None = None
    outputs: list[Output] = field(default_factory=list)


class Recorder(Recording[ScheduleRecord], Observer):
    """What the snippet scheduled, in order."""

    listens = True

    def __init__(self, values: bool = False) -> None:
        self._values = values
        # what else is to look at tinygrad's Tensor module when it is there
        self.watch: Callable[[ModuleType], None] | None = None
        self.schedules: list[ScheduleRecord] = []
        self._by_key: dict[bytes, PassRecord] = {}
        self._tagged: list[UOp] = []
        self._unsplit: dict[UOp, Any] = {}
        self._running: PassRecord | None = None

    def forget(self) -> None:
        """Lets go of every UOp."""
        self.schedules, self._by_key, self._tagged, self._unsplit, self._running = [], {}, [], {}, None

    @property
    def _current(self) -> PassRecord:
        """The run of the pass that the reports are about."""
        assert self._running is not None
        return self._running

    # *** what the overlay calls

    def tensor_ready(self, module: ModuleType) -> None:
        note_lines(module)
        if self._values:
            note_values(module, lambda: len(self.schedules), lambda output: self.schedules[-1].outputs.append(output))
        if self.watch is not None:
            self.watch(module)

    def schedule_asked(self, key: bytes, cached: bool) -> None:
        # a schedule that tinygrad has in its cache is captured whole: from the record of the first time
        record = ScheduleRecord(find_user_line(), key, self._by_key.get(key) if cached else None)
        self.schedules.append(record)

    def uop_tagged(self, tagged: list[UOp]) -> None:
        self._tagged = tagged

    def split_left_out(self, reduce: UOp, whole: Any) -> None:
        # the two that one reduce becomes are looked at again: what stock would do with that one is told first
        self._unsplit.setdefault(reduce, whole)

    def pass_starts(
        self,
        tsink: UOp,
        toposort: dict[UOp, None],
        consumers: dict[UOp, dict[UOp, None]],
        forced: dict[UOp, tuple[Any, UOp]],
        context: Any,
        scope_ranges: frozenset[UOp],
    ) -> None:
        notes = [u.metadata for u in self._tagged]
        record = PassRecord(
            tsink, toposort, consumers, forced, context, scope_ranges, unsplit=self._unsplit, notes=notes
        )
        self._running, self._tagged, self._unsplit = record, [], {}
        if not self.schedules or self.schedules[-1].passed is not None:
            # the pass was called by hand, not for a schedule
            self.schedules.append(ScheduleRecord(find_user_line(), b""))
        self.schedules[-1].passed = record
        self._by_key[self.schedules[-1].key] = record

    def consumers_disagree(
        self, x: UOp, axes: list[int], batch_axes: list[UOp], consumers: dict[UOp, None], context: Any
    ) -> None:
        readers = [(c, context.range_map[c]) for c in consumers if c in context.range_map]
        if axes:
            disagreement = Disagreement(axes[0], [(c, ranges.ins[axes[0]]) for c, ranges in readers])
        else:
            r = batch_axes[0]
            disagreement = Disagreement(r, [(c, ranges.ambient.get(r, r)) for c, ranges in readers])
        self._current.disagreements[x] = disagreement

    def ranges_end(self, x: UOp, axes: list[int], ending: dict[UOp, UOp]) -> None:
        self._current.endings[x] = Ending(axes, ending)

    def loops_named(self, named: Callable[[UOp], UOp]) -> None:
        for disagreement in self._current.disagreements.values():
            disagreement.asked = [(c, named(r)) for c, r in disagreement.asked]
        for ending in self._current.endings.values():
            ending.ranges = {named(r): expand for r, expand in ending.ranges.items()}

    def fusion_refused(self, x: UOp, refusal: Any) -> None:
        self._current.refusals[x] = refusal

    def pass_repeats(self) -> None:
        # what was recorded since `pass_starts` was an attempt; the next one replaces it
        self.schedules[-1].passed = None

    def bufferize_made(self, node: UOp, buffer: UOp, ambient: tuple[UOp, ...]) -> None:
        self._current.bufferizes.setdefault(node, BufferizeRecord(buffer, ambient))

    def removal_tried(
        self, src: UOp, buffer: UOp, index: UOp, result: UOp | None, again: bool, reused: Any | None
    ) -> None:
        record = self._bufferize_of(buffer)
        if record is not None:
            record.verdict = Verdict(src, buffer, result is None, again, reused)
            record.readers[buffer, index] = None

    def buffer_stored(self, buffer: UOp, stored: UOp | None) -> None:
        record = self._bufferize_of(buffer)
        if record is None:
            return
        record.stored = True
        # a LOCAL buffer is stored inside its kernel, when that is lowered
        if stored is not None:
            self._current.buffers[stored.base.buf_uop] = buffer.arg.node
            self._current.stored[stored.base.buf_uop] = buffer
            record.left_open = tuple(stored.ranges)

    def schedule_created(self, items: list[Any], buffers: UOp, /) -> None:
        self._current.kernels = count_launches(items, buffers.src)
        self._current.items = number_kernels(items, buffers.src)

    def _bufferize_of(self, buffer: UOp) -> BufferizeRecord | None:
        node = getattr(buffer.arg, "node", None)
        return None if self._running is None else self._running.bufferizes.get(node)


# what is no value of the program: where things are, and the schedule's own root
NOT_NODES = {"DEVICE", "UNIQUE", "LUNIQUE", "SINK", "RANGE"}


def is_node(u: UOp) -> bool:
    """Whether a UOp of the tensor graph is a node of the Capture: not an index, not what only says where things are."""
    return u.op.name not in NOT_NODES and u.dtype.scalar().name != "index"


def is_compute(ast: UOp) -> bool:
    """Whether a launch of this AST computes something: others are copies."""
    return ast.op.name == "SINK"


def count_launches(items: list[Any], buffers: tuple[UOp, ...]) -> list[Launched]:
    """The steps of an OUTER range are one kernel with another value of a variable: they are counted as its launches."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for index, kernel in enumerate(_find_kernels(items, buffers)):
        found.setdefault(kernel, []).append(index)
    launched = []
    for (ast, used, *_), indices in found.items():
        in_a_row = indices[-1] - indices[0] + 1 == len(indices)
        variables = frozenset(items[indices[0]].fixedvars if in_a_row else ())
        launched.append(Launched(ast, used, len(indices), variables))
    return launched


def number_kernels(items: list[Any], buffers: tuple[UOp, ...]) -> list[tuple[UOp, int | None]]:
    """Returns for each launch the BUFFER that it writes and the number of its compute kernel, None for a copy."""
    kernels = _find_kernels(items, buffers)
    compute = [kernel for kernel in dict.fromkeys(kernels) if is_compute(kernel[0])]
    numbers = {kernel: number for number, kernel in enumerate(compute)}
    return [(kernel[1][0], numbers.get(kernel)) for kernel in kernels]


def _find_kernels(items: list[Any], buffers: tuple[UOp, ...]) -> list[tuple[Any, ...]]:
    """The kernel that each launch is one of: the steps of an OUTER range, which have variables, are one kernel."""
    return [
        (item.ast, used.src) if item.fixedvars else (item.ast, used.src, index)
        for index, (item, used) in enumerate(zip(items, buffers, strict=True))
    ]
