"""Collects what the numpy reference needs of one call of `Tensor.realize`: its graph, results that are in no single
buffer, and what the snippet's buffers held afterwards. Runs in the child, on any release of tinygrad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vmapdbg.child.evidence.folder import EvidenceFolder
from vmapdbg.child.evidence.graphs import Evidence, HeldBuffer
from vmapdbg.child.evidence.launches import LaunchKeeper
from vmapdbg.child.evidence.lost_writes import find_buffer
from vmapdbg.child.evidence.packer import CannotPack, Packer
from vmapdbg.child.evidence.sizes import find_variables
from vmapdbg.child.evidence.tensor_calls import ChosenPart
from vmapdbg.child.memory import name_dtype
from vmapdbg.reference.graph import Node

UOp = Any


class ReferenceEvidence:
    """Fills in the part of `evidence` that is the reference's."""

    def __init__(self, folder: EvidenceFolder, evidence: Evidence, launches: LaunchKeeper):
        self.folder, self.evidence, self.launches = folder, evidence, launches
        self.variables: dict[str, int] = {}
        # item assignments in its graph
        self.parts: Sequence[ChosenPart] = ()
        self._inputs: Mapping[UOp, tuple[str, ...]] = {}
        # BUFFER -> the position of what it should hold after the kernels ran
        self._assigned: dict[UOp, int] = {}
        self._slots: dict[UOp, int | None] = {}
        # BUFFERs that are written, and BUFFERs that are written more than once
        self._touched: set[UOp] = set()
        self._chained: set[UOp] = set()
        # compared BUFFER -> what it held after the kernels ran
        self.held: dict[UOp, HeldBuffer] = {}

    def start(self, sink: UOp, roots: Sequence[UOp], inputs: Mapping[UOp, tuple[str, ...]]) -> None:
        """Called before anything runs: `inputs` maps each BUFFER of the graph `sink` to its contents; `roots` are asked
        for."""
        self._inputs = inputs
        self.variables = find_variables(sink)
        packer = Packer(inputs.get, self.variables)
        try:
            packer.graph.roots = [packer.pack(root) for root in roots]
            for other in sink.src:
                packer.pack(other)
        except CannotPack as error:
            self.evidence.reference_refused = str(error)
            return
        written = packer.find_writes()
        self._touched = packer.find_touched()
        self._chained = {buffer for buffer, writes in written.items() if len(writes) > 1} | packer.find_copied_back()
        self._assigned = {buffer: packer.add_after(buffer, writes) for buffer, writes in written.items()}
        self._slots = {buffer: packer.find_slot(buffer) for buffer in inputs}
        self.evidence.reference = packer.graph

    def finish(self, views: Sequence[UOp]) -> None:
        """Called after the kernels ran: `views` are the outputs as tinygrad has them now. Raises BlobsFull."""
        if self.evidence.reference is None:
            return
        self._keep_held()
        missing = [number for number, value in enumerate(self.evidence.values) if value is None]
        packer = Packer(lambda u: self.folder.keep_all(u.buffer) if u.is_realized else None, self.variables)
        for number in missing:
            try:
                self.evidence.got_roots[number] = packer.pack(views[number])
            except CannotPack as error:
                self.evidence.unchecked.append(f"output {number}: {error}")
        self.evidence.got = packer.graph

    def _keep_held(self) -> None:
        for buffer, before in self._inputs.items():
            if buffer in self._chained:
                # the second of two writes may go to memory of its own, which its tensor then has
                continue
            slot, assigned = self._slots[buffer], self._assigned.get(buffer)
            now = self.folder.keep_all(buffer.buffer)
            if assigned is not None:
                self.held[buffer] = HeldBuffer(assigned, now, True, self.launches.is_written(buffer.buffer))
            elif slot is not None and buffer not in self._touched and now != before:
                launch = self.launches.find_writer(buffer.buffer)
                self.held[buffer] = HeldBuffer(slot, now, False, launch=launch)
        self.evidence.held += self.held.values()
        for part in self.parts:
            self._keep_part(part)
        self._keep_changed()

    def _keep_part(self, part: ChosenPart) -> None:
        """Keeps what a buffer holds after an item assignment: only what the index chooses may change."""
        write, graph = part.write(), self.evidence.reference
        buffer = None if write is None else find_buffer(write.src[0])
        held = None if buffer is None else self.held.get(buffer)
        if graph is None or buffer is None or held is None or len(self._inputs[buffer]) != 1:
            return
        slot, node = self._slots[buffer], graph.nodes[held.slot]
        if slot is None or node.shape != (len(part.chosen),):
            return
        chosen = graph.add(Node("buffer", "bool", node.shape))
        graph.inputs[chosen] = (self.folder.keep_data(part.chosen),)
        right = graph.add(Node("where", node.dtype, node.shape, (chosen, held.slot, slot)))
        shaped = graph.add(Node("reshape", node.dtype, part.shape, (right,)))
        self.evidence.held.append(HeldBuffer(shaped, held.blobs, True, part_of=list(self.held).index(buffer)))

    def _keep_changed(self) -> None:
        """Keeps what Tensors outside of the graph hold now, if they changed."""
        graph, live = self.evidence.reference, self.launches.live
        if graph is None or live is None:
            return
        for buffer, before, now in live.find_changed():
            slot = graph.add(Node("buffer", name_dtype(buffer.dtype), tuple(map(int, buffer.shape))))
            graph.inputs[slot] = before
            launch = self.launches.find_writer(buffer.buffer)
            self.evidence.held.append(HeldBuffer(slot, now, False, is_live=True, launch=launch))
