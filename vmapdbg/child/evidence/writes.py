"""The writes that the program asks for: where each comes from, while rewrites give it other values, and whether a
schedule has had it. Runs in the child."""

import math
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vmapdbg.check.result import LostWrite
from vmapdbg.child.evidence.tensor_calls import list_awaited
from vmapdbg.child.listen.releases import SHARDED, buffer_under, find_under, list_writes
from vmapdbg.child.listen.user_lines import find_user_line, replace_sources
from vmapdbg.child.memory import name_dtype
from vmapdbg.model.ops import WRITES

UOp = Any
MEMORY = {"BUFFER", "MSTACK"}  # in 0.12 each device has a BUFFER of its own
# CONTIGUOUS of memory may be the memory itself, as in numpy
VIEWS = SHARDED | {"RESHAPE", "EXPAND", "PERMUTE", "SHRINK", "FLIP", "BITCAST", "DETACH", "CONTIGUOUS"}
VIEWS |= {"AFTER", "ASSIGN"}


@dataclass(eq=False)  # compared by identity: each write has its own
class WriteOrigin:
    """A write that the program asks for: its report if it gets lost, whether it moves the counter of random numbers,
    whether a schedule has had it, or it is lost, and whether it is not reported as lost any more."""

    report: LostWrite | None = None
    is_draw: bool = False
    is_done: bool = False
    is_reported: bool = False

    @property
    def line(self) -> str | None:
        return self.report and self.report.line


class Writes:
    """Knows the origin of each write. `pending` are the writes that no schedule has had yet."""

    def __init__(self) -> None:
        self.origins: weakref.WeakKeyDictionary[UOp, WriteOrigin] = weakref.WeakKeyDictionary()
        self.pending: weakref.WeakSet[UOp] = weakref.WeakSet()
        self.made: list[tuple[UOp, WriteOrigin]] = []  # writes with other values, and their origins

    def origins_of(self, nodes: Iterable[UOp]) -> list[WriteOrigin]:
        return [self.origins[u] for u in nodes if u in self.origins]

    def rebuild(self, root: UOp, replaced: Mapping[UOp, UOp], made: dict[UOp, UOp] | None = None) -> UOp:
        """Returns a graph with some nodes replaced; writes keep their origins. `made` has what was rebuilt before."""
        made = dict(replaced) if made is None else made
        for u in root.toposort(lambda u: u not in made):
            if u not in made:
                made[u] = self.replace(u, tuple(made[source] for source in u.src))
        return made[root]

    def replace(self, u: UOp, src: tuple[UOp, ...]) -> UOp:
        """Returns a UOp with other sources."""
        if src == u.src:
            return u
        made = replace_sources(u, src)
        if u in self.origins:
            self.made.append((made, self.origins[u]))
        return made

    def note_made(self) -> None:
        """Notes the origins of the writes that were made. An earlier write that is done may have been the same UOp."""
        for write, origin in self.made:
            if write not in self.origins or self.origins[write].is_done:
                self.origins[write] = origin
        self.made.clear()

    def settle(
        self, root: UOp, done: Mapping[UOp, Collection[WriteOrigin]], old: Mapping[UOp, UOp], is_memory: bool
    ) -> UOp:
        """Returns what a graph means after `done`, writes to each BUFFER: memory holds what they write, but `old`
        contents where it is read before one of them. `is_memory`: the graph is a view, and shows what memory holds."""
        # a node as a value, and as the memory that a write changes or that comes after writes
        values: dict[UOp, UOp] = {}
        places: dict[UOp, UOp] = {}
        before: dict[UOp, frozenset[WriteOrigin | None]] = {}  # the writes that memory comes after
        for u in root.toposort():
            values[u], places[u], before[u] = old.get(u, u), u, frozenset()
            if not u.src or u.op.name == "BUFFER":
                continue
            first, *others = u.src
            values[u] = self.replace(u, tuple(values[source] for source in u.src))
            before[u] = before[first]
            if u.op.name in WRITES:
                before[u] = before[u].union(*(before[source] for source in others if source.op.name in WRITES))
                before[u] |= {self.origins.get(u)}
                finished = done.get(buffer_under(first), ())
                is_finished = self.origins.get(u) in finished
                others = [values[source] for source in others if self.origins.get(source) not in finished]
                if u.op.name == "AFTER":
                    # what comes after a finished write is a view of memory
                    others = [one for one in others if find_under(one, VIEWS - WRITES).op.name not in MEMORY]
                places[u] = places[first]
                if others and not is_finished:
                    places[u] = self.replace(u, (places[first], *others))
                if before[u].issuperset(finished):
                    values[u] = places[u]
            elif u.op.name == "MSTACK":
                places[u] = self.replace(u, tuple(places[source] for source in u.src))
            else:
                places[u] = self.replace(u, (places[first], *(values[source] for source in others)))
        return places[root] if is_memory else values[root]

    def take_lost(self, nodes: Iterable[UOp], pending: Collection[UOp]) -> list[LostWrite]:
        """Returns the lost writes, each once. `pending` must come before a graph with these `nodes`."""
        if not self.pending:
            return []
        awaited = {None, *(list_awaited() if pending else ())}  # a Tensor may have another write to the buffer
        writes = [u for u in self.origins if u in pending and buffer_under(u.src[0]) not in awaited]
        lost = [origin for origin in dict.fromkeys(self.origins[u] for u in writes) if not origin.is_reported]
        written = {buffer for buffer, _ in list_writes(nodes)}
        replaced = [u for u in self.pending if buffer_under(u.src[0]) in written]  # no finding
        for origin in (*lost, *self.origins_of(replaced)):
            origin.is_reported = True
        return [origin.report for origin in lost if origin.report is not None]

    @contextmanager
    def replacing(self, replaced: Mapping[UOp, UOp]) -> Iterator[None]:
        """Knows the pending writes again when its block has put other UOps into the graphs of Tensors."""
        made = dict(replaced)
        for write in list(self.pending):
            self.pending.add(self.rebuild(write, replaced, made))
        self.note_made()
        yield
        made.clear()  # until here, nothing else holds the new writes


def describe_write(target: UOp) -> LostWrite:
    """Returns the report of a write that the user's line asks for now, if it will be lost."""
    shape = tuple(int(n) for n in target.shape if isinstance(n, int))
    memory = buffer_under(target)
    size = math.prod(shape if memory is None else memory.shape)
    return LostWrite(find_user_line(), shape, size, name_dtype(target.dtype))
