"""One call of `Tensor.realize` on a tinygrad that is observed: what it is asked for, and what comes of it. Runs in the
child."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from vmapdbg.child.adapters.launches import find_inputs
from vmapdbg.child.adapters.replays import list_written, runs_captured_now
from vmapdbg.child.evidence.folder import ROOM, BlobsFull, EvidenceFolder
from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.child.evidence.launches import LaunchKeeper
from vmapdbg.child.evidence.obstacles import find_no_values
from vmapdbg.child.evidence.packer import Packer
from vmapdbg.child.evidence.packing import CannotPack
from vmapdbg.child.evidence.passed import find_observed, pack_buffers
from vmapdbg.child.evidence.reference_evidence import ReferenceEvidence
from vmapdbg.child.evidence.sizes import Sizes
from vmapdbg.child.extract.observed_view import find_nodes
from vmapdbg.child.record.observe import ObservedPass
from vmapdbg.child.record.observe.outcomes import find_memory

UOp = Any


class ObservedCall:
    """Keeps the evidence of one call, which goes through `start`, then `finish`. `is_packed` tells whether its graph
    can be packed, be it that its values are kept or not."""

    def __init__(self, folder: EvidenceFolder, asked: Sequence[Any]):
        """`asked` are the Tensors that have something to compute."""
        self.folder = folder
        self.roots = [t.uop for t in asked]
        self.evidence = Evidence(-1, None, refused="this tinygrad is observed: it runs in no other process")
        self.launches = LaunchKeeper(folder)
        self.reference = ReferenceEvidence(folder, self.evidence, self.launches)
        # BUFFER of the snippet -> its contents, on each of its devices
        self.inputs: dict[UOp, tuple[str, ...]] = {}
        self.is_packed = False
        # what the scheduler was given, and what TinyJit keeps of it to run it later
        self.scheduled: UOp = None
        self.captured: UOp = None
        # BUFFER -> what TinyJit will have there
        self.made: dict[UOp, UOp] = {}
        # held, they would keep their memory from being used again
        self._tensors = [weakref.ref(t) for t in asked]
        # the outputs of what TinyJit captured, None for one that nobody holds
        self._views: list[UOp] = []

    @property
    def is_kept(self) -> bool:
        """Whether there is something to compare."""
        return self.evidence.reference is not None

    # *** what happens, in order

    def start(self) -> None:
        """Nothing has run."""
        sink = self.roots[0].sink(*self.roots[1:])
        reason = find_no_values(sink)
        if reason is None:
            reason = self._start(sink)
        if reason is not None:
            self.evidence.reference = None
            self.note_once(reason)

    def _start(self, sink: UOp) -> str | None:
        """Packs the graph, with what it reads. Returns why its values are not compared."""
        buffers = [u for u in sink.toposort() if u.op.name == "BUFFER" and not getattr(u, "is_variable", False)]
        is_later = runs_captured_now()
        try:
            self.inputs = dict.fromkeys(buffers, ())
            if not is_later:
                self.inputs = {u: self.folder.keep_all(u.buffer) for u in buffers}
        except BlobsFull:
            return f"its inputs do not fit: the buffers that are kept of one run have {ROOM >> 20} MB together"
        self.reference.start(sink, self.roots, self.inputs)
        self.is_packed = self.is_kept
        if is_later:
            return "TinyJit captures it, and runs it later"
        self.launches.note_inputs((u.buffer, names) for u, names in self.inputs.items())
        return None

    def finish(self, passes: Sequence[ObservedPass | None]) -> None:
        """The call returns; `passes` are the runs of the pass that its schedules came from."""
        if self.captured is not None:
            self._find_made()
        if not self.is_kept:
            return
        self.evidence.values = [None] * len(self.roots)
        try:
            self.reference.finish([tensor.uop for ref in self._tensors if (tensor := ref()) is not None])
        except BlobsFull:
            self.evidence.reference = None
            self.note_once("its outputs do not fit: there was no room")
            return
        if len(passes) != 1 or passes[0] is None or self.scheduled is None:
            return
        # where tinygrad runs others than those of the pass, as for each of several devices
        if len(passes[0].kernels) == len(self.launches.steps):
            self._pack_passed(passes[0])

    def _find_made(self) -> None:
        """Notes which BUFFERs hold what is asked for, as a whole."""
        for root, ref in zip(self.roots, self._tensors, strict=True):
            tensor = ref()
            if tensor is None:
                continue
            u = tensor.uop
            while u.op.name == "RESHAPE":
                u = u.src[0]
            if u.op.name == "BUFFER":
                self.made[u] = root

    def _pack_passed(self, passed: ObservedPass) -> None:
        if self.launches.is_full:
            self.note_once("buffers between its kernels were not kept: there was no room")
        inputs = find_inputs(self.scheduled, passed.toposort)
        ids = {u: number for number, u in enumerate(find_nodes(passed))}
        found = list(find_observed(passed, ids, self.launches.written))
        # from 0.13 on the graph of the pass calls a variable by its place among the arguments
        places = {f"p{place}": Sizes({}).find(u) for place, u in enumerate(self.scheduled.src[1:])}
        variables = {name: number for name, number in places.items() if number is not None}
        packer = Packer(lambda u: self.inputs.get(inputs.get(u)), self.reference.variables | variables)
        pack_buffers(self.evidence, found, self.launches, packer)

    # *** what replays of the call ask, too

    def write(self) -> None:
        """Writes the evidence, again if more has become known; none where the call made no schedule."""
        if self.evidence.schedule >= 0:
            self.folder.write(self.evidence)

    def note_once(self, reason: str) -> None:
        """Says in the evidence what of the schedule was not checked."""
        if reason not in self.evidence.unchecked:
            self.evidence.unchecked.append(reason)

    def find_written(self) -> list[Any]:
        """Returns the buffers that its kernels wrote."""
        written = self.launches.outputs
        if self.captured is not None:
            written = [find_memory(u).buffer for u in list_written(self.captured)]
        return [*written, *(buffer.base for buffer in written)]

    def settle(self, memory: set[UOp] | None) -> None:
        """TinyJit has captured the call: these are the BUFFERs that its replays use, None: those of the call itself."""
        self._views = [None] * len(self._tensors)
        for number, ref in enumerate(self._tensors):
            tensor = ref()
            if tensor is not None and (memory is None or find_memory(tensor.uop) in memory):
                self._views[number] = tensor.uop

    def find_buffers(self) -> list[Any]:
        """Returns the buffer of each output, None for one that has none."""
        found: list[Any] = [None] * len(self._views)
        for number, view in enumerate(self._views):
            if view is not None and (u := find_memory(view)).op.name == "BUFFER":
                found[number] = u.buffer
        return found

    def keep_outputs(self, evidence: Evidence, moved: Mapping[int, Any]) -> None:
        """Keeps what the outputs hold now in the evidence of a replay. Raises BlobsFull."""

        def read(u: UOp) -> tuple[str, ...] | None:
            if not u.is_realized:
                return None
            return self.folder.keep_all(moved.get(id(u.buffer), u.buffer))

        packer = Packer(read, self.reference.variables)
        evidence.values = [None] * len(self._views)
        for number, view in enumerate(self._views):
            try:
                if view is not None:
                    evidence.got_roots[number] = packer.pack(view)
            except CannotPack as error:
                evidence.unchecked.append(f"output {number}: {error}")
        evidence.got = packer.graph
