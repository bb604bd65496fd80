"""A call of `Tensor.realize` on patched tinygrad 0.12.0. Runs in the child."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vmapdbg.child.evidence.folder import BlobsFull, EvidenceFolder
from vmapdbg.child.evidence.graphs import Evidence, Sealed, pack_graph
from vmapdbg.child.evidence.obstacles import find_obstacle
from vmapdbg.child.evidence.packer import Packer
from vmapdbg.child.evidence.passed import NodeBuffer, find_dimensions, group_launches, list_range_ids, pack_buffers
from vmapdbg.child.evidence.realize_call import RealizeCall
from vmapdbg.child.failures.known_nodes import KnownNodes
from vmapdbg.child.listen.overlay_recorder import PassRecord
from vmapdbg.child.memory import read_buffer

UOp = Any


class OverlayCall(RealizeCall):
    """Its outputs are read as the arrays that they are, and it can be computed again by tinygrad in another process."""

    def __init__(self, folder: EvidenceFolder, asked: Sequence[Any]):
        """`asked` are the Tensors that have something to compute."""
        super().__init__(folder, [t.uop.base for t in asked])
        # Tensors of the roots: tinygrad tells them where their values are
        self.probes = [type(t)(u, device=u.device) for t, u in zip(asked, self.roots, strict=True)]

    def _start(self, sink: UOp) -> str | None:
        reason = super()._start(sink)
        if reason is None:
            self.evidence.refused = find_obstacle(sink)
            if self.evidence.refused is None:
                self.evidence.graph = Sealed(pack_graph(self.roots, lambda u: self.inputs[u][0]))
        return reason

    def fail(self, error: BaseException, nodes: KnownNodes, passes: Sequence[PassRecord | None]) -> None:
        super().fail(error, nodes, passes)
        passed, index = self._find_passed(passes), self.launches.failed
        if passed is None or index is None:
            return
        groups = self._group_launches(passed) or []
        item = next(number for number, launches in enumerate(groups) if index in launches)
        written, self.evidence.failed_kernel = passed.items[item]
        self.evidence.failed_node = passed.find_ids().get(passed.buffers.get(written))

    # *** what replays of the call ask, too

    def settle(self, memory: set[UOp] | None) -> None:
        """0.12's replays use the BUFFERs of the call itself."""

    def find_buffers(self) -> list[Any]:
        bases = [probe.uop.base for probe in self.probes]
        return [base.buffer if base.op.name == "BUFFER" else None for base in bases]

    def keep_outputs(self, evidence: Evidence, moved: Mapping[int, Any]) -> None:
        evidence.values = [self._read_value(t, u, moved) for t, u in zip(self.probes, self.roots, strict=True)]

    # *** parts

    def _read_value(self, probe: Any, root: UOp, moved: Mapping[int, Any]) -> str | None:
        """Keeps the contents of an output as they are now and returns their name, None where there are none. Raises
        BlobsFull."""
        # in the output's own shape: tinygrad does not store an axis that its value does not depend on, and expands the
        # buffer where it is read
        view = probe.uop
        if view.base.op.name != "BUFFER" or not view.base.is_realized or not _is_plain(root):
            return None
        size = math.prod(map(int, root.shape)) * root.dtype.itemsize
        # an expanded buffer may be far larger than its memory
        if size > self.folder.room:
            raise BlobsFull
        buffer = moved.get(id(view.base.buffer), view.base.buffer)
        data = expand_view(read_buffer(buffer), view)
        if data is None or len(data) != size:
            return None
        return self.folder.keep_data(data)

    def _keep_values(self) -> None:
        self.keep_outputs(self.evidence, {})
        self.reference.finish([probe.uop for probe in self.probes])

    def _find_passed(self, passes: Sequence[PassRecord | None]) -> PassRecord | None:
        """Returns the record of the pass, None where it is not that of the kernels that ran."""
        passed = passes[-1] if passes else None
        if passed is None or self._group_launches(passed) is None:
            return None
        return passed

    def _group_launches(self, passed: PassRecord) -> list[tuple[int, ...]] | None:
        return group_launches([written for written, _ in passed.items], len(self.launches.steps))

    def _pack_passed(self, passes: Sequence[PassRecord | None]) -> None:
        passed = self._find_passed(passes)
        if passed is None:
            return
        found = list(self._find_buffers(passed))
        find_contents = self._find_contents(passed)
        if self.evidence.graph is not None:
            nodes = [one.node for one in found]
            self.evidence.passed = Sealed(pack_graph(nodes, lambda u: (find_contents(u) or (None,))[0]))
        packer = Packer(find_contents, self.reference.variables)
        pack_buffers(self.evidence, found, self.launches, packer, self.packs_late)
        self.evidence.range_names |= {r.arg[0]: r.render(simplify=False) for r in passed.scope_ranges}

    def _find_buffers(self, passed: PassRecord) -> Iterator[NodeBuffer]:
        """Yields the buffers of nodes that were kept."""
        ids = passed.find_ids()
        for (written, kernel), launches in zip(passed.items, self._group_launches(passed) or (), strict=False):
            if any(launch not in self.launches.written for launch in launches):
                continue
            node, stored = passed.buffers.get(written), passed.stored.get(written)
            made = passed.bufferizes.get(node)
            if node is None or stored is None or made is None:
                continue
            closed = list_range_ids(made.buffer.src[1:])
            dimensions = tuple(find_dimensions(stored, closed))
            yield NodeBuffer(launches, kernel, node, ids[node], closed, dimensions)


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
