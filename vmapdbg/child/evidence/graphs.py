"""The evidence of one schedule, in a form that goes from one process to another.

A PackedGraph has ops by name, because stock tinygrad has no VMAPIN. UOps are not pickled as they are: buffers of two
processes could get the same name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from vmapdbg.check.result import CutGradient, LostWrite
from vmapdbg.model.crash import Crash
from vmapdbg.reference.graph import DEVICES, OpGraph, ScheduledKernel

UOp = Any  # this module is imported before the overlay is installed, and must not import tinygrad

GraphName = Literal["asked", "got", "passed"]


@dataclass
class PackedGraph:
    """UOps in the order of the toposort, each as (op, dtype, slots of its sources, arg); a slot is a position in this
    list. `roots` are the slots of the values that are asked for. `blobs` maps the slot of a BUFFER to the name of its
    contents."""

    nodes: list[tuple[str, Any, tuple[int, ...], Any]] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    blobs: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Version:
    """What some memory held for a while: the name of its contents, and the launch that wrote them; None: they were
    there before the schedule."""

    name: str
    launch: int | None


@dataclass(frozen=True)
class KernelRun:
    """A launch of a kernel as the scheduler made it: its number among the kernels of the evidence, and the names of
    what its arguments held right before it (None: nothing yet). `refused` says why they are not known. `linear` is the
    name of its linear program, None for the reason `linear_refused`. `versions` has what each argument is known to
    have held during the schedule, in order; `held` has the position of what it held for this launch, None: unknown."""

    kernel: int | None = None
    arguments: tuple[str | None, ...] = ()
    refused: str | None = None
    linear: str | None = None
    linear_refused: str | None = None
    versions: tuple[tuple[Version, ...], ...] = ()
    held: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class WrittenBuffer:
    """What one kernel wrote, as it was right after the kernel ran.

    `node` is the id of its node in the Capture; root number N of the pass's graph is the node of buffer number N.
    `launch` wrote it, `kernel` is the number of the compute kernel, None for a copy. `closed` has the id of each range
    of the BUFFERIZE as the pass made it (None: an axis of size 1), `stored` the id and size of each range of the
    BUFFERIZE that was stored. `is_memory`: the root is all that the buffer holds, also what was there before. `run` is
    the kernel and what it read. `parts` are the parts of a buffer on several devices, in order."""

    node: int
    kernel: int | None
    closed: tuple[int | None, ...]
    stored: tuple[tuple[int | None, int], ...]
    dtype: str
    size: int
    blob: str
    is_memory: bool = False
    run: KernelRun = KernelRun(refused="it was not kept")
    launch: int | None = None
    parts: tuple[WrittenBuffer, ...] = ()


@dataclass(frozen=True)
class HeldBuffer:
    """What a buffer of the snippet held after the kernels ran. The buffer is assigned to (`is_assigned`), or it changed
    without an assign: an input, or (`is_live`) the buffer of a tensor that is not in the graph. `slot` is the position
    of what it should hold in the graph of the reference, `blobs` are its contents, one for each device. `is_written`:
    whether a kernel wrote to it, None if unknown; `launch` is the last launch that did. `part_of`: the number of the
    assigned buffer in which an item assignment may change only what its index chooses."""

    slot: int
    blobs: tuple[str, ...]
    is_assigned: bool
    is_written: bool | None = None
    is_live: bool = False
    launch: int | None = None
    part_of: int | None = None


@dataclass(frozen=True)
class ChangedInput:
    """A buffer that a schedule of a replay reads, that nothing in the call assigns to, and that changed during the
    replay. `slot` is its position in the graph of the reference, `blob` what it holds now, `number` its number among
    the inputs of TinyJit's function, None if it is none of them."""

    slot: int
    blob: str
    number: int | None


@dataclass
class Evidence:
    """All that is needed to compare one schedule: its graphs, its inputs, and its results.

    `graphs` has `asked`, the graph as the snippet asked for it, unless it could not be packed (`refused` says why) or
    cannot be compared; `got`, which reads what the outputs hold (`outputs`: number of the output -> slot); and
    `passed`, the graph as the pass saw it. The roots of `passed` are the nodes of `buffers`, and `kernels` wrote them.
    `reducer_graph` is for `vmapdbg.child.reduce`, with the overlay only: a pickled PackedGraph, which has objects of
    tinygrad. `range_names` has the rendered name of each RANGE's id.

    `failed` is the error of a schedule that raised, `crash` says how if tinygrad raised it, `failed_kernel` is the
    number of the compute kernel that raised and `failed_node` the id of the node whose buffer it writes; `is_endless`:
    it was stopped in a rewrite that does not end. `replay` counts the replays by TinyJit, from 1: the kernels of the
    schedule ran on other inputs. `unchecked` says why something was not compared. `lost` are writes to what it reads
    that no schedule has, `cut` are gradients that an ASSIGN cuts off. `changed` is what a replay reads that changed
    meanwhile. `switches` maps the names of tinygrad's switches to their values at that time."""

    schedule: int
    line: str | None
    graphs: dict[GraphName, OpGraph] = field(default_factory=dict["GraphName", OpGraph])
    refused: str | None = None
    outputs: dict[int, int] = field(default_factory=dict)
    held: list[HeldBuffer] = field(default_factory=list)
    buffers: list[WrittenBuffer] = field(default_factory=list)
    kernels: list[ScheduledKernel] = field(default_factory=list)
    reducer_graph: bytes | None = None
    range_names: dict[int, str] = field(default_factory=dict)
    failed: str | None = None
    failed_kernel: int | None = None
    failed_node: int | None = None
    crash: Crash | None = None
    is_endless: bool = False
    replay: int | None = None
    unchecked: list[str] = field(default_factory=list)
    lost: list[LostWrite] = field(default_factory=list)
    cut: list[CutGradient] = field(default_factory=list)
    changed: list[ChangedInput] = field(default_factory=list)
    switches: dict[str, int | str] = field(default_factory=dict[str, "int | str"])

    def find_written(self, launch: int | None) -> WrittenBuffer | None:
        """Returns the buffer that a launch wrote, None if it is not known."""
        return next((buffer for buffer in self.buffers if launch is not None and buffer.launch == launch), None)

    @property
    def is_sharded(self) -> bool:
        """Whether some of its values are on several devices at once, as far as the reference knows its graph."""
        return any(DEVICES in graph.ranges for name, graph in self.graphs.items() if name != "got")


def pack_graph(roots: Iterable[UOp], contents: Callable[[UOp], str | None]) -> PackedGraph:
    """Packs the graph of `roots`; `contents` returns the name of the contents of a BUFFER."""
    wanted = list(roots)
    packed = PackedGraph()
    slots: dict[UOp, int] = {}
    if not wanted:
        return packed
    *nodes, _sink = wanted[0].sink(*wanted[1:]).toposort()
    for u in nodes:
        slots[u] = len(packed.nodes)
        packed.nodes.append((u.op.name, u.dtype, tuple(slots[s] for s in u.src), u.arg))
        if u.op.name == "BUFFER" and (name := contents(u)) is not None:
            packed.blobs[slots[u]] = name
    packed.roots = [slots[u] for u in wanted]
    return packed
