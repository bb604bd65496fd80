"""One call of `Tensor.realize`: its graph, what its schedule reads, and its results. Runs in the child."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vmapdbg.child.evidence.folder import ROOM, BlobsFull, EvidenceFolder
from vmapdbg.child.evidence.graphs import Evidence, pack_graph
from vmapdbg.child.evidence.launches import LaunchKeeper
from vmapdbg.child.evidence.live_tensors import LiveTensors
from vmapdbg.child.evidence.reference_evidence import ReferenceEvidence
from vmapdbg.child.evidence.tensor_calls import ChosenPart
from vmapdbg.child.failures.diagnose import diagnose
from vmapdbg.child.failures.endless import EndlessRewrite
from vmapdbg.child.failures.known_nodes import KnownNodes
from vmapdbg.child.listen.launches import find_inputs
from vmapdbg.child.listen.outcomes import find_memory
from vmapdbg.child.listen.replays import list_written, runs_captured_now
from vmapdbg.child.switches import read_switches
from vmapdbg.install.overlay import is_installed
from vmapdbg.model.wording import first_line

UOp = Any
_NO_VALUES = {"NULL": "the NULL device computes nothing", "DISK": "it reads a DISK", "TINYFS": "it reads TINYFS"}

# custom kernels, values on several devices, views of a DISK, symbolic shapes
_NOT_REDUCED = frozenset(
    {"KERNEL", "AFTER", "CUSTOM_KERNEL", "MULTI", "MSELECT", "MSTACK", "BUFFER_VIEW", "BIND", "DEFINE_VAR"}
)


class RealizeCall(ABC):
    """Keeps the evidence of one call: `start`, then `finish` or `fail`, then `write`. If TinyJit captures the call, its
    replays use it later."""

    def __init__(self, folder: EvidenceFolder, roots: Sequence[UOp]):
        """`roots` are the UOps that the call realizes."""
        self.folder, self.roots = folder, list(roots)
        self.evidence = Evidence(-1, None, switches=read_switches())
        self.launches = LaunchKeeper(folder)
        self.reference = ReferenceEvidence(folder, self.evidence, self.launches)
        # BUFFER of the snippet -> its contents, on each of its devices
        self.inputs: dict[UOp, tuple[str, ...]] = {}
        # whether its graph can be packed, for other inputs, too
        self.is_packed = False
        # whether its own schedule is the first that it makes: later schedules belong to functions that it calls
        self.is_first = False
        # the graph for the scheduler, and what TinyJit keeps to run it later
        self.scheduled: UOp = None
        self.captured: UOp = None
        # BUFFER that holds one of the roots in replays, if the call itself did not run -> this root
        self.made: dict[UOp, UOp] = {}

    # *** what happens, in order

    def start(self, sink: UOp, parts: Sequence[ChosenPart] = ()) -> None:
        """Starts before anything runs. `sink` is the graph, `parts` are the elements that its item assignments
        choose."""
        reason = _why_no_values(sink) or self._start(sink)
        self.reference.parts = parts
        if reason is not None:
            self.evidence.reference = None
            self.note_once(reason)

    def _start(self, sink: UOp) -> str | None:
        """Packs the graph, with what it reads. Returns why its values are not compared."""
        buffers = [u for u in sink.toposort() if u.op.name == "BUFFER" and not getattr(u, "is_variable", False)]
        is_later = runs_captured_now()
        self.inputs = dict.fromkeys(buffers, ())
        if not is_later:
            try:
                self.inputs = {u: self.folder.keep_all(u.buffer) for u in buffers}
            except BlobsFull:
                return f"its inputs do not fit: the buffers that are kept of one run have {ROOM >> 20} MB together"
        self.reference.start(sink, self.roots, self.inputs)
        self.is_packed = self.evidence.reference is not None
        if is_later:
            return "TinyJit captures it, and runs it later"
        self.evidence.graph = self._pack_for_reducer(sink)
        self.launches.note_inputs((u.buffer, names) for u, names in self.inputs.items())
        self.launches.live = LiveTensors(self.folder, self.inputs)
        return None

    def _pack_for_reducer(self, sink: UOp) -> bytes | None:
        """Returns the graph for `bisect --reduce`, pickled; None if tinygrad cannot compute it again from its inputs.
        Only the patches are bisected, so only the overlay has it."""
        nodes = sink.toposort()
        is_sharded = any(len(names) != 1 for names in self.inputs.values())
        if not is_installed() or is_sharded or any(u.op.name in _NOT_REDUCED for u in nodes):
            return None
        return pickle.dumps(pack_graph([root.base for root in self.roots], lambda u: self.inputs[u][0]))

    def finish(self, passes: Sequence[Any]) -> None:
        """Ends a call that returns; `passes` are the runs of the pass for its schedules, None for an unknown run."""
        if self.evidence.reference is None:
            if self.evidence.reference_refused is not None:
                self.note_once(self.evidence.reference_refused)
            return
        if self.launches.is_full:
            self.note_once("buffers between its kernels were not kept: there was no room")
        try:
            self._keep_values()
        except BlobsFull:
            self.evidence.graph = self.evidence.reference = None
            self.note_once("its outputs do not fit: there was no room")
            return
        self._pack_passed(passes)

    @abstractmethod
    def _keep_values(self) -> None:
        """Keeps what the outputs hold. Raises BlobsFull."""

    @abstractmethod
    def _pack_passed(self, passes: Sequence[Any]) -> None:
        """Packs the nodes that have buffers, and what the buffers held when their kernels had run."""

    def fail(self, error: BaseException, nodes: KnownNodes, passes: Sequence[Any]) -> None:
        """Ends a call that raises `error`; `nodes` are the known nodes of the last schedule."""
        self.evidence.failed = f"{type(error).__name__}: {first_line(error)}"
        self.evidence.crash = diagnose(error, nodes)
        self.evidence.is_endless = isinstance(error, EndlessRewrite)

    def write(self) -> None:
        """Writes the evidence, or writes it again. A call that made no schedule has none."""
        if self.evidence.schedule >= 0:
            self.folder.write(self.evidence)

    # *** what replays of the call ask, too

    def note_once(self, reason: str) -> None:
        """Adds a reason why something was not compared."""
        if reason not in self.evidence.unchecked:
            self.evidence.unchecked.append(reason)

    def find_written(self) -> list[Any]:
        """Returns the buffers that its kernels wrote: a later schedule may read them."""
        written = self.launches.outputs
        if self.captured is not None:
            written = [find_memory(u).buffer for u in list_written(self.captured)]
        return [*written, *(buffer.base for buffer in written)]

    @abstractmethod
    def settle(self, memory: set[UOp] | None) -> None:
        """Notes that TinyJit has captured the call. `memory` has the BUFFERs of its replays, None if they are the
        same."""

    @abstractmethod
    def find_buffers(self) -> list[Any]:
        """Returns the buffer of each output, None for an output without a buffer."""

    @abstractmethod
    def keep_outputs(self, evidence: Evidence, moved: Mapping[int, Any]) -> None:
        """Keeps what the outputs hold now in the evidence of a replay. `moved` has buffers to read instead, by the id
        of the buffer that they replace. Raises BlobsFull."""

    # *** parts

    def _find_contents(self, passed: Any) -> Callable[[UOp], tuple[str, ...] | None]:
        """Returns a function from a leaf of the graph of a pass to the names of its contents."""
        inputs = find_inputs(self.scheduled, passed.toposort)
        return lambda u: self.inputs.get(inputs.get(u))


def _why_no_values(sink: UOp) -> str | None:
    """Returns why the values of a graph cannot be read, None if they can."""
    for u in sink.toposort():
        # 0.14 has no DEVICE: a BUFFER knows its own
        name = {"DEVICE": "arg", "BUFFER": "device"}.get(u.op.name)
        device = name and getattr(u, name)
        for one in device if isinstance(device, tuple) else (device or "",):
            if (reason := _NO_VALUES.get(one.split(":")[0])) is not None:
                return reason
    return None
