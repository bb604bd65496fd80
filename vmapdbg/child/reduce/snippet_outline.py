"""What of a tensor graph becomes what in a snippet: inputs, values, and how often each is read. Runs in the child."""

from __future__ import annotations

from tinygrad.device import Device
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

from vmapdbg.child.reduce.snippet_forms import REDUCES, find_scalar, ints, is_python_data


class Outline:
    """The nodes of a graph, who reads them, and how often each is written in the text of another one (`reads`)."""

    def __init__(self, outputs: list[UOp]):
        self.outputs = outputs
        self.nodes = list(UOp.sink(*outputs).toposort())
        self.readers: dict[UOp, list[UOp]] = {u: [] for u in self.nodes}
        for u in self.nodes:
            for s in u.src:
                self.readers[s].append(u)
        self.reads = self.count_reads()

    def count_reads(self) -> dict[UOp, int]:
        """How often each node is written in the text of another one; a node that is not in it is not written."""
        reads = {u: self.outputs.count(u) for u in self.outputs}
        for u in reversed(self.nodes):
            if u in reads and is_tensor(u):
                for s in self.find_operands(u):
                    reads[s] = reads.get(s, 0) + 1
        return reads

    def find_operands(self, u: UOp) -> list[UOp]:
        """The sources that are written as Tensors. An input has none, a number beside an operator is none."""
        if self.find_input(u) is not None:
            return []
        if (reduced := self.find_dropped(u)) is not None:
            return [reduced.src[0]]
        scalar = find_scalar(u)
        if scalar is not None:
            return [s for i, s in enumerate(u.src) if i != scalar]
        return [s for s in u.src if is_tensor(s)]

    def find_input(self, u: UOp) -> UOp | None:
        """The BUFFER, or the COPY of Python numbers, that a node is the contents of, in the shape it is read in."""
        source = u
        while source.op is Ops.RESHAPE and (source is u or len(self.readers[source]) == 1):
            source = source.src[0]
        if not ints(u._shape) or (source is not u and len(self.readers[source]) > 1):
            return None
        if source.op is Ops.BUFFER:
            return source
        # Tensor([...]) that is not realized yet
        if u.op is Ops.COPY and is_python_data(u) and u.device == Device.DEFAULT:
            return u
        return None

    def find_dropped(self, u: UOp) -> UOp | None:
        """The reduce whose axes a RESHAPE drops: `sum(axis)` ends with one."""
        if u.op is not Ops.RESHAPE or u.src[0].op is not Ops.REDUCE_AXIS or len(self.readers[u.src[0]]) != 1:
            return None
        reduced = u.src[0]
        kept = tuple(s for i, s in enumerate(reduced.src[0].shape) if i not in reduced.arg[1])
        if kept != u.shape or reduced.arg[0] not in REDUCES:
            return None
        return reduced


def is_tensor(u: UOp) -> bool:
    """Whether the node is written as a Tensor: not indices, not where things are, not what has no device."""
    if u.op in {Ops.DEVICE, Ops.UNIQUE, Ops.SINK, Ops.RANGE} or u.dtype.scalar() == dtypes.index:
        return False
    return u.op is not Ops.DEFINE_VAR and u._device is not None
