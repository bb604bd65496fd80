"""Keeps what each schedule of a snippet read and wrote, for the oracle to compute again. Runs in the child.

The snippet runs once. Inputs are read before its kernels run, the buffer of each kernel right after it ran: tinygrad
gives the memory of one buffer to the next.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vmapdbg.check.align import Layout
from vmapdbg.child.evidence.graphs import Blobs, BlobsFull, Evidence, WrittenBuffer, pack_graph
from vmapdbg.child.evidence.obstacles import find_obstacle
from vmapdbg.child.evidence.replays import ReplayWatcher
from vmapdbg.child.record.recorder import Recorder

ROOM = 1 << 30
"""The most bytes of buffers that are kept of one run."""


class Collector:
    """Watches what the snippet realizes, and writes one file of evidence for each schedule."""

    def __init__(self, folder: Path, recorder: Recorder):
        self.folder, self.recorder = folder, recorder
        (folder / "blobs").mkdir()
        self.blobs = Blobs(folder / "blobs", ROOM)
        self.current: Run | None = None
        self.replays = ReplayWatcher()

    def watch(self, tensor_module: Any) -> None:
        """Wraps what all that looks at values goes through: `Tensor.realize`, the scheduler's entry, ExecItem.run."""
        from tinygrad.engine.realize import ExecItem

        realize, schedule = tensor_module.Tensor.realize, tensor_module.complete_create_schedule_with_vars
        lower, run = ExecItem.lower, ExecItem.run

        def realizing(tensor: Any, *others: Any, **options: Any) -> Any:
            asked = [t for t in (tensor, *others) if not t.uop.is_contiguous()]
            if not asked or self.current is not None:
                return realize(tensor, *others, **options)
            self.current = Run(self, asked)
            try:
                result = realize(tensor, *others, **options)
            except Exception as error:
                self.current.fail(error)
                raise
            else:
                self.current.finish()
            finally:
                self.current = None
            return result

        def scheduling(sink: Any) -> Any:
            if self.current is None:
                return schedule(sink)
            self.current.start(sink)
            made = schedule(sink)
            self.current.scheduled(made[1])
            self.replays.note_run(self.current)
            return made

        def lowering(item: Any) -> Any:
            if self.current is None:
                return lower(item)
            before, self.current.busy = self.current.busy, item
            result = lower(item)
            self.current.busy = before
            return result

        def running(item: Any, *arguments: Any, **options: Any) -> Any:
            if self.current is None:
                return run(item, *arguments, **options)
            self.current.busy = item
            result = run(item, *arguments, **options)
            self.current.busy = None
            self.current.ran(item)
            return result

        self.replays.watch()
        realizing.__wrapped__ = realize  # type: ignore[attr-defined]
        tensor_module.Tensor.realize = realizing
        tensor_module.complete_create_schedule_with_vars = scheduling
        ExecItem.lower, ExecItem.run = lowering, running  # type: ignore[method-assign]

    def write(self, evidence: Evidence) -> None:
        """Writes the file of a schedule, or of a replay of it."""
        replay = "" if evidence.replay is None else f".replay-{evidence.replay:06}"
        file = self.folder / f"schedule-{evidence.schedule:06}{replay}.pickle"
        file.write_bytes(pickle.dumps(evidence))

    def close(self) -> None:
        """Writes what is only known when the snippet is done."""
        self.replays.close()


class Run:
    """One call of `Tensor.realize` and the schedule that it makes."""

    def __init__(self, collector: Collector, asked: list[Any]):
        self.collector, self.asked = collector, asked
        self.roots = [t.uop.base for t in asked]
        self.evidence = Evidence(-1, None)
        self.inputs: dict[Any, str] = {}  # BUFFER of the snippet -> its contents
        self.places: dict[int, int] = {}  # id of an ExecItem -> its place in the schedule
        self.items: list[Any] = []
        self.busy: Any = None  # the ExecItem that is being compiled or runs
        self.sink: Any = None
        # Tensors of the roots: tinygrad tells them where their values are
        self.probes = [type(t)(u, device=u.device) for t, u in zip(asked, self.roots, strict=True)]
        # place in the schedule -> contents, dtype, size of what its last launch wrote
        self.written: dict[int, tuple[str, str, int]] = {}

    # *** what happens, in order

    def start(self, sink: Any) -> None:
        self.sink = sink
        reason = find_obstacle(sink)
        if reason is None:
            try:
                self.inputs = {u: self.keep(u.buffer) for u in sink.toposort() if u.op.name == "BUFFER"}
                self.evidence.graph = pack_graph(self.roots, self.inputs.get)
            except BlobsFull:
                reason = f"its inputs do not fit: the buffers that are kept of one run have {ROOM >> 20} MB together"
        if reason is not None:
            self.evidence.unchecked.append(reason)

    def scheduled(self, items: list[Any]) -> None:
        self.items = list(items)
        self.places = {id(item): place for place, item in enumerate(items)}

    def ran(self, item: Any) -> None:
        place = self.places.get(id(item))
        if place is None or self.evidence.graph is None or item.bufs[0] is None or self.is_repeated(place):
            return
        buffer = item.bufs[0]
        try:
            self.written[place] = (self.keep(buffer), str(buffer.dtype).removeprefix("dtypes."), buffer.size)
        except BlobsFull:
            self.note_once("buffers between its kernels were not kept: there was no room")

    def finish(self) -> None:
        self.find_schedule()
        if self.evidence.graph is not None:
            try:
                self.evidence.values = self.read_values()
                self.pack_passed()
            except BlobsFull:
                self.evidence.graph = None
                self.note_once("its outputs do not fit: there was no room")
        self.write()

    def fail(self, error: Exception) -> None:
        self.find_schedule()
        self.find_failed()
        self.evidence.failed = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        self.write()

    # *** parts

    def find_schedule(self) -> None:
        schedules = self.collector.recorder.schedules
        if self.sink is not None and schedules:
            self.evidence.schedule, self.evidence.line = len(schedules) - 1, schedules[-1].line

    def write(self) -> None:
        if self.evidence.schedule >= 0:
            self.collector.write(self.evidence)

    def note_once(self, reason: str) -> None:
        if reason not in self.evidence.unchecked:
            self.evidence.unchecked.append(reason)

    def keep(self, buffer: Any) -> str:
        # an input that was never written (Tensor.empty) has what its memory has: both sides read the same
        return self.collector.blobs.keep(bytes(buffer.ensure_allocated().as_buffer()))

    def find_buffers(self) -> list[Any]:
        """The buffer of each output, None for one that has none."""
        bases = [probe.uop.base for probe in self.probes]
        return [base.buffer if base.op.name == "BUFFER" else None for base in bases]

    def find_written(self) -> list[Any]:
        """The buffers that its kernels wrote: tinygrad may read one of them in a later schedule instead of computing
        its value again."""
        outputs = [item.bufs[0] for item in self.items if item.bufs and item.bufs[0] is not None]
        return [*outputs, *(buffer.base for buffer in outputs)]

    def read_values(self, moved: Mapping[int, Any] = {}) -> list[str | None]:
        """The contents of the outputs, as they are now; `moved` has other buffers to read, by the id of their own.
        Raises BlobsFull."""
        return [self.read_value(t, u, moved) for t, u in zip(self.probes, self.roots, strict=True)]

    def read_value(self, probe: Any, root: Any, moved: Mapping[int, Any]) -> str | None:
        """The contents of an output in its own shape: tinygrad does not store an axis that its value does not depend
        on, and expands the buffer where it is read."""
        view = probe.uop
        if view.base.op.name != "BUFFER" or not view.base.is_realized or root._shape is None:
            return None
        buffer = moved.get(id(view.base.buffer), view.base.buffer)
        data = expand_view(bytes(buffer.ensure_allocated().as_buffer()), view)
        if data is None or len(data) != math.prod(map(int, root.shape)) * root.dtype.itemsize:
            self.note_once(f"an output of shape {root.shape} is not read as one buffer")
            return None
        return self.collector.blobs.keep(data)

    def is_repeated(self, place: int) -> bool:
        """The next launch of the same kernel writes the same buffer: the steps of an OUTER range."""
        if place + 1 >= len(self.items):
            return False
        item, following = self.items[place], self.items[place + 1]
        return item.ast is following.ast and item.bufs == following.bufs and bool(item.fixedvars)

    def find_passed(self) -> Any:
        """The record of the pass, None where it is not that of the kernels that ran."""
        schedules = self.collector.recorder.schedules
        passed = schedules[-1].passed if schedules else None
        return passed if passed is not None and len(passed.items) == len(self.items) else None

    def find_failed(self) -> None:
        """The kernel that raised."""
        passed, place = self.find_passed(), self.places.get(id(self.busy))
        if passed is None or place is None:
            return
        written, self.evidence.failed_kernel = passed.items[place]
        node = passed.buffers.get(written)
        self.evidence.failed_node = None if node is None else passed.number_nodes().get(node)

    def pack_passed(self) -> None:
        """The nodes that have buffers, and what was in those when their kernels had run."""
        passed = self.find_passed()
        if passed is None:
            return
        nodes, numbers = [], passed.number_nodes()
        for place, (blob, dtype, size) in sorted(self.written.items()):
            written, kernel = passed.items[place]
            node, stored = passed.buffers.get(written), passed.stored.get(written)
            made = passed.bufferizes.get(node)
            if node is None or stored is None or made is None:
                continue
            nodes.append(node)
            closed = tuple(map(_range_id, made.buffer.src[1:]))
            kept = tuple(find_dimensions(stored, closed))
            self.evidence.buffers.append(WrittenBuffer(numbers[node], kernel, closed, kept, dtype, size, blob))
        names = self.name_inputs()
        self.evidence.passed = pack_graph(nodes, lambda u: self.inputs.get(names.get(u)))
        self.evidence.range_names = {r.arg[0]: r.render(simplify=False) for r in passed.scope_ranges}

    def name_inputs(self) -> dict[Any, Any]:
        """The BUFFER of the snippet for each that the scheduler put in its place, to find schedules in its cache."""
        from tinygrad.engine.schedule import pm_pre_sched_cache
        from tinygrad.uop.ops import graph_rewrite

        replaced: dict[Any, Any] = {}
        graph_rewrite(self.sink, pm_pre_sched_cache, ctx=(replaced, {}))
        return {new: old for old, new in replaced.items()}


def expand_view(data: bytes, view: Any) -> bytes | None:
    """Returns the elements of RESHAPEs and EXPANDs over a buffer with these bytes; None for another view of it."""
    chain = []
    while view.op.name != "BUFFER":
        if view.op.name not in {"RESHAPE", "EXPAND"}:
            return None
        chain.append(view)
        view = view.src[0]
    for step in reversed(chain):
        if step.op.name == "EXPAND":
            sizes = [(i, size) for i, size in enumerate(map(int, step.src[0].shape))]
            wide = Layout(data, step.dtype.itemsize, sizes)
            data = wide.read(range(len(step.shape)), tuple(map(int, step.shape)))
    return data


def find_dimensions(stored: Any, closed: tuple[int | None, ...]) -> Iterator[tuple[int | None, int]]:
    """Yields the id and size of each range that a BUFFERIZE is stored by; None for what is no range.

    tinygrad flattens the dimensions of a buffer into one, an expression of the ranges in their order.
    """
    for r, size in zip(stored.src[1:], map(int, stored.shape), strict=True):
        inner = {u.arg[0]: int(u.vmax) + 1 for u in r.ranges}
        ordered = [(name, inner[name]) for name in closed if name in inner]
        if math.prod(n for _, n in ordered) == size and len(ordered) == len(inner):
            yield from ordered
        else:
            yield None, size


def _range_id(r: Any) -> int | None:
    return r.arg[0] if r.op.name == "RANGE" else None
