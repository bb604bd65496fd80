"""The oracle that runs a graph on stock tinygrad, on the graph's own devices. Runs without the overlay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tinygrad.dtype import dtypes
from tinygrad.helpers import Context
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

from vmapdbg.child.compare.in_double import Widening
from vmapdbg.child.compare.oracle import Read
from vmapdbg.child.compare.scopes import SCOPE_OPS
from vmapdbg.child.compare.unroll import Env, GraphRunner, UnrolledOracle
from vmapdbg.child.evidence.graphs import PackedGraph
from vmapdbg.child.memory import make_buffer, name_dtype, read_buffer
from vmapdbg.values.numbers import Array

DESCRIPTION = "stock tinygrad, each vmap scope unrolled"


class StockRunner(GraphRunner):
    """Builds the graph again and realizes it. `device` is what everything runs on, None the graph's own devices."""

    device: str | None = None

    def __init__(self, graph: PackedGraph, read: Read, widening: Widening | None):
        super().__init__(graph, read, widening)
        # where floats are not widened
        self.fixed = set() if widening is None else widening.find_fixed(graph)
        self._buffers: dict[int, UOp] = {}
        self._devices: list[str] = []
        # an ASSIGN writes to its inputs: they are made anew each time
        self._keep_buffers = all(node.op != "ASSIGN" for node in graph.nodes)

    @classmethod
    def refuse(cls, graph: PackedGraph) -> str | None:
        unknown = {node.op for node in graph.nodes} - SCOPE_OPS - set(Ops.__members__)
        if not unknown:
            return None
        return f"it has no {', '.join(sorted(unknown))}"

    def compute(self, slots: Sequence[int], env: Env, known: Mapping[int, Array]) -> list[Array]:
        """Computes the nodes together, as one schedule."""
        uops = [self.build(slot, env, known).contiguous() for slot in slots]
        tensors = [Tensor(u, device=u.device) for u in uops]
        pending = [t for t in tensors if not t.uop.is_contiguous()]
        if pending:
            self.evaluations += 1
            # what the snippet was run with changes kernels, not values: BEAM would search again
            with Context(BEAM=0):
                Tensor.realize(*pending)
        return list(map(_read_tensor, tensors))

    def build(self, slot: int, env: Env, known: Mapping[int, Array]) -> UOp:
        """Returns the UOp of a node with RANGEs replaced by their steps, what is known by buffers of its values."""
        built: dict[int, UOp] = {}
        for s in self.graph.reach(slot, known):
            node = self.graph.nodes[s]
            if s in known:
                built[s] = _make_input(known[s], self._find_device(s))
            elif node.op == "BUFFER":
                built[s] = self._make_given(s)
            elif s in env:
                built[s] = UOp.const(node.dtype, env[s])
            else:
                built[s] = self._build_node(s, [built[source] for source in node.src if source in built])
        return built[slot]

    def _build_node(self, slot: int, sources: list[UOp]) -> UOp:
        node = self.graph.nodes[slot]
        if node.op == "DEVICE":
            return UOp(Ops.DEVICE, arg=self._map_device(node.arg))
        if node.op == "CONST":
            # what tells constants of one value apart (UNIQUE) is nothing to the value
            sources = [s for s in sources if s.op not in {Ops.UNIQUE, Ops.LUNIQUE}]
        widening = None if slot in self.fixed else self.widening
        dtype = node.dtype
        if widening is not None:
            sources = [s.cast(dtypes.double) if dtypes.is_float(s.dtype) else s for s in sources]
            dtype = widening.widen(dtype)
        u = UOp(Ops[node.op], dtype, tuple(sources), node.arg)
        if widening is not None and (step := widening.find_step(node, slot)) is not None:
            return u * u.const_like(step)
        # the sizes of movement ops must be numbers where RANGEs were replaced
        if dtype.scalar() == dtypes.index and sources and node.op != "RANGE":
            return u.simplify()
        return u

    def _map_device(self, device: str) -> str:
        if self.device is not None:
            return self.device
        return "PYTHON" if device.startswith("NPY") else device

    def _find_device(self, slot: int) -> str:
        """Returns the device that a node is on: a node without one of its own has that of its first source with one."""
        if not self._devices:
            for node in self.graph.nodes:
                device = next((self._devices[s] for s in node.src if self._devices[s]), "")
                if node.op == "DEVICE":
                    device = node.arg
                elif node.op == "COPY":
                    # not where its source is
                    device = self._devices[node.src[1]]
                self._devices.append(device)
        return self._map_device(self._devices[slot])

    def _make_given(self, slot: int) -> UOp:
        """The BUFFER of an input, with its contents."""
        if slot not in self._buffers or not self._keep_buffers:
            node = self.graph.nodes[slot]
            data = self.read(self.graph.blobs[slot])
            array = Array(data, name_dtype(node.dtype), (int(node.arg),))
            if self.widening is not None and slot not in self.fixed:
                array = self.widening.convert(array, slot)
            self._buffers[slot] = _make_input(array, self._find_device(slot))
        return self._buffers[slot]


def _make_input(array: Array, device: str) -> UOp:
    """Returns a new buffer with the contents and shape of `array`."""
    buffer = make_buffer(device, math.prod(array.shape), getattr(dtypes, array.dtype), array.data)
    return buffer.reshape(array.shape)


def _read_tensor(tensor: Tensor) -> Array:
    data = read_buffer(tensor.uop.base.buffer)
    return Array(data, name_dtype(tensor.dtype), tuple(int(s) for s in tensor.shape))


ORACLE = UnrolledOracle(StockRunner)
