"""Computes a kernel by numpy at any stage of code generation: from its AST, with ranges and reduces, to the graph of
its linear program, with vectors, registers and loops. Runs where tinygrad is.

The steps of the loops around a store are the rows of an array, the lanes of a value its columns, so that one numpy call
computes an op for all of them. The loops that write to a register run one step after the other."""

import itertools
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmapdbg.child.memory import name_dtype, scalar_of
from vmapdbg.child.program import tensor_cores, uops
from vmapdbg.child.program.tensor_cores import Axes, list_lanes, read_core
from vmapdbg.child.program.uops import dtype_of, find_memory, find_space, is_argument, lanes_of, shape_of
from vmapdbg.model.ops import ARITHMETIC, STAGE_OPS
from vmapdbg.reference.arithmetic import bitcast, carrier_of, cast, compute, settle
from vmapdbg.reference.graph import Unknown
from vmapdbg.reference.value import sum_dtype
from vmapdbg.values.numbers import Numbers, wrap_integer
from vmapdbg.values.tolerance import ITEMSIZE, is_float

UOp = Any
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]
Steps = dict[UOp, Whole]
MOST_ROWS = 1 << 20
"""The most steps that are computed at a time."""
MOST_OPS = 1_000_000
"""The most numpy calls for a kernel, on up to 16,384 rows each: some seconds."""
_COMPARISONS = frozenset({"lt", "ne", "eq"})
_SAME = frozenset({"CONTIGUOUS", "NOOP", "DETACH", "RESHAPE"})
_OF_FIRST = _SAME | {"EXPAND", "PERMUTE", "GEP", "CAST", "BITCAST"}
_EFFECTS = frozenset({"SINK", "GROUP", "NOOP", "BARRIER", "END", "STORE", "AFTER"})
_THREAD_AXES = frozenset({"LOCAL", "WARP", "GROUP_REDUCE"})
# an invalid index: no sum of it and a valid index is an element
_INVALID = -(1 << 36)
_REDUCES: dict[str, Any] = {"ADD": np.add, "MUL": np.multiply, "MAX": np.maximum}
Place = tuple[UOp, Whole, Flags | None]
"""What a pointer addresses: memory, an element for each row and lane, and which of them are valid (None: all)."""


class LeavesMemory(Unknown):
    """A kernel writes outside of its buffers, or not at all."""


class ReadsOutside(Unknown):
    """A kernel reads outside of its buffers."""


class Interpreter:
    """One run of a kernel. `contents` maps the slot of an argument to its elements, and `dtypes` to their dtype, if a
    stage of the kernel may read the same bytes as another one. `variables` maps names to values. With `promotes`,
    integers smaller than an int become an int in each op, as in C: only a cast, and memory, make them small again."""

    def __init__(
        self,
        contents: Mapping[int, Numbers],
        variables: Mapping[str, int],
        promotes: bool = False,
        dtypes: Mapping[int, str] = {},
    ):
        self.contents, self.variables, self.promotes, self.dtypes = contents, variables, promotes, dtypes
        self.text: Sequence[UOp] = ()  # a linear program in its order; empty at an earlier stage
        # register -> its elements for each row; LOCAL memory -> its elements for each group of rows
        self.registers: dict[UOp, Numbers] = {}
        self.threads = 1  # how many rows are the threads of one group, if these need each other
        self.has_later_threads = True  # whether steps of loops may become threads that share LOCAL memory
        self.calls = 0
        self.writes_outside = self.reads_outside = False

    def run_stores(self, sink: UOp, slot: int, wanted: Flags) -> Numbers:
        """Returns what an argument holds after the stores of wanted elements. Raises Unknown."""
        held = self.contents[slot].copy()
        for store, rows in self._list_stores(sink, slot, wanted):
            self.registers = {}
            places, is_valid = rows.find_elements(store.src[0], lanes_of(store.src[1]), held.size)
            stored = np.broadcast_to(rows.get(store.src[1]), is_valid.shape)[is_valid]
            held[places[is_valid]] = self._view(stored, dtype_of(store.src[1]), self.dtypes.get(slot))
        return held

    def read(self, memory: UOp) -> Numbers:
        """Returns the elements of an argument in the dtype that it has here: code generation may change it."""
        slot = uops.slot_of(memory)
        return self._view(self.contents[slot], self.dtypes.get(slot), name_dtype(scalar_of(uops.base_of(memory))))

    def _view(self, numbers: Numbers, source: str | None, dtype: str | None) -> Numbers:
        """Returns the bits of numbers as another dtype, if both are known and differ. Raises Unknown."""
        if source is None or dtype is None or source == dtype:
            return numbers
        if ITEMSIZE[source] != ITEMSIZE[dtype]:
            raise Unknown(f"its memory has {dtype} in place of {source}")
        return bitcast(numbers, source, dtype)

    def run_strictly(self, sink: UOp, slot: int, wanted: Flags) -> Numbers:
        """The same, if the kernel stays in its buffers and its value does not depend on the order of its steps. Raises
        Unknown, and LeavesMemory for a store."""
        nodes = list(sink.toposort())
        pointers = {u for u in nodes if u.op.name in {"INDEX", "SHRINK"} and is_argument(find_memory(u), slot)}
        stores = [u for u in nodes if u.op.name == "STORE" and is_argument(find_memory(u.src[0]), slot)]
        if not stores:
            raise LeavesMemory("it does not write its first buffer")
        targets = {u for store in stores for u in store.src[0].toposort() if u in pointers}
        if not {uops.indices_of(u) for u in targets}.issuperset(map(uops.indices_of, pointers)):
            raise Unknown("it reads the buffer that it writes at other places: its value depends on the order")
        held = self.run_stores(sink, slot, wanted)
        if self.writes_outside:
            raise LeavesMemory("it writes outside of its buffer")
        if self.reads_outside:
            raise ReadsOutside("it reads outside of its buffers")
        return held

    def find_rows(self, sink: UOp, slot: int, wanted: Flags, most: int) -> "Rows":
        """Returns the first rows that store wanted elements of an argument. Raises Unknown."""
        for _, rows in self._list_stores(sink, slot, wanted):
            groups = -(-most // self.threads)
            return rows.take(np.arange(min(groups * self.threads, rows.count)))
        raise Unknown("it does not write the wrong elements")

    def _list_stores(self, sink: UOp, slot: int, wanted: Flags) -> "Iterator[tuple[UOp, Rows]]":
        """Yields each store to an argument, with the rows that store wanted elements. Raises Unknown."""
        nodes = tensor_cores.show_lanes(sink).toposort()
        threads: Sequence[UOp] = ()
        if any(u.op.name == "WMMA" or (uops.is_memory(u) and find_space(u) == "local") for u in nodes):
            threads = uops.find_threads(nodes)
        self.threads = math.prod(map(self.count_trips, threads))
        self.has_later_threads = any(u.op.name == "RANGE" and u.arg[-1].name in _THREAD_AXES for u in nodes)
        for store in nodes:
            if store.op.name != "STORE" or not is_argument(find_memory(store.src[0]), slot):
                continue
            for rows in self._list_blocks(uops.find_loops(store, self.text)):
                places, is_valid = rows.find_elements(store.src[0], lanes_of(store.src[1]), wanted.size)
                is_wanted = (is_valid & wanted[np.clip(places, 0, wanted.size - 1)]).any(axis=1)
                chosen = rows.take(np.flatnonzero(np.broadcast_to(is_wanted, rows.count)))
                if chosen.count:
                    yield store, chosen.add_threads(threads)

    def _list_blocks(self, loops: Mapping[UOp, None]) -> "Iterator[Rows]":
        """Yields the steps of loops as rows, some steps of the longest loop at a time. Raises Unknown."""
        trips = {loop: self.count_trips(loop) for loop in loops}
        longest = max(trips, key=trips.__getitem__, default=None)
        if longest is None:
            yield Rows(self, {}, 1)
            return
        length = max(1, MOST_ROWS * trips[longest] // max(1, math.prod(trips.values())))
        for start in range(0, trips[longest], length):
            steps = np.arange(start, min(start + length, trips[longest]))[:, None]
            yield Rows(self, {longest: steps}, len(steps)).spread(loops)

    def count_trips(self, loop: UOp) -> int:
        """Returns how often a RANGE, a SPECIAL or the threads of the CPU run. Raises Unknown."""
        if uops.is_variable(loop):
            return int(loop.vmax) + 1
        end = loop.src[0]
        return int(end.vmax if end.vmin == end.vmax else Rows(self, {}, 1).get(end)[0, 0])


def run_kernel(kernel: UOp, number: int, variables: Mapping[str, int], contents: Mapping[int, Numbers]) -> Numbers:
    """Returns what an argument of a kernel holds after it, given what all of them held before. Raises Unknown."""
    return Interpreter(contents, variables).run_strictly(kernel, number, np.ones(contents[number].size, np.bool_))


class Rows:
    """The values of UOps in some rows: `steps` has the step of each loop in each row. In a loop, `outer` has the values
    of all UOps that are not `inside` it."""

    def __init__(
        self, run: Interpreter, steps: Steps, count: int, outer: "Rows | None" = None, inside: Container[UOp] = ()
    ):
        self.run, self.steps, self.count, self.outer, self.inside = run, steps, count, outer, inside
        self._known: dict[UOp, Numbers] = {}
        self._done: set[UOp] = set()

    def take(self, rows: Whole) -> "Rows":
        """Returns some of the rows."""
        return Rows(self.run, {loop: step[rows] for loop, step in self.steps.items()}, len(rows))

    def spread(self, loops: Iterable[UOp]) -> "Rows":
        """Returns each row once for each step of other loops. Raises Unknown."""
        new = [loop for loop in dict.fromkeys(loops) if loop not in self.steps]
        sizes = list(map(self.run.count_trips, new))
        times = math.prod(sizes)
        if self.count * times > MOST_ROWS:
            raise Unknown(f"its loops have {self.count * times:,} steps")
        steps = {loop: np.repeat(step, times, axis=0) for loop, step in self.steps.items()}
        for loop, step in zip(new, np.indices(sizes, np.int64).reshape(len(sizes), times), strict=True):
            steps[loop] = np.tile(step, self.count)[:, None]
        return Rows(self.run, steps, self.count * times)

    def add_threads(self, threads: Sequence[UOp]) -> "Rows":
        """Returns the rows of all threads of the groups that some rows are in, group by group."""
        if not threads:
            return self
        steps = {loop: step[:, 0] for loop, step in self.steps.items() if loop not in threads}
        groups = np.unique(np.stack([*steps.values(), np.zeros(self.count, np.int64)], axis=1), axis=0)
        kept = {loop: groups[:, [number]] for number, loop in enumerate(steps)}
        return Rows(self.run, kept, len(groups)).spread(threads)

    def get(self, u: UOp) -> Numbers:
        """Returns the value of a UOp: a row each, or one for all, and its lanes as columns. Raises Unknown."""
        # without recursion: an unrolled sum is deeper than Python's stack
        waiting = [u]
        while waiting:
            one = waiting[-1]
            if self.outer is not None and one not in self.inside:
                self._known[one] = self.outer.get(one)
            elif missing := [s for s in _sources(one) if s not in self._known]:
                waiting += missing
                continue
            elif one not in self._known:
                self.run.calls += 1 + (self.count >> 14)
                if self.run.calls > MOST_OPS:
                    raise Unknown(f"it takes more than {MOST_OPS:,} steps")
                self._known[one] = self._make(one)
            waiting.pop()
        return self._known[u]

    def _make(self, u: UOp) -> Numbers:
        op, dtype, sources = u.op.name, dtype_of(u), [self._known[s] for s in _sources(u)]
        if u in self.steps:
            return self.steps[u]
        if uops.is_variable(u):
            if uops.loop_name(u) not in self.run.variables:
                raise Unknown(f"its variable {uops.loop_name(u)} has no value")
            return np.full((1, 1), self.run.variables[uops.loop_name(u)], carrier_of(dtype))
        if op in {"CONST", "VCONST"}:
            constants = u.arg if isinstance(u.arg, tuple) else [u.arg] * lanes_of(u)
            return np.array([[_constant(one, dtype) for one in constants]], carrier_of(dtype))
        if op in ARITHMETIC:
            return self._arithmetic(u, sources)
        if op in uops.JOINS:
            return _join([np.broadcast_to(one, (len(one), lanes_of(s))) for one, s in zip(sources, u.src, strict=True)])
        if op in _OF_FIRST:
            return self._show(u, sources[0])
        if op == "INDEX" and u.src[0].op.name in STAGE_OPS:
            return self._read_stage(u)
        if op in _OVER_STEPS:
            return _OVER_STEPS[op](self, u)
        if op == "INDEX" and (find_memory(u) is None or uops.is_element(u)):
            return self._select(u, self.get(u.src[0]))
        if op in {"INDEX", "LOAD"} or (op == "AFTER" and find_memory(u) is not None):
            return self._load(u)
        if op == "AFTER":
            self._run_all(u.src[1:])
            return self.get(u.src[0])
        raise Unknown(f"the reference does not compute {op}")

    def _arithmetic(self, u: UOp, sources: Sequence[Numbers]) -> Numbers:
        name, dtype, shape = ARITHMETIC[u.op.name].name, dtype_of(u), shape_of(u)
        if name in _COMPARISONS:
            # a constant without a size has the dtype of the other side
            dtype = dtype_of(next((s for s in u.src if name_dtype(s.dtype) not in uops.UNSIZED), u.src[0]))
        operands = [_spread(one, s, shape) for one, s in zip(sources, u.src, strict=True)]
        if name != "where":
            operands = [one.astype(self._carrier_of(dtype), copy=False) for one in operands]
        found, _ = compute(name, operands)
        if is_float(dtype_of(u)):
            return settle(found, dtype_of(u))
        return np.asarray(found, self._carrier_of(dtype_of(u)))

    def _carrier_of(self, dtype: str) -> np.dtype[Any]:
        """Returns numpy's dtype for the numbers of an op."""
        if self.run.promotes and dtype != "bool" and not is_float(dtype) and ITEMSIZE[dtype] < 4:
            return np.dtype(np.int32)
        return carrier_of(dtype)

    def _read_stage(self, index: UOp) -> Numbers:
        """Returns what an INDEX reads of a value that is computed for it: the value at these steps of its ranges."""
        value, *ranges = index.src[0].src
        return self._compute_at(value, dict(zip(ranges, map(self.get, index.src[1:]), strict=True)))

    def _compute_at(self, value: UOp, steps: Mapping[UOp, Numbers]) -> Numbers:
        """Returns a value at other steps of some loops."""
        other = {loop: np.broadcast_to(step, (self.count, 1)) for loop, step in steps.items()}
        return Rows(self.run, {**self.steps, **other}, self.count).get(value)

    def _show(self, u: UOp, numbers: Numbers) -> Numbers:
        op, source = u.op.name, u.src[0]
        if op == "CAST":
            return cast(numbers, dtype_of(source), dtype_of(u))[0]
        if op == "BITCAST":
            return bitcast(numbers, dtype_of(source), dtype_of(u))
        if op == "EXPAND":
            return _spread(numbers, source, shape_of(u))
        if op in _SAME:
            return numbers
        lanes = np.arange(lanes_of(source))
        chosen = lanes[list(u.arg)] if op == "GEP" else lanes.reshape(shape_of(source)).transpose(u.marg).reshape(-1)
        return np.broadcast_to(numbers, (len(numbers), len(lanes)))[:, chosen]

    def _select(self, u: UOp, numbers: Numbers) -> Any:
        """Returns what an INDEX selects of the lanes of its first source."""
        value, *indices = u.src
        held = np.broadcast_to(numbers, (self.count, lanes_of(value))).reshape(self.count, *shape_of(value))
        places = (np.broadcast_to(self.get(index), (self.count, 1))[:, 0] for index in indices)
        return held[(np.arange(self.count), *places)].reshape(self.count, lanes_of(u))

    def reduce(self, u: UOp) -> Numbers:
        """All steps of its loops are rows, if there are not too many."""
        value, loops, lanes = u.src[0], self._list_new(u.src[1:]), lanes_of(u)
        times = math.prod(map(self.run.count_trips, loops))
        half = self.count // (2 * self.run.threads) * self.run.threads
        if half and self.count * times > MOST_ROWS:
            halves = [self.take(rows) for rows in np.split(np.arange(self.count), [half])]
            return np.concatenate([np.broadcast_to(one.get(u), (one.count, lanes)) for one in halves])
        rows = self.spread(loops)
        found = np.broadcast_to(rows.get(value), (rows.count, lanes_of(value)))
        parts = found.reshape(self.count, times, lanes, -1)
        if getattr(value.dtype, "count", 1) == 1:
            # from 0.14 on the lanes that are reduced are the first axes, not the last
            parts = found.reshape(self.count, times, -1, lanes).swapaxes(2, 3)
        name = (u.arg[0] if isinstance(u.arg, tuple) else u.arg).name
        if name != "MAX":
            parts = parts.astype(sum_dtype(parts.dtype), copy=False)
        function = _REDUCES[name]
        with np.errstate(all="ignore"):
            return settle(function.reduce(function.reduce(parts, axis=3), axis=1), dtype_of(u))

    def _list_new(self, ended: Iterable[UOp]) -> list[UOp]:
        """Returns the loops that a UOp ends; while a loop is split, it ends the sum of its parts."""
        loops = dict.fromkeys(r for one in ended for r in ([one] if one.op.name == "RANGE" else one.ranges))
        return [loop for loop in loops if loop not in self.steps]

    # *** tensor cores

    def contract(self, u: UOp, axes: Axes) -> Numbers:
        """Returns the values of a UOp at all steps of some ranges, as lanes."""
        ranges = {loop.arg[0]: loop for loop in u.ranges}
        if not ranges.keys() >= dict(axes).keys() and any(one.op.name == "UNROLL" for one in u.toposort()):
            raise Unknown("some of its ranges have become lanes")
        each = ({ranges[r]: np.array(step) for r, step in one.items() if r in ranges} for one in list_lanes(axes))
        return _join([self._compute_at(u, steps) for steps in each])

    def unroll(self, u: UOp) -> Numbers:
        """Returns the lanes of a value at the steps of its ranges."""
        steps = {loop.arg[0]: step for loop, step in self.steps.items() if loop.op.name == "RANGE"}
        lane = np.zeros(self.count, np.int64)
        for number, size in u.arg:
            if number not in steps:
                raise Unknown("it has lanes of a range that is gone")
            lane = lane * size + steps[number][:, 0]
        held = np.broadcast_to(self.get(u.src[0]), (self.count, lanes_of(u.src[0])))
        return held.reshape(self.count, -1, lanes_of(u))[np.arange(self.count), lane]

    def multiply(self, wmma: UOp) -> Numbers:
        """Returns what the thread of each row holds of the product of its warp."""
        core, parts = read_core(wmma), list[Numbers]()
        products = lanes_of(wmma) // core.lanes
        for source, axes in zip(wmma.src, core.axes or (None,) * 3, strict=True):
            if axes is not None and lanes_of(source) == 1:
                numbers = self.contract(source, axes)
            else:
                numbers = np.broadcast_to(self.get(source), (len(self.get(source)), lanes_of(source)))
                numbers = _spread(numbers, source, (*shape_of(wmma)[:-1], shape_of(source)[-1]))
            if is_float(core.dtype) and not is_float(dtype_of(source)):
                numbers = bitcast(numbers, dtype_of(source), core.dtype)
            parts.append(np.broadcast_to(numbers, (self.count, numbers.shape[1])).reshape(self.count, products, -1))
        warp, thread = self._find_warps(core.threads)
        rows = np.full((warp.max() + 1, core.threads), -1)
        rows[warp, thread] = np.arange(self.count)
        if (rows < 0).any():
            raise Unknown("not all threads of a warp are known")
        found = core.multiply(*(part[rows] for part in parts))[warp, thread]
        return settle(found.reshape(self.count, -1), dtype_of(wmma))

    def _find_warps(self, size: int) -> tuple[Whole, Whole]:
        """Returns the warp that each row is in, and its thread there."""
        threads = uops.find_threads(self.steps)
        number = np.zeros(self.count, np.int64)
        for loop in [*(loop for loop in self.steps if loop not in threads), *threads]:
            number = number * self.run.count_trips(loop) + self.steps[loop][:, 0]
        _, warp = np.unique(number // size, return_inverse=True)
        return warp, number % size

    # *** memory

    def find_elements(self, pointer: UOp, width: int, size: int) -> tuple[Whole, Flags]:
        """Returns the elements that a pointer addresses in memory of a size, and which of them are in it."""
        _, places, gate = self._place_of(pointer, width)
        is_inside, leaves = _find_inside(places, gate, size)
        self.run.writes_outside |= leaves
        return places, is_inside

    def _place_of(self, pointer: UOp, width: int) -> Place:
        """Returns what a pointer addresses: each element, and those after it up to `width`. Raises Unknown."""
        op, memory = pointer.op.name, find_memory(pointer)
        if pointer is memory and uops.is_whole_register(memory):
            places = np.arange(lanes_of(memory))
            return memory, np.broadcast_to(places, (self.count, len(places))), None
        if memory is None or op not in uops.POINTERS:
            raise Unknown(f"the reference does not know the pointer {op}")
        if op in uops.SHOWN:
            self._run_all(pointer.src[1:])
            return self._place_of(pointer.src[0], width)
        if op in {"PTRCAT", "STACK"}:
            each = [self._place_of(one, width // len(pointer.src)) for one in pointer.src]
            parts = [np.broadcast_to(True if gate is None else gate, places.shape) for _, places, gate in each]
            return memory, _join([places for _, places, _ in each]), _join(parts)
        if op in uops.MOVED or uops.is_element(pointer):
            _, places, gate = self._place_of(pointer.src[0], lanes_of(pointer.src[0]))
            show = self._show if op in uops.MOVED else self._select
            return memory, show(pointer, places), None if gate is None else show(pointer, gate)
        base = pointer.src[0]
        for one in base.src if base.op.name in uops.JOINS else (base,):
            self._run_all(one.src[1:] if one.op.name == "AFTER" else ())
        indices = uops.indices_of(pointer)
        # an element of a register may be a vector; the other sources of a SHRINK are sizes
        places = self.get(indices[0]).astype(np.int64) * getattr(uops.base_of(memory), "count", 1)
        if op != "SHRINK" and len(indices) > 1:
            # an index for each axis of memory
            for index, size in zip(indices[1:], memory.shape[1:], strict=True):
                places = places * int(size) + self.get(index)
        if places.shape[1] < width:
            places = (places[:, :, None] + np.arange(width // places.shape[1])).reshape(len(places), width)
        gates = [self.get(s) for s in pointer.src[1:] if dtype_of(s) == "bool"]
        rows = max([1 if find_space(memory) == "global" else self.count, len(places), *map(len, gates)])
        places = np.broadcast_to(places, (rows, places.shape[1]))
        return memory, places, np.broadcast_to(gates[0], places.shape) if gates else None

    def _load(self, u: UOp) -> Numbers:
        others: tuple[UOp, ...] = u.src[1:] if u.op.name == "LOAD" else ()
        pointer = u.src[0] if u.op.name == "LOAD" else u
        memory, places, gate = self._place_of(pointer, lanes_of(u))
        # from 0.13 on the gate comes after the value for a closed gate
        if len(others) > 1 and dtype_of(others[-1]) == "bool":
            gate = np.broadcast_to(self.get(others[-1]), places.shape)
        is_global = find_space(memory) == "global"
        held = self.run.read(memory) if is_global else self._register(memory)
        is_valid, leaves = _find_inside(places, gate, held.shape[-1])
        self.run.reads_outside |= leaves and is_global
        clipped = np.clip(places, 0, held.shape[-1] - 1)
        found = held[clipped] if is_global else held[self._list_owners(memory), clipped]
        closed = next((one for one in others[:1] if dtype_of(one) == dtype_of(u)), None)
        instead = np.zeros((1, 1), found.dtype) if closed is None else self.get(closed)
        return np.where(is_valid, found, instead).astype(found.dtype, copy=False)

    def _list_owners(self, memory: UOp) -> Whole:
        """Returns the number of the row, or of its group, that has a register or LOCAL memory."""
        return np.arange(self.count)[:, None] // (self.run.threads if find_space(memory) == "local" else 1)

    def _register(self, memory: UOp) -> Numbers:
        if find_space(memory) == "local" and self.run.has_later_threads:
            raise Unknown("it has memory that threads share")
        if memory not in self.run.registers:
            owners = int(self._list_owners(memory)[-1, 0]) + 1
            base, size = uops.base_of(memory), getattr(memory.dtype, "size", None) or int(memory.src[0].vmax)
            shape = owners, size * getattr(base, "count", 1)
            self.run.registers[memory] = np.zeros(shape, carrier_of(name_dtype(scalar_of(base))))
        return self.run.registers[memory]

    # *** effects

    def _run_all(self, effects: Iterable[UOp]) -> None:
        """Runs what an AFTER waits for, once."""
        for u in effects:
            if u.op.name not in _EFFECTS or u in self._done:
                continue
            self._done.add(u)
            if self.outer is not None and u not in self.inside:
                self.outer._run_all([u])
            elif u.op.name == "STORE":
                self._store(u)
            elif u.op.name == "END":
                self._loop(u)
            else:
                self._run_all(u.src)

    def _loop(self, end: UOp) -> None:
        body, loops = end.src[0], self._list_new(end.src[1:])
        inside = set(loops)
        for u in body.toposort():
            if not inside.isdisjoint(u.src):
                inside.add(u)
        if self.run.text and loops:
            # what stands in a loop runs in each of its steps
            inside.update(self.run.text[min(map(self.run.text.index, loops)) : self.run.text.index(end)])
        for step in itertools.product(*(range(self.run.count_trips(loop)) for loop in loops)):
            chosen = {loop: np.full((1, 1), one, np.int64) for loop, one in zip(loops, step, strict=True)}
            Rows(self.run, {**self.steps, **chosen}, self.count, self, frozenset(inside))._run_all([body])

    def _store(self, u: UOp) -> None:
        memory, places, gate = self._place_of(u.src[0], lanes_of(u.src[1]))
        if find_space(memory) == "global":
            # `run_stores` has its rows
            return
        held, numbers = self._register(memory), np.broadcast_to(self.get(u.src[1]), places.shape)
        owners = np.broadcast_to(self._list_owners(memory), places.shape)
        is_stored = np.ones(places.shape, np.bool_) if gate is None else gate
        held[owners[is_stored], places[is_stored]] = numbers[is_stored]


_OVER_STEPS: dict[str, Callable[[Rows, UOp], Numbers]] = {
    "REDUCE": Rows.reduce,
    "CONTRACT": lambda rows, u: rows.contract(u.src[0], u.arg),
    "UNROLL": Rows.unroll,
    "WMMA": Rows.multiply,
}
"""The ops whose value in a row needs values at other steps of loops, as a sum does -> how they are computed."""


def _find_inside(places: Whole, gate: Flags | None, size: int) -> tuple[Flags, bool]:
    """Returns which elements are accessed in memory of a size, and whether others are accessed, too."""
    is_open = (places > _INVALID // 2) & (True if gate is None else gate)
    is_inside = (places >= 0) & (places < size) & is_open
    return is_inside, bool((is_open & ~is_inside).any())


def _sources(u: UOp) -> tuple[UOp, ...]:
    """Returns the sources whose values a UOp needs first."""
    return u.src if u.op.name in ARITHMETIC or u.op.name in uops.JOINS else u.src[: u.op.name in _OF_FIRST]


def _spread(numbers: Numbers, u: UOp, shape: tuple[int, ...]) -> Numbers:
    """Returns the value of a UOp broadcast to the lanes of a shape, which may have more axes."""
    if numbers.shape[1] in {1, math.prod(shape)}:
        return numbers
    own = shape_of(u)
    parts = numbers.reshape(len(numbers), *[1] * (len(shape) - len(own)), *own)
    return np.broadcast_to(parts, (len(numbers), *shape)).reshape(len(numbers), -1)


def _join(parts: Sequence[Any]) -> Any:
    rows = max(map(len, parts))
    return np.concatenate([np.broadcast_to(part, (rows, part.shape[1])) for part in parts], axis=1)


def _constant(number: Any, dtype: str) -> Any:
    if str(number) == "Invalid":
        return _INVALID
    carrier = carrier_of(dtype)
    return wrap_integer(number, carrier) if carrier.kind in "iu" else number
