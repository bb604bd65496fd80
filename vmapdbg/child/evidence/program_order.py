"""What each Tensor means in program order: the contents that memory had when Python made the Tensor. Runs in the child.

A graph of tinygrad names memory, not its contents: a Tensor made before a write may be computed after it. Before
memory is overwritten, every live Tensor that still reads it gets a *meaning*: its graph with tagged BUFFERs, whose
contents are kept. What Python makes of such a Tensor has a meaning, too. A view of memory means what the memory holds.

A lost write: a meaning comes after it, and no Tensor has it any more, although no schedule had it. On tinygrad 0.12 an
assign to a part of a tensor only runs if the Tensor that it returns is realized. From 0.13 on a write is a STORE, and
all Tensors of the buffer come after it; in 0.13 Tensors that read through a bitcast do not. Writes to a value without a
buffer are not tracked."""

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from vmapdbg.check.result import LostWrite
from vmapdbg.child.evidence.evidence import Meant
from vmapdbg.child.evidence.tensor_calls import find_waiting, last_write, list_pending, live_tensors
from vmapdbg.child.evidence.writes import MEMORY, VIEWS, WriteOrigin, Writes, describe_write
from vmapdbg.child.identity import IdentityMap
from vmapdbg.child.listen.guard import setting
from vmapdbg.child.listen.releases import SHARDED, buffer_under, find_under, list_writes
from vmapdbg.child.listen.user_lines import replace_sources
from vmapdbg.install.overlay import load_patching
from vmapdbg.model.ops import STORES

UOp = Any
# methods that make a Tensor of another one, but not by `_apply_uop` in every release
_METHODS = ("bitcast", "cast", "clone", "contiguous", "contiguous_backward", "detach", "shard", "to")


class OldContents(NamedTuple):
    """What a BUFFER held before a write, for each device, and where the write comes from."""

    parts: tuple[bytes, ...]
    origin: WriteOrigin


class PendingTensor(NamedTuple):
    """A Tensor, held weakly, that waits for a write at `line`: its graph, its BUFFER, whether it means the graph."""

    tensor: weakref.ref[Any]
    graph: UOp
    memory: UOp
    line: str | None
    is_meant: bool


class ProgramOrder:
    """Knows the Tensors whose graphs do not mean what Python asked for. `kept` has the contents of tagged BUFFERs."""

    def __init__(self) -> None:
        self._meanings: IdentityMap[UOp] = IdentityMap()  # Tensor -> the graph that it means
        self.kept: weakref.WeakKeyDictionary[UOp, OldContents] = weakref.WeakKeyDictionary()
        self.writes = Writes()
        self._tag = 0
        self._source: Any = None  # the Tensor whose method makes another one
        # while a schedule runs: each Tensor that waits for writes, these, the writes in its value, its meaning before
        self._waiting: list[tuple[weakref.ref[Any], list[WriteOrigin], set[WriteOrigin], UOp | None]] = []

    def declare(self, changes: Any, tensor_module: ModuleType) -> None:
        """Wraps what makes a Tensor of others, and what gives a Tensor another graph."""
        tensor: Any = tensor_module.Tensor
        find = load_patching().find_parameters
        for name in filter(partial(hasattr, tensor), _METHODS):
            changes.wrap(tensor, name, self.on_method, *find(getattr(tensor, name)))  # releases differ in them
        changes.wrap(tensor, "__init__", self.on_init, *find(tensor.__init__))
        changes.wrap(tensor, "_apply_uop", self.on_apply, *find(tensor._apply_uop))
        changes.wrap(tensor, "replace", self.on_replace, *find(tensor.replace))
        changes.wrap(tensor, "assign", self.on_assign, "self", "x")
        changes.wrap(tensor, "gradient", self.on_gradient, *find(tensor.gradient))

    # *** meanings

    def find(self, tensor: Any) -> UOp | None:
        """Returns the graph that a Tensor means, None if it is the graph that it has."""
        return self._meanings.get(tensor)

    def _graph_of(self, tensor: Any) -> UOp:
        """Returns the graph that a Tensor means."""
        return self._meanings.get(tensor, tensor.uop)

    def set_meaning(self, tensor: Any, meaning: UOp | None) -> None:
        """Notes the graph that a Tensor means, None: the graph that it has."""
        if meaning is None:
            self._meanings.pop(tensor, None)
        else:
            self._meanings[tensor] = meaning

    # *** calls

    def on_method(self, call: Callable[..., Any], tensor: Any, *arguments: Any, **options: Any) -> Any:
        with setting(self, "_source", tensor):
            return call(tensor, *arguments, **options)

    def on_init(self, make: Callable[..., None], tensor: Any, *arguments: Any, **options: Any) -> None:
        make(tensor, *arguments, **options)
        if not self._meanings:
            return
        same = next((one for one in live_tensors() if one.uop is tensor.uop and one is not tensor), None)
        if same is not None:
            self.set_meaning(tensor, self.find(same))
        else:
            self._derive(tensor, () if self._source is None else (self._source,), tensor.uop.src)

    def on_apply(self, apply: Callable[..., Any], tensor: Any, *arguments: Any, **options: Any) -> Any:
        result = apply(tensor, *arguments, **options)
        if self._meanings:
            graphs = result.uop.src if result.uop.op.name == "STACK" else ()
            self._derive(result, [tensor, *(one for one in arguments if type(one) is type(tensor))], graphs)
        return result

    def _derive(self, result: Any, sources: Sequence[Any], given: Sequence[UOp]) -> None:
        """Notes what a new Tensor means, made of the Tensors `sources` and of others with the graphs `given`."""
        if [source.uop for source in sources] == list(result.uop.src):
            meant = tuple(map(self.find, sources))  # one graph may have two meanings
            src = tuple(u if m is None else m for u, m in zip(result.uop.src, meant, strict=True))
            self.set_meaning(result, replace_sources(result.uop, src) if any(m is not None for m in meant) else None)
            return
        graphs = {source.uop: self.find(source) for source in sources}
        others = {u for u in given if u not in graphs}
        graphs |= {source.uop: meaning for source, meaning in self._meanings.items() if source.uop in others}
        found = {u: meaning for u, meaning in graphs.items() if meaning is not None}
        if not others.isdisjoint(found):
            # a Tensor that was made again after the write has the same graph
            again = {one.uop for one in live_tensors() if one is not result and self.find(one) is None}
            found = {u: meaning for u, meaning in found.items() if u not in others & again}
        self.set_meaning(result, self.writes.rebuild(result.uop, found) if found else None)
        self.writes.note_made()

    def on_replace(self, replace: Callable[..., Any], tensor: Any, other: Any, *options: Any, **named: Any) -> Any:
        result = replace(tensor, other, *options, **named)
        self.set_meaning(tensor, self.find(other))
        return result

    def on_assign(self, assign: Callable[..., Any], tensor: Any, value: Any) -> Any:
        before = [(one, one.uop) for one in live_tensors()]
        meaning, given, target = self.find(value), getattr(value, "uop", None), tensor.uop
        counters = getattr(type(tensor), "_device_rng_counters", {}).values()
        origin = WriteOrigin(describe_write(target), any(tensor is one for one in counters))
        result = assign(tensor, value)
        # other writes than the new one may be unknown
        known = set(target.toposort()) | set(() if given is None else given.toposort())
        writes = [u for u in result.uop.toposort() if u.op.name in STORES and u not in known]
        self.writes.origins.update(dict.fromkeys(writes, origin))
        self.writes.pending.update(writes)
        for one, graph in before:
            # from 0.13 on, Tensors that were made before the write to a view come after it
            is_changed = one.uop is not graph and one is not result
            if is_changed and self.find(one) is None and find_under(graph, VIEWS).op.name not in MEMORY:
                self.set_meaning(one, graph)
        # whatever the target held: now it holds the value
        self.set_meaning(result, None if meaning is None else self.writes.rebuild(result.uop, {given: meaning}))
        if (write := last_write(result.uop)) is not None:
            self._see_write(write, buffer_under(write.src[0]))
        self.writes.note_made()
        return result

    def on_gradient(self, compute: Callable[..., Any], loss: Any, /, *targets: Any, **options: Any) -> Any:
        """The gradients of a value are made of what it was made of."""
        results, meaning = compute(loss, *targets, **options), self._graph_of(loss)
        if not self._meanings:
            return results
        old = {u.replace(tag=None): u for u in meaning.toposort() if u in self.kept}
        # else it comes after other writes than its graph: what its gradients mean is not known
        if self.writes.rebuild(loss.uop, old) is meaning:
            for result in results:
                found = self.writes.rebuild(result.uop, old)
                self.set_meaning(result, None if found is result.uop else found)
        self.writes.note_made()
        return results

    def _see_write(self, write: UOp, memory: UOp | None) -> None:
        """Notes a write at the other Tensors of the memory. In 0.12 only the Tensor that the assign returns has it."""
        for tensor in live_tensors():
            graph = self._graph_of(tensor)
            state = find_under(graph, {"RESHAPE"})
            if _is_whole(graph) and buffer_under(state) is memory is not None and write not in graph.toposort():
                self.set_meaning(tensor, self.writes.rebuild(graph, {state: state.after(write)}))

    # *** a schedule

    def before(self, nodes: Collection[UOp], asked: Sequence[Any], read: Callable[[UOp], tuple[bytes, ...]]) -> None:
        """Prepares for a schedule with these `nodes`, for the Tensors `asked`. `read` returns what a BUFFER holds."""
        written: dict[UOp, list[WriteOrigin]] = {}
        for memory, write in list_writes(nodes):
            if not getattr(memory, "is_variable", False):
                origin = self.writes.origins.get(write, WriteOrigin())
                origin.is_done = True
                written.setdefault(memory, []).append(origin)
                self.writes.pending.discard(write)
        if not written:
            return
        self._tag += 1
        old = {memory: memory.replace(tag=("vmapdbg", self._tag)) for memory in written}
        old_nodes = set(old.values())
        others = list(live_tensors(without=asked))
        for tensor in others:
            if waiting := _list_waiting(tensor):
                origins, needed = self.writes.origins_of(waiting), self._list_needed(tensor)
                self._waiting.append((weakref.ref(tensor), origins, needed, self.find(tensor)))
        # node -> whether it reads what will be overwritten, other than by what is asked for
        reads: dict[UOp, bool] = {**dict.fromkeys(written, True), **{tensor.uop: False for tensor in asked}}
        changed: dict[UOp, bool] = dict.fromkeys(written, True)
        is_needed = False
        for tensor in others:
            meaning = self.find(tensor)  # tinygrad does not know it: it stays as it is
            graph, known = (tensor.uop, reads) if meaning is None else (meaning, changed)
            if not _does_read(graph, known):
                continue
            is_memory = buffer_under(graph) in written
            writes = [u for one, u in list_writes(graph.toposort()) if one in written]
            is_known = all(u in self.writes.origins for u in writes)
            is_settled = is_memory or all(self.writes.origins[u].is_done for u in writes if is_known)
            # in 0.12 a second assign has memory of its own
            is_chain = any(u.op.name == "ASSIGN" and last_write(u.src[0]) is not None for u in writes)
            if is_known and is_settled and not is_chain:
                found = self.writes.settle(graph, written, old, is_memory)
            elif is_known or not is_memory:
                found = self.writes.rebuild(graph, old)
            else:
                found = tensor.uop  # which of its writes are done is not known
            is_old = not old_nodes.isdisjoint(found.toposort())
            is_needed = is_needed or is_old
            self.set_meaning(tensor, found if is_old or (meaning is not None and found is not tensor.uop) else None)
        self.writes.note_made()
        if is_needed:
            self.kept.update({u: OldContents(read(memory), written[memory][-1]) for memory, u in old.items()})

    def find_asked(self, tensor: Any) -> tuple[UOp | None, set[UOp]]:
        """Returns what a Tensor means without pending writes that are not in its graph (None: its graph), and these."""
        meaning = self.find(tensor)
        if meaning is None:
            return None, set()
        writes = list(list_writes(tensor.uop.toposort()))
        have = {self.writes.origins.get(write) for _, write in writes}
        # the value of one of its writes has been computed in the meantime
        changed = {memory for memory, write in writes if write not in self.writes.origins}
        left_out: dict[UOp, list[WriteOrigin]] = {}
        pending = set[UOp]()
        for memory, u in list_writes(meaning.toposort()):
            if u not in self.writes.pending or u not in self.writes.origins or memory in changed:
                continue
            origin = self.writes.origins[u]
            if not origin.is_done and origin not in have:
                pending.add(u)
                left_out.setdefault(memory, []).append(origin)
        found = self.writes.settle(meaning, left_out, {}, is_memory=False)
        self.writes.note_made()
        return (None if found is tensor.uop else found), pending

    def list_others(self, asked: Collection[Any], nodes: Collection[UOp]) -> Iterator[tuple[weakref.ref[Any], UOp]]:
        """Yields Tensors that get a value from a schedule with these `nodes` but are not `asked`, with their meanings:
        other graphs. Such a Tensor has the graph of an asked one, or all its writes are in the schedule."""
        graphs = {tensor.uop for tensor in asked}
        for tensor in live_tensors(without=asked):
            if (meaning := self.find(tensor)) is None:
                continue
            waiting = _list_waiting(tensor)
            if tensor.uop in graphs or (waiting and all(write in nodes for write in waiting)):
                yield weakref.ref(tensor), meaning

    def list_pending(self, asked: Collection[Any]) -> Iterator[PendingTensor]:
        """Yields the Tensors that are not `asked` and wait for a write."""
        for tensor, memory, graph in list_pending(without=asked):
            if (write := last_write(graph)) is not None:
                origin, is_meant = self.writes.origins.get(write, WriteOrigin()), self.find(tensor) is None
                yield PendingTensor(weakref.ref(tensor), graph, memory, origin.line, is_meant)

    def explain(self, slot: int, nodes: Iterable[UOp], meaning: UOp) -> Meant:
        """Returns why output `slot` does not mean its graph of `nodes`: the graph has writes that the meaning lacks."""
        meant = meaning.toposort()
        origins = [self.kept[u].origin for u in meant if u in self.kept]
        done = set(self.writes.origins_of(meant))
        origins += [origin for origin in self.writes.origins_of(nodes) if origin not in done]
        lines = dict.fromkeys(origin.line for origin in origins if origin.line is not None)
        return Meant(slot, tuple(lines), bool(origins) and all(origin.is_draw for origin in origins))

    def after(self, asked: Sequence[Any]) -> list[LostWrite]:
        """After a schedule ran: returns the writes that it did not have and that no waiting Tensor has any more."""
        for tensor in asked:
            self.set_meaning(tensor, None)
        lost: dict[WriteOrigin, None] = {}
        for reference, waiting, needed, meaning in self._waiting:
            tensor = reference()
            if tensor is None:
                continue
            writes = _list_waiting(tensor)
            if writes and len(writes) == len(waiting) and any(origin.is_done for origin in waiting):
                self.set_meaning(tensor, meaning)  # 0.12 leaves out writes that no output depends on
                for origin in waiting:
                    origin.is_done = False
            waiting = [origin for origin in waiting if not origin.is_done]
            missing = max(len(waiting) - len(writes), 0)  # tinygrad keeps their order
            # a Tensor that does not wait any more is compared, see list_pending
            if not needed.isdisjoint(waiting[:missing]) and (writes or meaning is not None):
                lost |= dict.fromkeys(waiting[:missing])
                self.set_meaning(tensor, None)  # what follows from it is no finding of its own
            self.writes.made += zip(writes, waiting[missing:], strict=False)
            self.writes.pending.update(writes)
        self.writes.note_made()
        self._waiting = []
        for origin in lost:
            origin.is_done = True
        return [origin.report for origin in lost if origin.report is not None]

    def _list_needed(self, tensor: Any) -> set[WriteOrigin]:
        """Returns the writes that the value of a memory Tensor depends on: a write may replace what all others left."""
        graph = self._graph_of(tensor)
        write = last_write(graph)
        nodes = graph.toposort()
        if write is not None and _is_whole(write.src[0]):
            nodes = {write, *write.src[1].toposort()}
        return set(self.writes.origins_of(nodes))


def _list_waiting(tensor: Any) -> list[UOp]:
    """Returns the writes to a Tensor's memory that it waits for, in their order; nothing if it is no memory."""
    shown = find_waiting(tensor)
    if shown is None:
        return []
    shown_memory = buffer_under(shown)
    return [u for memory, u in list_writes(shown.toposort()) if memory is shown_memory]


def _is_whole(u: UOp) -> bool:
    """Whether a graph is all of some memory."""
    return find_under(u, SHARDED | {"RESHAPE", "AFTER"}).op.name in MEMORY


def _does_read(root: UOp, known: dict[UOp, bool]) -> bool:
    """Returns whether a graph has a node that is true in `known`; adds its other nodes."""
    for u in root.toposort(lambda u: u not in known):
        if u not in known:
            known[u] = any(known[source] for source in u.src)
    return known[root]
