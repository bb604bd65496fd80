"""Evaluates a graph node by node. Each value is kept until the last node that reads it is computed."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from vmapdbg.reference.arithmetic import FUNCTIONS, OF_FLOATS, Rounding, bitcast, carrier_of, compute, load
from vmapdbg.reference.graph import DEVICES, MOVEMENT, MemoryView, OpGraph, OpNode, Unknown
from vmapdbg.reference.plan import Plan, Product, Windows
from vmapdbg.reference.value import Mask, RangedArray, align, move, stack
from vmapdbg.values.numbers import Array, Numbers, wrap_integer
from vmapdbg.values.tolerance import ITEMSIZE

ROOM = 4 << 30  # the most bytes that the values of a graph take up at a time
_VIEWS = {"expand", "permute", "shrink", "flip", "same", "copy", "vmapin", "vmapout", "const", "shard"}
_SHOWING = MOVEMENT | {"shards", "shard"}  # ops that show a part of memory, or move its elements
_OF_SOURCES: dict[str, Callable[..., RangedArray]] = {  # op -> its function of the node and the values of its sources
    "same": lambda node, source: source,
    "copy": lambda node, source: source,
    "stack": lambda node, *sources: stack(sources),
    "devices": lambda node, *sources: stack(sources, DEVICES),
    "vmapin": lambda node, source: source.enter_scope(node.arg),
    "vmapout": lambda node, source: source.leave_scope(node.arg, node.shape),
}


class Evaluator:
    """Computes one graph. `read` returns an input's contents; `given`: node -> its value. Asked values stay known."""

    def __init__(
        self,
        graph: OpGraph,
        read: Callable[[str], bytes],
        rounding: Rounding | None = None,
        given: Mapping[int, RangedArray] = {},
    ):
        self.graph, self.read = graph, read
        self.rounding = rounding or Rounding()
        self.known: dict[int, RangedArray | Unknown] = dict(given)
        self._values: dict[int, RangedArray | Unknown] = {}
        self._plan = Plan(graph, (), self.known)
        self._held = 0

    def evaluate(self, slots: Iterable[int]) -> list[RangedArray | Unknown]:
        """Returns the value of each node, or why it cannot be computed."""
        asked = tuple(slots)
        if any(slot not in self.known for slot in asked):
            self._compute_all(asked)
        return [self.known[slot] for slot in asked]

    def evaluate_all(self, slots: Iterable[int]) -> list[RangedArray]:
        """Returns the value of each node. Raises Unknown if one of them cannot be computed."""
        asked = list(slots)
        self.evaluate(asked)
        return list(map(self._value, asked))

    def _compute_all(self, asked: Sequence[int]) -> None:
        self._plan = Plan(self.graph, asked, self.known)
        readers = Counter(source for slot in self._plan.order for source in self._plan.list_sources(slot))
        for slot in self._plan.order:
            self._keep(slot, self._try(slot))
            if slot in self._plan.shortcuts:
                for inner in self._plan.shortcuts[slot].skipped:
                    self._drop(inner)
            for source in self._plan.list_sources(slot):
                readers[source] -= 1
                if not readers[source] and source not in asked:
                    self._drop(source)
        for slot in asked:
            if slot not in self.known:
                self.known[slot] = self._values[slot]
        self._values.clear()
        self._held = 0

    def _keep(self, slot: int, value: RangedArray | Unknown) -> None:
        self._values[slot] = value
        self._held += _count_bytes(value)

    def _drop(self, slot: int) -> None:
        if slot in self._values:
            self._held -= _count_bytes(self._values.pop(slot))

    def _value(self, slot: int) -> RangedArray:
        """Returns a value that has been computed. Raises Unknown."""
        found = self.known.get(slot) or self._values[slot]
        if isinstance(found, Unknown):
            raise found
        return found

    def _try(self, slot: int) -> RangedArray | Unknown:
        try:
            self._check_room(slot)
            return self._compute(slot)
        except Unknown as reason:
            return Unknown(str(reason))  # no traceback: it keeps values alive
        except MemoryError:
            return Unknown("there was no memory for it")
        except Exception as error:
            # numpy refuses a malformed graph: other nodes are still computed
            return Unknown(f"the reference failed at {self.graph.nodes[slot].op}: {error}")

    def _check_room(self, slot: int) -> None:
        node = self.graph.nodes[slot]
        if node.op in _VIEWS or isinstance(self._plan.shortcuts.get(slot), Windows):
            return
        if node.op == "reshape":
            before = self.graph.nodes[node.src[0]].shape
            if [size for size in before if size != 1] == [size for size in node.shape if size != 1]:
                return  # to add or remove axes of size 1 is always a view
        self.check_bytes(math.prod(node.shape) * carrier_of(node.dtype).itemsize)

    def check_bytes(self, count: int) -> None:
        """Raises Unknown if there is no room for so many bytes more."""
        if self._held + count > ROOM:
            raise Unknown(f"its computation takes more than {ROOM >> 20:,} MB")

    def _compute(self, slot: int) -> RangedArray:
        node = self.graph.nodes[slot]
        if slot in self._plan.shortcuts:
            value = self._shorten(slot, self._plan.shortcuts[slot])
            if value is not None:
                return value
        if node.op in FUNCTIONS:
            return self._calculate(slot, node)
        if node.op in _SHOWING:
            return self._show(node, self._value(node.src[0]))
        if node.op in _OF_SOURCES:
            return _OF_SOURCES[node.op](node, *map(self._value, node.src))
        method = getattr(self, f"_make_{node.op}", None)
        if method is None:
            raise Unknown(f"nothing is known of the op {node.op}")
        return method(slot, node)

    def _shorten(self, slot: int, shortcut: Product | Windows) -> RangedArray | None:
        """Returns a node's value by its shortcut, or None after computing the skipped nodes, the deepest first."""
        value = self._try_shortcut(slot, shortcut)
        if value is None:
            for inner in reversed(shortcut.skipped):
                self._check_room(inner)
                self._keep(inner, self._compute(inner))
            return None
        if isinstance(shortcut, Product):
            numbers = self.rounding.finish(slot, self.graph.nodes[slot], value.numbers)
            return RangedArray(numbers, value.ranges)
        return value

    def _try_shortcut(self, slot: int, shortcut: Product | Windows) -> RangedArray | None:
        return shortcut.compute(self.graph, slot, list(map(self._value, shortcut.sources)))

    def _calculate(self, slot: int, node: OpNode) -> RangedArray:
        spread, ranges = align(list(map(self._value, node.src)))
        numbers = [self._carry(slot, node, i, value) for i, value in enumerate(spread)]
        result, undefined = compute(node.op, numbers)
        value = RangedArray(self.rounding.finish(slot, node, result), ranges).mark(undefined)
        if all(operand.undefined is None for operand in spread):
            return value
        if node.op == "where":
            # an element is undefined if the condition is, or the operand that it chooses
            condition, chosen, other = spread
            return value.mark(condition.mask | np.where(condition.numbers, chosen.mask, other.mask))
        for operand in spread:
            value = value.mark(operand.undefined)
        return value

    def _carry(self, slot: int, node: OpNode, index: int, operand: RangedArray) -> np.ndarray:
        """Returns an operand in the dtype of the op. In comparisons, conditions and distances it keeps its dtype."""
        has_other_dtype = self.graph.nodes[node.src[index]].dtype != node.dtype
        if (has_other_dtype or node.op in {"shl", "shr"}) and node.op not in OF_FLOATS:
            return operand.numbers
        return self.rounding.carry(slot, node, operand.numbers)

    def _show(self, node: OpNode, source: RangedArray) -> RangedArray:
        if node.op == "shards":
            return source.join_shards(node.arg, DEVICES, self.graph.ranges[DEVICES])
        if node.op == "shard":
            return source.take_step(DEVICES, node.arg)
        return self._move(node, source, list(map(self._value, node.src[1:])))

    def _move(self, node: OpNode, source: RangedArray, numbers: Sequence[RangedArray]) -> RangedArray:
        """Applies a movement op, step by step if its numbers depend on a step range."""
        name = next((name for number in numbers for name in number.ranges), None)
        if name is None:
            known = iter(int(number.numbers) for number in numbers)
            return move(node, source, tuple(next(known) if one is None else one for one in node.arg or ()))
        parts: list[RangedArray] = []
        for step in range(self.graph.ranges[name]):
            at_step = [number.take_step(name, step) for number in numbers]
            parts.append(self._move(node, source.take_step(name, step), at_step))
        return stack(parts, name)

    def _make_buffer(self, slot: int, node: OpNode) -> RangedArray:
        names = self.graph.inputs.get(slot)
        if names is None:
            raise Unknown("the contents of an input are not known")
        parts = [load(Array(self.read(name), node.dtype, node.shape)) for name in names]
        if len(parts) == 1:
            return RangedArray(self.rounding.start(slot, node, parts[0]))
        return RangedArray(self.rounding.start(slot, node, np.stack(parts)), (DEVICES,))

    def _make_const(self, slot: int, node: OpNode) -> RangedArray:
        carrier = carrier_of(node.dtype)
        number = np.asarray(node.arg) if carrier.kind in "bf" else wrap_integer(node.arg, carrier)
        return RangedArray(np.broadcast_to(self.rounding.finish(slot, node, number), node.shape))

    def _make_step(self, slot: int, node: OpNode) -> RangedArray:
        name, count = node.arg
        return RangedArray(np.arange(count, dtype=carrier_of(node.dtype)), (name,))

    def _make_cast(self, slot: int, node: OpNode) -> RangedArray:
        source = self._value(node.src[0])
        dtype = self.graph.nodes[node.src[0]].dtype
        numbers, undefined = self.rounding.cast(slot, node, source.numbers, dtype)
        return RangedArray(numbers, source.ranges, source.undefined).mark(undefined)

    def _make_bitcast(self, slot: int, node: OpNode) -> RangedArray:
        source = self._value(node.src[0])
        dtype = self.graph.nodes[node.src[0]].dtype
        if dtype == node.dtype:
            return source
        if source.undefined is not None and ITEMSIZE[dtype] != ITEMSIZE[node.dtype]:
            raise Unknown("some of the bits that it looks at are undefined")
        numbers = bitcast(source.numbers, dtype, node.dtype)
        return RangedArray(self.rounding.start(slot, node, numbers), source.ranges, source.undefined)

    def _make_reduce(self, slot: int, node: OpNode) -> RangedArray:
        op, axes, keep, names = node.arg
        source = self._value(node.src[0])
        for name in names:
            if name not in source.ranges:
                source = source.repeat_steps(name, self.graph.ranges[name])
        reduced = source.reduce(op, axes, keep, names)
        return RangedArray(self.rounding.finish(slot, node, reduced.numbers), reduced.ranges, reduced.undefined)

    def _make_assign(self, slot: int, node: OpNode) -> RangedArray:
        value = self._value(node.src[1])
        return value.move(np.broadcast_to, (*value.numbers.shape[: len(value.ranges)], *node.shape))

    def _make_after(self, slot: int, node: OpNode) -> RangedArray:
        shown = self.graph.find_view(node.src[0])
        base = self.graph.nodes[shown.base]
        known = self.known.get(shown.base, self._values.get(shown.base))
        memory = None
        # else: new memory, whose contents are not known before a write fills it
        if not isinstance(known, Unknown):
            memory = self._value(shown.base)
        for written in self.graph.find_writes(slot):
            target = self.graph.nodes[written].src[0]
            view, seen = self.graph.find_view(target), self.graph.nodes[target]
            if view.base != shown.base:
                raise Unknown("a write to a buffer that is not read after it")
            value = recast(self._value(self.graph.value_of_write(written, self.known)), seen.dtype, base.dtype)
            if self.graph.is_whole(view) and (memory is None or value.ranges == memory.ranges):
                batch = value.numbers.shape[: len(value.ranges)]
                memory = value.move(np.broadcast_to, (*batch, *seen.shape)).move(np.reshape, (*batch, *base.shape))
                continue
            memory = memory or self._value(view.base)
            elements = np.arange(memory.numbers.size).reshape(memory.numbers.shape)
            memory = write(memory, self._follow(view, RangedArray(elements, memory.ranges)), value)
        return recast(self._follow(shown, memory or self._value(shown.base)), base.dtype, node.dtype)

    def _follow(self, view: MemoryView, memory: RangedArray) -> RangedArray:
        """Returns what a view shows of memory that has the shape of the view's base."""
        value = memory
        for node in map(self.graph.nodes.__getitem__, view.path):
            if node.op in _SHOWING:
                value = self._show(node, value)
            elif node.op == "bitcast" and ITEMSIZE[node.dtype] != ITEMSIZE[self.graph.nodes[node.src[0]].dtype]:
                raise Unknown("a write through a bitcast to elements of another size")
        return value


def _count_bytes(value: RangedArray | Unknown) -> int:
    if isinstance(value, Unknown) or value.numbers.base is not None:
        return 0
    return value.numbers.nbytes


def write(memory: RangedArray, places: RangedArray, value: RangedArray) -> RangedArray:
    """Returns memory with a value written to `places`: the number of an element of memory for each element."""
    if not set(value.ranges) <= set(places.ranges):
        raise Unknown("the written value depends on a step, and its place does not")
    numbers, undefined = memory.numbers.copy(), memory.mask.copy()
    write_steps(numbers.reshape(-1), undefined.reshape(-1), value, [places], [])
    return RangedArray(numbers, memory.ranges).mark(undefined)


def clip_places(indices: Sequence[Numbers], sizes: Sequence[int]) -> tuple[tuple[Numbers, ...], Mask]:
    """Returns indices within the first axes of memory, and which of them were outside of it."""
    outside = np.zeros((), np.bool_)
    clipped = []
    for index, size in zip(indices, sizes, strict=False):
        is_beyond = (index < 0) | (index >= size)
        outside = outside | is_beyond
        clipped.append(np.where(is_beyond, 0, index))
    return tuple(clipped), outside


def write_steps(
    memory: Numbers, undefined: Mask, value: RangedArray, indices: Sequence[RangedArray], gates: Sequence[RangedArray]
) -> None:
    """Writes a value at `indices` (one an axis) where all `gates` hold; updates `undefined`. Raises Unknown."""
    spread, _ = align([value, *indices, *gates])
    shape = np.broadcast_shapes(*(one.numbers.shape for one in spread))
    what, *others = (np.broadcast_to(one.numbers, shape) for one in spread)
    is_written = np.ones(shape, np.bool_)
    for gate in others[len(indices) :]:
        is_written &= gate
    places, outside = clip_places(others[: len(indices)], memory.shape)
    if (outside & is_written).any():
        raise Unknown("it writes outside of its buffer")
    # if two values go to one place the value of the later step stays, as in the loops of the kernel
    chosen = tuple(place[is_written] for place in places)
    memory[chosen] = what[is_written]
    undefined[chosen] = np.broadcast_to(spread[0].mask, shape)[is_written]


def recast(value: RangedArray, before: str, after: str) -> RangedArray:
    """Reads elements of dtype `before` as dtype `after`, which has the same size."""
    if before == after:
        return value
    return RangedArray(bitcast(value.numbers, before, after), value.ranges, value.undefined)
