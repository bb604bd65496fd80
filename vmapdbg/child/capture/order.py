"""Which kernels use memory that was there before the schedule at another time than the graph asks for, and which write
to memory that nothing assigns to. Facts for `lint`: the graph before it was scheduled against the order of launches.

A launch runs once, so of each memory it sees what the launches before it left there. Its part of the graph, down to
what other launches write, says which writes it should see. Where that cannot be told of a graph, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vmapdbg.child.capture.view import UOp, View, find_values
from vmapdbg.child.listen.records import Launch

_WRITES = frozenset({"ASSIGN", "STORE"})
_LEAVES = frozenset({"BUFFER", "PARAM"})
_LOOKS = frozenset({"RESHAPE", "EXPAND", "PERMUTE", "PAD", "SHRINK", "FLIP", "BITCAST", "DETACH", "AFTER", "ASSIGN"})
# what writes where it likes, or has memory on several devices
_UNKNOWN = frozenset(
    {"KERNEL", "CALL", "CUSTOM_KERNEL", "CUSTOM_FUNCTION", "MULTI", "MSELECT", "MSTACK", "BUFFER_VIEW"}
)


class Unclear(Exception):
    """It cannot be told which memory a graph writes."""


@dataclass(frozen=True)
class WrongTime:
    """An argument of a kernel, by its number, that the kernel reads at another time than the graph asks for. `node` is
    the id of the BUFFER or PARAM. The numbers of kernels: `early` write it before, and the graph has them after the
    kernel; `late` write it after, and the graph has the kernel read what they wrote."""

    argument: int
    node: int
    early: tuple[int, ...]
    late: tuple[int, ...]


@dataclass
class MemoryOrder:
    """The facts about one schedule, by the numbers of its compute kernels: what they read at a wrong time, and the id
    of the BUFFER or PARAM that one writes although nothing assigns to it."""

    wrong_times: dict[int, tuple[WrongTime, ...]] = field(default_factory=dict[int, tuple[WrongTime, ...]])
    overwrites: dict[int, int] = field(default_factory=dict[int, int])

    @property
    def is_right(self) -> bool:
        return not self.wrong_times and not self.overwrites


def find_order(view: View) -> MemoryOrder:
    """Returns the facts about the schedule of a run of the pass."""
    try:
        return _Finder(view).find()
    except Unclear:
        return MemoryOrder()


class _Finder:
    def __init__(self, view: View):
        self.view = view
        self.numbers = _number_kernels(view.launches)
        # the memory that was there before -> the node that stands for it
        self.leaves: dict[Any, UOp] = {}
        # memory -> the writes to it that the graph has
        self.writes: dict[Any, set[UOp]] = {}
        self.writers = {launch.node: index for index, launch in enumerate(view.launches)}

    def find(self) -> MemoryOrder:
        self._read_graph()
        found = MemoryOrder()
        for index, launch in enumerate(self.view.launches):
            number = self.numbers[index]
            if number is None or not launch.buffers:
                continue
            memory = name_memory(launch.buffers[0])
            if memory in self.leaves and memory not in self.writes:
                found.overwrites[number] = self.view.ids[self.leaves[memory]]
            wrong_times = tuple(self._find_wrong_times(index, launch))
            if wrong_times:
                found.wrong_times[number] = wrong_times
        return found

    def _read_graph(self) -> None:
        for u in self.view.graph:
            if u.op.name in _UNKNOWN:
                raise Unclear
            if u.op.name in _LEAVES:
                if isinstance(u.device, tuple):
                    raise Unclear
                self.leaves[name_memory(u)] = u
            elif u.op.name in _WRITES:
                self.writes.setdefault(name_memory(find_base(u.src[0])), set()).add(u)

    # *** what a kernel should see

    def _find_wrong_times(self, index: int, launch: Launch) -> Iterator[WrongTime]:
        if launch.node is None or launch.count != 1:
            return
        asked = self._find_asked(launch.node)
        for argument, buffer in enumerate(launch.buffers):
            memory = name_memory(buffer)
            versions = asked.get(memory)
            own = self.writes.get(memory)
            if not versions or not own:
                continue
            if not all(self._runs_once(write) for write in own):
                continue
            done = {write for write in own if self.writers[write] < index}
            early = done - frozenset[UOp]().union(*versions)
            late = versions[0].intersection(*versions[1:]) - done - {launch.node}
            if early or late:
                node = self.view.ids[self.leaves[memory]]
                yield WrongTime(argument, node, self._number_all(early), self._number_all(late))

    def _runs_once(self, write: UOp) -> bool:
        """Tells whether it is known when a write is done."""
        index = self.writers.get(write)
        return index is not None and self.view.launches[index].count == 1

    def _number_all(self, writes: Iterable[UOp]) -> tuple[int, ...]:
        numbers = (self.numbers[self.writers[write]] for write in writes)
        return tuple(sorted(number for number in numbers if number is not None))

    def _find_asked(self, written: UOp) -> Mapping[Any, list[frozenset[UOp]]]:
        """Returns for each memory that a launch may read the sets of writes that it should see there: one for each
        place in its part of the graph that looks at it."""
        found: dict[Any, list[frozenset[UOp]]] = {}
        seen: set[UOp] = set()
        todo = list(_list_read(written))
        while todo:
            u = todo.pop()
            if u in seen:
                continue
            seen.add(u)
            if u.op.name in _LEAVES or u.op.name in {"ASSIGN", "AFTER"}:
                memory = name_memory(find_base(u))
                if memory in self.leaves:
                    found.setdefault(memory, []).append(frozenset(find_writes_before(u)))
            elif u not in self.writers:
                todo += _list_read(u)
        return found


def _number_kernels(launches: Iterable[Launch]) -> list[int | None]:
    """Returns for each launch the number of its compute kernel, None for a copy."""
    numbers: list[int | None] = []
    count = 0
    for launch in launches:
        numbers.append(count if launch.is_compute else None)
        count += launch.is_compute
    return numbers


def _list_read(u: UOp) -> Iterable[UOp]:
    """The sources whose values go into that of a node."""
    if u.op.name in _WRITES:
        return u.src[1:2]
    return find_values(u)


def name_memory(u: UOp) -> Any:
    """Returns what is equal for UOps that stand for the same memory: in 0.14 the PARAMs of kernels are others than
    those of the graph."""
    if u.op.name == "PARAM":
        return getattr(u.arg, "slot", u.arg)
    return u


def find_base(u: UOp) -> UOp:
    """Returns the memory that a view looks at. Raises Unclear where it is no view of memory."""
    while u.op.name not in _LEAVES:
        if u.op.name not in _LOOKS:
            raise Unclear
        u = u.src[0]
    return u


def find_writes_before(u: UOp) -> Iterator[UOp]:
    """Yields the writes to its memory that a view of it comes after."""
    while u.op.name not in _LEAVES:
        if u.op.name == "ASSIGN":
            yield u
        if u.op.name == "AFTER":
            for write in u.src[1:]:
                if write.op.name not in _WRITES:
                    raise Unclear
                yield write
                yield from find_writes_before(write.src[0])
        u = u.src[0]
