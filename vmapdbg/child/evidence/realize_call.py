"""One call of `Tensor.realize`: what the schedule that it makes read and wrote. Runs in the child."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vmapdbg.child.adapters.launches import Step, find_inputs
from vmapdbg.child.diagnosis import diagnose
from vmapdbg.child.diagnosis.known_nodes import read_overlay_nodes
from vmapdbg.child.evidence.folder import ROOM, BlobsFull, EvidenceFolder
from vmapdbg.child.evidence.graphs import Evidence, Sealed, pack_graph
from vmapdbg.child.evidence.launches import LaunchKeeper
from vmapdbg.child.evidence.obstacles import find_no_values, find_obstacle
from vmapdbg.child.evidence.packer import Packer
from vmapdbg.child.evidence.passed import NodeBuffer, find_dimensions, list_range_ids, pack_buffers
from vmapdbg.child.evidence.reference_evidence import ReferenceEvidence
from vmapdbg.child.evidence.sizes import find_variables
from vmapdbg.child.memory import read_buffer
from vmapdbg.child.record.recorder import Recorder
from vmapdbg.model.wording import first_line


class RealizeCall:
    """Keeps the evidence of one call, which goes through `start`, `scheduled`, `ran` for each launch, then `finish` or
    `fail`."""

    def __init__(self, folder: EvidenceFolder, recorder: Recorder, asked: Sequence[Any]):
        """`asked` are the Tensors that have something to compute."""
        self.folder, self.recorder = folder, recorder
        self.roots = [t.uop.base for t in asked]
        # Tensors of the roots: tinygrad tells them where their values are
        self.probes = [type(t)(u, device=u.device) for t, u in zip(asked, self.roots, strict=True)]
        self.evidence = Evidence(-1, None)
        # what it makes is there when it is captured
        self.made: dict[Any, Any] = {}
        # BUFFER of the snippet -> its contents, on each of its devices
        self.inputs: dict[Any, tuple[str, ...]] = {}
        self.launches = LaunchKeeper(folder)
        self.reference = ReferenceEvidence(folder, self.evidence, self.launches)
        self.busy: Any = None  # the ExecItem that is being compiled or runs
        self._sink: Any = None
        self._items: list[Any] = []
        # id of an ExecItem -> its index in the schedule
        self._indices: dict[int, int] = {}

    # *** what happens, in order

    def start(self, sink: Any) -> None:
        """The scheduler is given `sink`: nothing has run, so the inputs are as the kernels will read them."""
        self._sink = sink
        reason = find_no_values(sink)
        if reason is None:
            try:
                buffers = [u for u in sink.toposort() if u.op.name == "BUFFER"]
                self.inputs = {u: self.folder.keep_all(u.buffer) for u in buffers}
            except BlobsFull:
                reason = f"its inputs do not fit: the buffers that are kept of one run have {ROOM >> 20} MB together"
        if reason is not None:
            self.evidence.unchecked.append(reason)
            return
        self.launches.note_inputs((u.buffer, names) for u, names in self.inputs.items())
        self.reference.start(sink, self.roots, self.inputs)
        self.evidence.refused = find_obstacle(sink)
        if self.evidence.refused is None:
            self.evidence.graph = Sealed(pack_graph(self.roots, lambda u: self.inputs[u][0]))

    def scheduled(self, items: Sequence[Any], variables: Mapping[str, int]) -> None:
        """The schedule is there: its ExecItems, and the values of its variables."""
        self._items = list(items)
        self.launches.begins(
            [Step(item.ast, {**variables, **item.fixedvars}, bool(item.fixedvars)) for item in self._items]
        )
        self._indices = {id(item): index for index, item in enumerate(items)}

    def runs(self, item: Any) -> None:
        """An ExecItem is about to run."""
        index = self._indices.get(id(item))
        if index is not None and self.evidence.is_kept:
            self.launches.before(index, item.bufs)

    def ran(self, item: Any) -> None:
        """An ExecItem ran just now."""
        index = self._indices.get(id(item))
        if index is not None and self.evidence.is_kept:
            self.launches.after(index, item.bufs)

    def finish(self) -> None:
        """The call returns."""
        self._find_schedule()
        if self.launches.is_full:
            self.note_once("buffers between its kernels were not kept: there was no room")
        if self.evidence.is_kept:
            try:
                self.evidence.values = self.read_values()
                self.reference.finish([probe.uop for probe in self.probes])
                self._pack_passed()
            except BlobsFull:
                self.evidence.graph = self.evidence.reference = None
                self.note_once("its outputs do not fit: there was no room")
        self.write()

    def fail(self, error: BaseException) -> None:
        """The call raises `error`."""
        self._find_schedule()
        self._find_failed()
        self.evidence.crash = diagnose(error, read_overlay_nodes(self.recorder))
        self.evidence.failed = f"{type(error).__name__}: {first_line(error)}"
        self.write()

    # *** what replays of the call ask, too

    def write(self) -> None:
        """Writes the evidence, again if more has become known; none where the call made no schedule."""
        if self.evidence.schedule >= 0:
            self.folder.write(self.evidence)

    def note_once(self, reason: str) -> None:
        """Says in the evidence what of the schedule was not checked."""
        if reason not in self.evidence.unchecked:
            self.evidence.unchecked.append(reason)

    @property
    def is_packed(self) -> bool:
        """Whether its graph can be packed for other inputs."""
        return self.evidence.reference is not None

    def settle(self, memory: set[Any] | None) -> None:
        """TinyJit has captured the call: it uses the BUFFERs that it used itself."""

    def keep_outputs(self, evidence: Evidence, moved: Mapping[int, Any]) -> None:
        """Keeps what the outputs hold now in the evidence of a replay. Raises BlobsFull."""
        evidence.values = self.read_values(moved)

    def find_buffers(self) -> list[Any]:
        """Returns the buffer of each output, None for one that has none."""
        bases = [probe.uop.base for probe in self.probes]
        return [base.buffer if base.op.name == "BUFFER" else None for base in bases]

    def find_written(self) -> list[Any]:
        """Returns the buffers that its kernels wrote: tinygrad may read one of them in a later schedule instead of
        computing its value again."""
        outputs = [item.bufs[0] for item in self._items if item.bufs and item.bufs[0] is not None]
        return [*outputs, *(buffer.base for buffer in outputs)]

    def read_values(self, moved: Mapping[int, Any] | None = None) -> list[str | None]:
        """Keeps the contents of the outputs as they are now and returns their names, None where there are none.

        `moved` has other buffers to read, by the id of the one that they stand for. Raises BlobsFull.
        """
        return [self._read_value(t, u, moved or {}) for t, u in zip(self.probes, self.roots, strict=True)]

    # *** parts

    def _read_value(self, probe: Any, root: Any, moved: Mapping[int, Any]) -> str | None:
        # in the output's own shape: tinygrad does not store an axis that its value does not depend on, and expands the
        # buffer where it is read
        view = probe.uop
        if view.base.op.name != "BUFFER" or not view.base.is_realized or not _is_plain(root):
            return None
        buffer = moved.get(id(view.base.buffer), view.base.buffer)
        data = expand_view(read_buffer(buffer), view)
        if data is None or len(data) != math.prod(map(int, root.shape)) * root.dtype.itemsize:
            return None
        return self.folder.keep_data(data)

    def _find_schedule(self) -> None:
        schedules = self.recorder.schedules
        if self._sink is not None and schedules:
            self.evidence.schedule, self.evidence.line = len(schedules) - 1, schedules[-1].line

    def _find_passed(self) -> Any:
        """Returns the record of the pass, None where it is not that of the kernels that ran."""
        schedules = self.recorder.schedules
        if not schedules:
            return None
        passed = schedules[-1].passed
        if passed is None or len(passed.items) != len(self._items):
            return None
        return passed

    def _find_failed(self) -> None:
        """Notes the kernel that raised."""
        passed, index = self._find_passed(), self._indices.get(id(self.busy))
        if passed is None or index is None:
            return
        written, self.evidence.failed_kernel = passed.items[index]
        node = passed.buffers.get(written)
        self.evidence.failed_node = passed.find_ids().get(node)

    def _pack_passed(self) -> None:
        """Notes the nodes that have buffers, and what was in those when their kernels had run."""
        passed = self._find_passed()
        if passed is None:
            return
        found = list(self._find_buffers(passed))
        inputs = find_inputs(self._sink, passed.toposort)

        def find_contents(u: Any) -> tuple[str, ...] | None:
            return self.inputs.get(inputs.get(u))

        if self.evidence.graph is not None:
            nodes = [one.node for one in found]
            self.evidence.passed = Sealed(pack_graph(nodes, lambda u: (find_contents(u) or (None,))[0]))
        pack_buffers(self.evidence, found, self.launches, Packer(find_contents, find_variables(self._sink)))
        self.evidence.range_names = {r.arg[0]: r.render(simplify=False) for r in passed.scope_ranges}

    def _find_buffers(self, passed: Any) -> Iterator[NodeBuffer]:
        """Yields the buffers of nodes that were kept."""
        ids = passed.find_ids()
        for index in sorted(self.launches.written):
            written, kernel = passed.items[index]
            node, stored = passed.buffers.get(written), passed.stored.get(written)
            made = passed.bufferizes.get(node)
            if node is None or stored is None or made is None:
                continue
            closed = list_range_ids(made.buffer.src[1:])
            dimensions = tuple(find_dimensions(stored, closed))
            yield NodeBuffer(index, kernel, node, ids[node], closed, dimensions)


def expand_view(data: bytes, view: Any) -> bytes | None:
    """Returns the elements of RESHAPEs and EXPANDs over a buffer with these bytes; None for another view of it."""
    # it brings numpy along, which a child that keeps no evidence has no need to wait for
    from vmapdbg.check.align import read_dimensions

    chain = []
    while view.op.name != "BUFFER":
        if view.op.name not in {"RESHAPE", "EXPAND"}:
            return None
        chain.append(view)
        view = view.src[0]
    for step in reversed(chain):
        if step.op.name == "EXPAND":
            sizes = [(i, size) for i, size in enumerate(map(int, step.src[0].shape))]
            shape = tuple(map(int, step.shape))
            data = read_dimensions(data, step.dtype.itemsize, sizes, range(len(shape)), shape)
    return data


def _is_plain(u: Any) -> bool:
    """Tells whether a value of a UOp is one array: of a fixed shape, on one device."""
    if isinstance(u.device, tuple):
        return False
    return u._shape is not None and all(isinstance(size, int) for size in u._shape)
