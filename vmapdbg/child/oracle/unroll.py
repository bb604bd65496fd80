"""Computes a packed graph on stock tinygrad, one element of each vmap scope after the other. Runs without the overlay.

The RANGE of a scope is replaced by 0, 1, ... n-1. A VMAPIN is the slice of its source at that number, a VMAPOUT the
slices put in their places. Both are done here, on bytes; what is between them is an ordinary graph, which stock
tinygrad schedules and runs. Each step of a scope is the same graph with other inputs, so that only the first one is
compiled."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tinygrad.dtype import dtypes
from tinygrad.tensor import Tensor
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

from vmapdbg.child.evidence.graphs import PackedGraph, PackedNode
from vmapdbg.child.oracle.in_double import Widening
from vmapdbg.values.numbers import Array
from vmapdbg.values.slices import Builder, take_slice

Env = Mapping[int, int]
"""Place of a RANGE -> the number that stands for it."""

_SCOPE = {"VMAPIN", "VMAPOUT"}
_COMPUTED = {op.name for op in GroupOp.ALU}


class Unroller:
    """One packed graph. `device` is what everything runs on, None the graph's own devices. With `widening` floats are
    computed in double precision. `given` has values of nodes, by place, that are taken instead of computed, the same
    at every step.
    """

    def __init__(
        self,
        graph: PackedGraph,
        read: Callable[[str], bytes],
        device: str | None = None,
        widening: Widening | None = None,
        given: Mapping[int, Array] = {},
    ):
        self.graph, self.read, self.device, self.widening, self.given = graph, read, device, widening, given
        self.scope_ranges = {r for i in range(len(graph.nodes)) for r in self.named_ranges(i)}
        self.open = self.find_open()
        # where floats are not widened
        self.fixed = set() if widening is None else widening.find_fixed(graph)
        self.evaluations = 0
        self._known: dict[tuple[Any, ...], Array] = {}
        self._buffers: dict[int, UOp] = {}
        # an ASSIGN writes to its inputs: they are made anew each time
        self._keep_buffers = all(node.op != "ASSIGN" for node in graph.nodes)

    # *** what the graph says

    def node(self, place: int) -> PackedNode:
        return self.graph.nodes[place]

    def named_ranges(self, place: int) -> tuple[int, ...]:
        """The RANGEs in the varg of a VMAPIN or VMAPOUT."""
        node = self.node(place)
        return tuple(v for v in node.src[1:] if self.node(v).op == "RANGE") if node.op in _SCOPE else ()

    def size(self, range_place: int) -> int:
        return int(self.node(self.node(range_place).src[0]).arg)

    def find_open(self) -> list[frozenset[int]]:
        """For each node the RANGEs of scopes that it is inside of: it has one value for each of their steps."""
        found: list[frozenset[int]] = []
        for place, node in enumerate(self.graph.nodes):
            if node.op == "VMAPOUT":
                found.append(found[node.src[0]] - set(self.named_ranges(place)))
                continue
            ranges = frozenset().union(*(found[s] for s in node.src)) if node.src else frozenset()
            if place in self.scope_ranges:
                ranges |= {place}
            elif node.op == "REDUCE":
                ranges = found[node.src[0]] - set(node.src[1:])
            found.append(ranges)
        return found

    def count_roundings(self, place: int) -> int:
        """Returns how many roundings there are on the longest way from an input: one an op, n for a reduce of n."""
        if not hasattr(self, "_roundings"):
            self._roundings: list[int] = []
            for node in self.graph.nodes:
                before = max((self._roundings[s] for s in node.src), default=0)
                self._roundings.append(before + self._count_own(node))
        return self._roundings[place]

    def _count_own(self, node: PackedNode) -> int:
        if node.op == "REDUCE_AXIS":
            shape: tuple[Any, ...] = self.node(node.src[0]).shape or ()
            return math.prod(shape[axis] for axis in node.arg[1] if axis < len(shape))
        if node.op == "REDUCE":
            return math.prod(self.size(r) for r in node.src[1:])
        return int(node.op in _COMPUTED and dtypes.is_float(node.dtype))

    def count_evaluations(self, place: int) -> int:
        """Returns at most how many graphs must run for the value of a node."""
        return 1 + sum(self._count_boundary(b) for b in self.find_boundaries(place))

    def _count_boundary(self, place: int) -> int:
        source = self.node(place).src[0]
        steps = 1
        if self.node(place).op == "VMAPOUT":
            steps = math.prod(self.size(r) for r in self.named_ranges(place) if r in self.open[source])
        return steps * self.count_evaluations(source)

    def find_boundaries(self, place: int) -> list[int]:
        """The VMAPINs and VMAPOUTs that the graph of a node ends at."""
        return [p for p in self._reach(place) if self.node(p).op in _SCOPE]

    def _reach(self, place: int) -> list[int]:
        found, stack = set(), [place]
        while stack:
            p = stack.pop()
            if p not in found:
                found.add(p)
                if self.node(p).op not in _SCOPE and p not in self.given:
                    stack += self.node(p).src
        return sorted(found)

    # *** values

    def evaluate(self, places: Iterable[int], env: Env = {}) -> list[Array]:  # noqa: B006
        """Returns the values of nodes, computed together as one schedule, at the steps that `env` gives."""
        wanted = list(places)
        uops = [self.build(place, env).contiguous() for place in wanted]
        tensors = [Tensor(u, device=u.device) for u in uops]
        pending = [t for t in tensors if not t.uop.is_contiguous()]
        if pending:
            self.evaluations += 1
            Tensor.realize(*pending)
        return list(map(self._read, tensors))

    def _read(self, tensor: Tensor) -> Array:
        buffer: Any = tensor.uop.base.buffer
        name = str(tensor.dtype).removeprefix("dtypes.")
        return Array(bytes(buffer.ensure_allocated().as_buffer()), name, tuple(int(s) for s in tensor.shape))

    def evaluate_batch(self, place: int) -> Array:
        """Returns the value of a node inside scopes for every step of them: their sizes are the first axes."""
        return self._collect(place, self.ambient(place), {}, tuple(range(len(self.ambient(place)))))

    def find_leaving(self, place: int) -> int | None:
        """The VMAPOUT whose elements, in its order, are those of a node; None where there is none."""
        while self.node(place).op in {"CONTIGUOUS", "RESHAPE"}:
            place = self.node(place).src[0]
        return place if self.node(place).op == "VMAPOUT" and self.node(place).shape is not None else None

    def evaluate_step(self, place: int, step: int) -> Array:
        """Returns one slice of a VMAPOUT: that of one step of its first RANGE, all steps of the others."""
        node = self.node(place)
        first, *others = self.named_ranges(place)
        axes = [axis for axis, v in enumerate(node.src[1:]) if v in others]
        gone = node.src[1:].index(first)
        return self._collect(node.src[0], tuple(others), {first: step}, tuple(a - (a > gone) for a in axes))

    def ambient(self, place: int) -> tuple[int, ...]:
        """The RANGEs that are open in a node, outermost id first."""
        return tuple(sorted(self.open[place], key=lambda r: -self.node(r).arg[0]))

    def evaluate_boundary(self, place: int, env: Env) -> Array:
        """Returns the value of a VMAPIN or VMAPOUT at the steps of `env`."""
        key = (place, *((r, env[r]) for r in sorted(self.open[place])))
        if key not in self._known:
            self._known[key] = self._slice(place, env) if self.node(place).op == "VMAPIN" else self._stack(place, env)
        return self._known[key]

    def _value(self, place: int, env: Env) -> Array:
        if place in self.given:
            return self.given[place]
        if self.node(place).op in _SCOPE:
            return self.evaluate_boundary(place, env)
        key = ("value", place, *((r, env[r]) for r in sorted(self.open[place])))
        if key not in self._known:
            self._known[key] = self.evaluate([place], env)[0]
        return self._known[key]

    def _slice(self, place: int, env: Env) -> Array:
        node = self.node(place)
        source = self._value(node.src[0], env)
        fixed = {axis: env[v] for axis, v in enumerate(node.src[1:]) if self.node(v).op == "RANGE"}
        return take_slice(source, fixed)

    def _stack(self, place: int, env: Env) -> Array:
        node = self.node(place)
        axes = tuple(axis for axis, v in enumerate(node.src[1:]) if self.node(v).op == "RANGE")
        return self._collect(node.src[0], self.named_ranges(place), env, axes)

    def _collect(self, place: int, ranges: tuple[int, ...], env: Env, axes: tuple[int, ...]) -> Array:
        """The values of a node at all steps of `ranges`, which become the `axes` of the result."""
        sizes = [self.size(r) for r in ranges]
        result: Builder | None = None
        for steps in itertools.product(*map(range, sizes)):
            value = self._value(place, {**env, **dict(zip(ranges, steps, strict=True))})
            result = result or Builder(value, axes, sizes)
            result.put(value, steps)
        assert result is not None, "a RANGE has at least one step"
        return result.finish()

    # *** the graph between boundaries

    def build(self, place: int, env: Env) -> UOp:
        """Returns the UOp of a node with RANGEs replaced by their steps, VMAPIN and VMAPOUT by buffers of their
        values.
        """
        built: dict[int, UOp] = {}
        for p in self._reach(place):
            node = self.node(p)
            if p in self.given:
                built[p] = self._input(self.given[p], self._find_device(p))
            elif node.op in _SCOPE:
                built[p] = self._input(self.evaluate_boundary(p, env), self._find_device(p))
            elif node.op == "BUFFER":
                built[p] = self._given(p)
            elif p in env:
                built[p] = UOp.const(node.dtype, env[p])
            else:
                built[p] = self._build_node(p, [built[s] for s in node.src if s in built])
        return built[place]

    def _build_node(self, place: int, sources: list[UOp]) -> UOp:
        node = self.node(place)
        if node.op == "DEVICE":
            return UOp(Ops.DEVICE, arg=self._map_device(node.arg))
        if node.op == "CONST":
            # what tells constants of one value apart (UNIQUE) is nothing to the value
            sources = [s for s in sources if s.op not in {Ops.UNIQUE, Ops.LUNIQUE}]
        widening = None if place in self.fixed else self.widening
        dtype = node.dtype
        if widening is not None:
            sources = [s.cast(dtypes.double) if dtypes.is_float(s.dtype) else s for s in sources]
            dtype = widening.widen(dtype)
        u = UOp(Ops[node.op], dtype, tuple(sources), node.arg)
        if widening is not None and (step := widening.find_step(node, place)) is not None:
            return u * u.const_like(step)
        # the sizes of movement ops must be numbers where RANGEs were replaced
        return u.simplify() if dtype.scalar() == dtypes.index and sources and node.op != "RANGE" else u

    def _map_device(self, device: str) -> str:
        if self.device is not None:
            return self.device
        return "PYTHON" if device.startswith("NPY") else device

    def _find_device(self, place: int) -> str:
        while self.node(place).op not in {"DEVICE"}:
            node = self.node(place)
            place = node.src[1] if node.op in {"BUFFER", "COPY"} else self._first_with_device(node)
        return self._map_device(self.node(place).arg)

    def _first_with_device(self, node: PackedNode) -> int:
        if not hasattr(self, "_located"):
            self._located: list[bool] = []
            for n in self.graph.nodes:
                self._located.append(n.op == "DEVICE" or any(self._located[s] for s in n.src))
        return next(s for s in node.src if self._located[s])

    def _given(self, place: int) -> UOp:
        """The BUFFER of an input, with its contents."""
        if place not in self._buffers or not self._keep_buffers:
            node = self.node(place)
            data = self.read(self.graph.blobs[place])
            array = Array(data, str(node.dtype).removeprefix("dtypes."), (int(node.arg),))
            if self.widening is not None and place not in self.fixed:
                array = self.widening.convert(array, place)
            self._buffers[place] = self._input(array, self._find_device(place))
        return self._buffers[place]

    def _input(self, array: Array, device: str) -> UOp:
        """Returns a new buffer with the contents and shape of `array`."""
        size = math.prod(array.shape)
        buffer = UOp.new_buffer(device, size, getattr(dtypes, array.dtype))
        memory: Any = buffer.buffer
        memory.allocate()
        if size:
            memory.copyin(memoryview(bytearray(array.data)))
        return buffer.reshape(array.shape)
