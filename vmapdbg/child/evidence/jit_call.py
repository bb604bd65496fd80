"""The captured call of a TinyJit, as one graph of all its schedules, in the child. A schedule reads what the reference
says that earlier schedules wrote: the graph only reads buffers before the call, or after it if that is impossible."""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any
from weakref import WeakKeyDictionary, proxy, ref

from vmapdbg.child.evidence.evidence import Evidence, HeldBuffer, HeldContents, list_parts, name_data
from vmapdbg.child.evidence.packer import CannotPack, Packer, find_variables
from vmapdbg.child.evidence.realize_call import RealizeCall
from vmapdbg.child.evidence.tensor_calls import Owners, find_shown, list_pending
from vmapdbg.child.listen.launches import list_arguments, list_memory, list_replayed, source_of, used_buffers_of
from vmapdbg.child.listen.releases import list_shards, memory_of
from vmapdbg.child.memory import read_buffer
from vmapdbg.model.wording import format_plural
from vmapdbg.reference.graph import OpGraph

UOp = Any
_Path = tuple[Any, ...]
_Held = tuple[UOp, int, bool | None]  # BUFFER, the slot of what it should hold, `HeldBuffer.is_written`
_WORK = 1 << 22  # the elements that the reference computes for the first replays of a call, which are all compared
_MOST_FIRST, _LEAST_FIRST = 16, 3  # how many of the first replays of a call are compared
_MOST_PAST = 1 << 26  # the most bytes of inputs of an earlier call that are kept
_MOST_GRAPHS = 3  # the graphs of a call that are kept: of the captured call, the replay before, and this one


@dataclass
class Given:
    """What a call of a TinyJit was given: BUFFERs of inputs, values of variables, and in words the other arguments;
    replays keep these. An input is a Tensor, also in a list, tuple or dict; its path ends with the shard's number."""

    inputs: dict[_Path, UOp] = field(default_factory=dict[_Path, UOp])
    variables: dict[str, int] = field(default_factory=dict[str, int])
    others: dict[_Path, str] = field(default_factory=dict[_Path, str])

    @classmethod
    def of(cls, arguments: Sequence[Any], options: Mapping[str, Any]) -> "Given":
        given = cls()
        for path, value in list_arguments(arguments, options):
            u = getattr(value, "uop", None)
            if u is not None and len(path) < 3 and memory_of(u).op.name == "BUFFER":
                given.variables |= find_variables(u.toposort())
                for number, memory in enumerate(map(memory_of, list_shards(u))):
                    # Tensor.empty has no memory: TinyJit does not take it as an input
                    if memory.is_realized:
                        given.inputs[*path, number] = memory
            elif hasattr(value, "toposort") and (bound := find_variables(value.toposort())):
                given.variables |= bound
            elif value is None or isinstance(value, (bool, int, float, str, bytes)):
                given.others[path] = repr(value)
            else:
                given.others[path] = f"{type(value)} {id(value)}"
        return given

    def find_difference(self, captured: "Given") -> str | None:
        """Returns why the graph of a captured call is not the graph of this call, None if it is."""
        if self.inputs.keys() != captured.inputs.keys() or self.variables.keys() != captured.variables.keys():
            return "it has other arguments than the call that was captured"
        for path, value in self.others.items():
            if captured.others.get(path) != value:
                name = "".join(f"[{key!r}]" if place else str(key) for place, key in enumerate(path))
                return f"argument {name} has another value than in the captured call, and TinyJit replays that value"
        return None


@dataclass(frozen=True)
class PastCall:
    """What a call was given: contents of its `inputs` by their BUFFERs in the captured call, one for each device, and
    values of its `variables`. `replay` is 0 for the captured call."""

    replay: int
    inputs: Mapping[UOp, tuple[bytes, ...]]
    variables: dict[str, int]


def choose_kept(inputs: Collection[UOp]) -> Collection[UOp]:
    """Returns the inputs of a call; none if they are too large to be kept only to find why a replay is wrong."""
    size = sum(part.nbytes for u in inputs for part in list_parts(u.buffer))
    return inputs if size <= _MOST_PAST else ()


@dataclass(frozen=True)
class KeptReplay:
    """A replay that has ended and that may be compared. `test` is the test that ran it. `made` has evidence of each of
    its schedules, and `contents` the data that the evidence names. `sample` is the reason if it is not compared."""

    test: str
    made: list[Evidence]
    contents: HeldContents
    sample: str


@dataclass
class ReplayAccount:
    """Counts the replays of a captured call; without UOps, because it outlives the jit. `left` maps a reason to the
    number of replays that are not compared. `newest` is the last replay, until it is known whether it is compared. The
    counts go to `evidence`, of the last schedule. `runs_once`: prune=True ran some kernels once only."""

    evidence: Evidence
    replays: int = 0
    left: Counter[str] = field(default_factory=Counter[str])
    newest: KeptReplay | None = None
    runs_once: bool = False


class JitCall:
    """A call that TinyJit captured. Nothing may hold it longer than its `source` lives: its UOps keep memory."""

    def __init__(self, tiny: Any, given: Given, realized: list[RealizeCall], before: set[UOp], owners: Owners):
        """`realized` made schedules in it. At its start, `before` were pending writes, `owners` Tensors with memory."""
        self.given, self.realized = given, realized
        source = source_of(tiny.captured)
        # what its replays run, and their account, which lives on
        self.source, self.account = ref(source), ReplayAccount(realized[-1].evidence)
        self.written = [set(map(id, call.find_written())) for call in realized]  # ids, by schedule
        # the BUFFERs of its replays (None: of the call): replays may have their own for BUFFERs that nothing else holds
        self.memory = used_buffers_of(source)
        if self.memory is not None:
            self.memory |= set(given.inputs.values())
            # kernels that prune=True runs once only have run
            self.memory |= {u for call in realized for u in call.list_made() if u.is_realized}
        for call in realized:
            call.keep_views(self.memory)
        # BUFFER -> the write that the call requested and did not schedule
        self.pending = {buffer: write for _, buffer, write in list_pending() if write not in before}
        # the Tensors that had a BUFFER when it began, if the call reads the BUFFER and was not given it
        read = {u for call in realized for u in call.inputs}.difference(given.inputs.values())
        self.owners: Owners = WeakKeyDictionary({u: tensors for u, tensors in owners.items() if u in read})
        self.reason: str | None = None  # why no replay is compared, None if some are
        self._graphs: dict[tuple[tuple[str, int], ...], CallGraph] = {}  # by the values of variables, last used last
        contents = {u: tuple(map(read_buffer, list_parts(u.buffer))) for u in choose_kept(given.inputs.values())}
        self.past = [PastCall(0, contents, given.variables)]  # the captured call, and the last replay
        # contents that replays read and do not write, None without prune=True
        self.constants: dict[UOp, tuple[str, ...]] | None = None
        if tiny.prune:
            with suppress(CannotPack):
                self.constants = self._name_constants(self.open(given))
        self.account.runs_once = self.constants is not None
        if self.memory is None and not any(self.written):
            self.reason = "what its kernels write was not seen"

    def _name_constants(self, graph: "CallGraph") -> dict[UOp, tuple[str, ...]]:
        """Returns names of contents that replays read and do not write, without inputs. Raises CannotPack if prune=True
        has run an assign once only that no input changes."""
        inputs = set(self.given.inputs.values())
        replayed = _list_bases(list_replayed(self.source()))
        read = dict(read for one in graph.schedules for read in one.reads.values() if read[1] == "before")
        dependent = {u for one in graph.schedules for u in one.list_dependent(inputs)}
        constants: dict[UOp, tuple[str, ...]] = {}
        for u in read.keys() - inputs - dependent:
            if not replayed.isdisjoint(_list_bases([u.buffer])):
                continue
            if self.does_write(u.buffer):
                self.reason = "prune=True runs an assign once only"
                raise CannotPack(self.reason)
            constants[u] = tuple(name_data(read_buffer(part)) for part in list_parts(u.buffer))
        return constants

    def list_moved(self) -> Iterator[tuple[UOp, str | None]]:
        """Yields the BUFFERs that its schedules make and that its replays have in other memory, and the user's line."""
        for call in self.realized:
            for u in call.list_made():
                if self.memory is not None and u not in self.memory:
                    yield u, call.evidence.line

    def open(self, given: Given) -> "CallGraph":
        """Returns the graph of a replay. Raises CannotPack with a sentence why it cannot be compared."""
        if self.reason is not None:
            raise CannotPack(self.reason)
        if difference := given.find_difference(self.given):
            raise CannotPack(difference)
        try:
            graph = self.find_graph(given.variables)
        except CannotPack as error:
            self.reason = str(error)
            raise
        if self.constants is not None and self.constants != self._name_constants(graph):
            raise CannotPack("a buffer has changed that kernels may have read which prune=True runs once only")
        return graph

    def find_graph(self, variables: dict[str, int]) -> "CallGraph":
        """Returns the graph of a call with some values of its variables. Raises CannotPack."""
        key = tuple(sorted(variables.items()))
        graph = self._graphs.pop(key, None) or CallGraph(self, variables)
        self._graphs[key] = graph
        if len(self._graphs) > _MOST_GRAPHS:
            del self._graphs[next(iter(self._graphs))]
        return graph

    def find_state(self) -> dict[UOp, UOp]:
        """Maps BUFFERs of Tensors to the BUFFERs they have now: in 0.12 a second assign gives them other memory."""
        found: dict[UOp, UOp] = {}
        for u, tensors in self.owners.items():
            now = {find_shown(tensor) for tensor in (one() for one in tensors) if tensor is not None}
            memory = now.pop() if len(now) == 1 else None
            if memory is not None and memory.is_realized:
                found[u] = memory
        return found

    def find_time(self, index: int, u: UOp) -> str:
        """Returns when a BUFFER holds what schedule `index` reads: `before` or `after` a replay. Raises CannotPack."""
        writers = [i for i, written in enumerate(self.written) if id(u.buffer) in written]
        if all(i >= index for i in writers):
            return "before"
        if any(i >= index for i in writers):
            raise CannotPack("one of its schedules reads a buffer that others write before and after it")
        # whether replays use it in the memory that it had in the call
        is_same = _list_bases([u.buffer]) <= self.list_bases() if self.memory is None else u in self.memory
        if not is_same:
            raise CannotPack("one of its schedules reads what another one writes, in memory of their own")
        return "after"

    def is_final(self, index: int, u: UOp) -> bool:
        """Whether no schedule after `index` writes a BUFFER."""
        return u.op.name != "BUFFER" or not any(id(u.buffer) in written for written in self.written[index + 1 :])

    def does_write(self, buffer: Any) -> bool:
        """Returns whether a schedule of the call writes to a buffer, or to the memory around it."""
        memory = {id(buffer)} | _list_bases([buffer])
        return any(not written.isdisjoint(memory) for written in self.written)

    def list_bases(self) -> set[int]:
        """Returns the ids of the buffers that have the memory of its replays."""
        return _list_bases(list_memory(self.source()))


def _list_bases(buffers: Iterable[Any]) -> set[int]:
    """Returns the ids of the buffers that have the memory of some buffers."""
    return {id(part.base) for buffer in buffers for part in list_parts(buffer)}


@dataclass
class ScheduleGraph:
    """The part of a CallGraph that one schedule asks for. `reads` has for each slot the BUFFER whose contents it has,
    and when it is read; `held` what BUFFERs should hold after the call."""

    graph: OpGraph
    reads: dict[int, tuple[UOp, str]]
    held: list[tuple[UOp, HeldBuffer]]

    @property
    def compared(self) -> list[int]:
        """The slots of all that is compared: of outputs, then of BUFFERs."""
        return [*self.graph.roots, *(held.slot for _, held in self.held)]

    def list_dependent(self, inputs: Container[UOp]) -> Iterator[UOp]:
        """Yields the assigned BUFFERs whose values depend on the contents of some BUFFERs."""
        for u, held in self.held:
            _, places = self.graph.take([held.slot])
            if any(slot in places and memory in inputs for slot, (memory, _) in self.reads.items()):
                yield u


class CallGraph:
    """What the schedules of a captured call compute in turn, for some values of its variables. Raises CannotPack."""

    def __init__(self, call: JitCall, variables: dict[str, int]):
        self.call, self.variables = proxy(call), variables  # no cycle: it keeps memory until Python collects garbage
        self.graph = OpGraph()
        self._packers: list[Packer] = []
        # BUFFER -> (schedule, slot) for each schedule that assigns to it
        self._assigned: dict[UOp, list[tuple[int, int]]] = {}
        try:
            self.schedules = self._build(call.realized)
        finally:
            self._packers.clear()  # each knows this graph
        work = sum(prod(node.shape) for node in self.graph.nodes)
        self.first = max(_LEAST_FIRST, min(_MOST_FIRST, _WORK // max(work, 1)))

    def is_chosen(self, number: int) -> bool:
        """Whether the replay with this number is compared, however long that takes."""
        return number <= self.first or number & (number - 1) == 0

    @property
    def sample(self) -> str:
        """Why a replay is not compared that is not chosen."""
        first = format_plural(self.first, "replay")
        return f"not in the sample: the first {first}, every power of two, the last, and others while there is time"

    def _build(self, calls: Sequence[RealizeCall]) -> list[ScheduleGraph]:
        roots: list[list[int]] = []
        for index, realized in enumerate(calls):
            packer = self._open_packer(index)
            roots.append(list(map(packer.pack, realized.roots)))
            for u, slot in packer.add_assigned().items():
                self._assigned.setdefault(u, []).append((index, slot))
        held = self._find_held()
        reads: dict[int, tuple[UOp, str]] = {}
        for index, packer in enumerate(self._packers):
            for u, slot in packer.buffers.items():
                if self.graph.nodes[slot].op == "buffer":
                    reads[slot] = u, self.call.find_time(index, u)
        return [self._take(one, kept, reads) for one, kept in zip(roots, held, strict=True)]

    def _open_packer(self, index: int) -> Packer:
        self._packers.append(Packer(lambda u: None, self.variables, self.graph, partial(self._find_value, index)))
        return self._packers[-1]

    def _find_value(self, index: int, u: UOp) -> int | None:
        """Returns the slot of what earlier schedules than `index` have written to a BUFFER, None if there is none."""
        slots = [slot for writer, slot in self._assigned.get(u, ()) if writer < index]
        if slots:
            return slots[-1]
        for earlier in range(index - 1, -1, -1):
            value = self.call.realized[earlier].made.get(u) if earlier < len(self.call.realized) else None
            if value is not None:
                return self._packers[earlier].pack(value)
        return None

    def _find_held(self) -> list[list[_Held]]:
        """Returns for each schedule the BUFFERs that it writes last, and for the last one those with pending writes."""
        count, memory = len(self.call.realized), self.call.memory
        held: list[list[_Held]] = [[] for _ in range(count)]
        for u, writes in self._assigned.items():
            index, slot = writes[-1]
            if self.call.is_final(index, u) and (memory is None or u in memory):
                held[index].append((u, slot, None))
        for u, write in self.call.pending.items():
            packer = self._open_packer(count)
            try:
                packer.pack(write)
            except CannotPack:
                self._packers.pop()
                continue
            if (slot := packer.add_assigned().get(u)) is not None:
                held[-1].append((u, slot, False))
        return held

    def _take(self, roots: Sequence[int], held: Sequence[_Held], reads: Mapping[int, tuple[UOp, str]]) -> ScheduleGraph:
        graph, places = self.graph.take([*roots, *(slot for _, slot, _ in held)])
        graph.roots = [places[root] for root in roots]
        kept = [(u, HeldBuffer(places[slot], (), "assigned", is_written)) for u, slot, is_written in held]
        return ScheduleGraph(graph, {places[slot]: read for slot, read in reads.items() if slot in places}, kept)
