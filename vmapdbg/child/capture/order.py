"""Finds kernels that use older memory in the wrong order, or write without an assign, for `lint`. Each launch sees what
the launches before it left in memory. Its part of the graph, down to what other launches write, says which writes it
should see. There are no facts if a graph does not say which memory it writes."""

from collections.abc import Iterable, Iterator
from typing import Any

from vmapdbg.child.capture.view import PassView, values_of
from vmapdbg.child.listen.records import Launch, UOp, number_kernels
from vmapdbg.child.listen.releases import device_of, find_under
from vmapdbg.model.capture import WrongTime
from vmapdbg.model.ops import RESHAPING, STORES
from vmapdbg.reference.graph import reach

_LEAVES = frozenset({"BUFFER", "PARAM"})
_LOOKS = RESHAPING | {"BITCAST", "DETACH", "AFTER", "ASSIGN"}
# they write to unknown memory, or on several devices
_UNKNOWN = {"KERNEL", "CALL", "CUSTOM_KERNEL", "CUSTOM_FUNCTION", "MULTI", "MSELECT", "MSTACK", "BUFFER_VIEW"}


class Unclear(Exception):
    """A graph does not say which memory it writes."""


class MemoryOrder:
    """The facts about a schedule, by the number of the compute kernel: the numbers of the arguments that it reads at a
    wrong time, their buffers not yet named; the id of the BUFFER or PARAM that it writes without an assign."""

    def __init__(self, view: PassView):
        self.wrong_times: dict[int, dict[int, WrongTime]] = {}
        self.overwrites: dict[int, int] = {}
        self.view = view
        self.numbers = number_kernels(view.launches)  # the number of each launch's compute kernel, None for a copy
        self.leaves: dict[Any, UOp] = {}  # memory from before the schedule -> its node
        self.writes: dict[Any, set[UOp]] = {}  # memory -> its writes in the graph
        self.writers = {launch.node: index for index, launch in enumerate(view.launches)}
        # the nodes whose launch runs once
        self.once = {node for node, index in self.writers.items() if view.launches[index].count == 1}

    def find(self) -> None:
        """Compares the graph before it was scheduled with the order of the launches."""
        try:
            self._find()
        except Unclear:
            self.wrong_times, self.overwrites = {}, {}

    def _find(self) -> None:
        for u in self.view.passed.toposort:
            if u.op.name in _UNKNOWN:
                raise Unclear
            if u.op.name in _LEAVES:
                if isinstance(device_of(u), tuple):
                    raise Unclear
                self.leaves[_memory_key(u)] = u
            elif u.op.name in STORES:
                self.writes.setdefault(_memory_key(_memory_of(u.src[0])), set()).add(u)
        for index, launch in enumerate(self.view.launches):
            number = self.numbers[index]
            if number is None or not launch.buffers:
                continue
            memory = _memory_key(launch.buffers[0])
            if memory in self.leaves and memory not in self.writes:
                self.overwrites[number] = self.view.ids[self.leaves[memory]]
            if wrong_times := dict(self._find_wrong_times(index, launch)):
                self.wrong_times[number] = wrong_times

    def _find_wrong_times(self, index: int, launch: Launch) -> Iterator[tuple[int, WrongTime]]:
        if launch.node is None or launch.count != 1:
            return
        asked = self._find_asked(launch.node)
        for argument, buffer in enumerate(launch.buffers):
            memory = _memory_key(buffer)
            versions, writes = asked.get(memory), self.writes.get(memory)
            if not versions or not writes or not writes <= self.once:
                continue
            done = {write for write in writes if self.writers[write] < index}
            too_early = done.difference(*versions)
            too_late = versions[0].intersection(*versions[1:]) - done - {launch.node}
            if too_early or too_late:
                numbers = map(self._number_all, (too_early, too_late))
                yield argument, WrongTime("", self.view.ids[self.leaves[memory]], *numbers)

    def _number_all(self, writes: Iterable[UOp]) -> tuple[int, ...]:
        numbers = (self.numbers[self.writers[write]] for write in writes)
        return tuple(sorted(number for number in numbers if number is not None))

    def _find_asked(self, written: UOp) -> dict[Any, list[set[UOp]]]:
        """Maps memory that a launch may read to sets of writes: for each place that looks at it, what it should see."""
        found: dict[Any, list[set[UOp]]] = {}
        ends = _LEAVES | {"ASSIGN", "AFTER"}
        for u in reach(_list_read(written), lambda u: () if u.op.name in ends or u in self.writers else _list_read(u)):
            if u.op.name in ends and (memory := _memory_key(_memory_of(u))) in self.leaves:
                found.setdefault(memory, []).append(find_writes_before(u))
        return found


def _list_read(u: UOp) -> Iterable[UOp]:
    return u.src[1:2] if u.op.name in STORES else values_of(u)


def _memory_key(u: UOp) -> Any:
    """Returns a key of the memory of a UOp: in 0.14 the PARAMs of kernels differ from the PARAMs of the graph."""
    return getattr(u.arg, "slot", u.arg) if u.op.name == "PARAM" else u


def _memory_of(view: UOp) -> UOp:
    """Returns the memory that a view looks at. Raises Unclear if it is no view of memory."""
    memory = find_under(view, _LOOKS)
    if memory.op.name not in _LEAVES:
        raise Unclear
    return memory


def find_writes_before(view: UOp) -> set[UOp]:
    """Returns the writes to its memory that a view comes after. Visits each node once: several paths lead there."""
    writes: set[UOp] = set()

    def follow(u: UOp) -> list[UOp]:
        if u.op.name in _LEAVES:
            return []
        before = u.src[1:] if u.op.name == "AFTER" else ()
        if any(write.op.name not in STORES for write in before):
            raise Unclear
        writes.update(before, [u] if u.op.name == "ASSIGN" else ())
        return [u.src[0], *(write.src[0] for write in before)]

    reach([view], follow)
    return writes
