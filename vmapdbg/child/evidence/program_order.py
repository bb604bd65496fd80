"""What each Tensor means in program order: the contents that memory had when Python made the Tensor. Runs in the child.

A graph of tinygrad names memory, not its contents: a Tensor made before a write may be computed after it. Before
memory is overwritten, every live Tensor that still reads it gets a *meaning*: its graph with tagged BUFFERs, whose
contents are kept. What Python makes of such a Tensor has a meaning, too. A view of memory means what the memory holds.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from vmapdbg.child.evidence.evidence import Meant
from vmapdbg.child.evidence.tensor_calls import PendingTensor, buffer_under, last_write, live_tensors
from vmapdbg.child.listen.releases import find_under, list_writes
from vmapdbg.child.listen.user_lines import find_user_line
from vmapdbg.install.overlay import load_patching

UOp = Any
_WRITES = {"ASSIGN", "STORE"}
# CONTIGUOUS of memory may be the memory itself, as in numpy
_VIEWS = {"RESHAPE", "EXPAND", "PERMUTE", "SHRINK", "FLIP", "BITCAST", "DETACH", "AFTER", "ASSIGN", "CONTIGUOUS"}


# methods that make a Tensor of another one, but not by `_apply_uop` in every release
_METHODS = ("bitcast", "cast", "clone", "contiguous", "contiguous_backward", "detach", "shard", "to")


@dataclass(frozen=True)
class Origin:
    """Where the program asks for a write: the user's line, and whether it moves the counter of random numbers."""

    line: str | None = None
    is_draw: bool = False


@dataclass(frozen=True)
class OldContents:
    """What a BUFFER held before a write, for each device, and where the write comes from."""

    parts: tuple[bytes, ...]
    origin: Origin


class ProgramOrder:
    """Knows the Tensors whose graphs do not mean what Python asked for. `kept` has the contents of tagged BUFFERs."""

    def __init__(self) -> None:
        # id of a Tensor -> the Tensor, and the graph that it means
        self._meanings: dict[int, tuple[weakref.ref[Any], UOp]] = {}
        self.kept: weakref.WeakKeyDictionary[UOp, OldContents] = weakref.WeakKeyDictionary()
        self._origins: weakref.WeakKeyDictionary[UOp, Origin] = weakref.WeakKeyDictionary()
        self._tag = 0
        # the Tensor whose method makes another one
        self._source: Any = None

    def declare(self, changes: Any, tensor_module: ModuleType) -> None:
        """Wraps what makes a Tensor of others, and what gives a Tensor another graph."""
        tensor: Any = tensor_module.Tensor
        find = load_patching().find_parameters
        # their other parameters change between releases
        for name in filter(partial(hasattr, tensor), _METHODS):
            changes.wrap(tensor, name, self.on_method, *find(getattr(tensor, name)))
        changes.wrap(tensor, "__init__", self.on_init, *find(tensor.__init__))
        changes.wrap(tensor, "_apply_uop", self.on_apply, *find(tensor._apply_uop))
        changes.wrap(tensor, "replace", self.on_replace, *find(tensor.replace))
        changes.wrap(tensor, "assign", self.on_assign, "self", "x")

    # *** meanings

    def find(self, tensor: Any) -> UOp | None:
        """Returns the graph that a Tensor means, None if it is the graph that it has."""
        known = self._meanings.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else None

    def set(self, tensor: Any, meaning: UOp | None) -> None:
        """Notes the graph that a Tensor means, None: the graph that it has."""
        key = id(tensor)
        if meaning is None:
            self._meanings.pop(key, None)
            return

        def forget(reference: weakref.ref[Any]) -> None:
            if key in self._meanings and self._meanings[key][0] is reference:
                del self._meanings[key]

        self._meanings[key] = weakref.ref(tensor, forget), meaning

    # *** calls

    def on_method(self, call: Callable[..., Any], tensor: Any, *arguments: Any, **options: Any) -> Any:
        before, self._source = self._source, tensor
        try:
            return call(tensor, *arguments, **options)
        finally:
            self._source = before

    def on_init(self, make: Callable[..., None], tensor: Any, *arguments: Any, **options: Any) -> None:
        make(tensor, *arguments, **options)
        if self._meanings:
            self._derive(tensor, () if self._source is None else (self._source,), tensor.uop.src)

    def on_apply(self, apply: Callable[..., Any], tensor: Any, *arguments: Any, **options: Any) -> Any:
        result = apply(tensor, *arguments, **options)
        if self._meanings:
            graphs = result.uop.src if result.uop.op.name == "STACK" else ()
            self._derive(result, [tensor, *(one for one in arguments if type(one) is type(tensor))], graphs)
        return result

    def _derive(self, result: Any, sources: Sequence[Any], given: Sequence[UOp]) -> None:
        """Notes what a new Tensor means: it is made of the Tensors `sources`, and of other Tensors with the graphs
        `given`."""
        if [source.uop for source in sources] == list(result.uop.src):
            # one graph may have two meanings
            meant = tuple(map(self.find, sources))
            src = tuple(u if m is None else m for u, m in zip(result.uop.src, meant, strict=True))
            self.set(result, result.uop.replace(src=src) if any(m is not None for m in meant) else None)
            return
        graphs = {source.uop: self.find(source) for source in sources}
        others = {u for u in given if u not in graphs}
        for reference, meaning in list(self._meanings.values()):
            source = reference()
            if source is not None and source.uop in others:
                graphs[source.uop] = meaning
        found = {u: meaning for u, meaning in graphs.items() if meaning is not None}
        if not others.isdisjoint(found):
            # a Tensor that was made again after the write has the same graph
            again = {one.uop for one in live_tensors() if one is not result and self.find(one) is None}
            found = {u: meaning for u, meaning in found.items() if u not in others & again}
        self.set(result, rebuild(result.uop, found) if found else None)

    def on_replace(self, replace: Callable[..., Any], tensor: Any, other: Any, *options: Any, **named: Any) -> Any:
        result = replace(tensor, other, *options, **named)
        self.set(tensor, self.find(other))
        return result

    def on_assign(self, assign: Callable[..., Any], tensor: Any, value: Any) -> Any:
        before = [(one, one.uop) for one in live_tensors()]
        meaning, given = self.find(value), getattr(value, "uop", None)
        counters = getattr(type(tensor), "_device_rng_counters", {}).values()
        origin = Origin(find_user_line(), any(tensor is one for one in counters))
        result = assign(tensor, value)
        self._note_assign(result, before, given, meaning, origin)
        return result

    def _note_assign(
        self, result: Any, before: Sequence[tuple[Any, UOp]], given: UOp, meaning: UOp | None, origin: Origin
    ) -> None:
        """Notes an assign of a value with the graph `given` and a meaning; `before` has all Tensors and their graphs
        from before it."""
        for one, graph in before:
            # from 0.13 on, Tensors that were made before the write to a view come after it
            if one.uop is not graph and one is not result and self.find(one) is None and not is_view(graph):
                self.set(one, graph)
        # whatever the target held: now it holds the value
        self.set(result, None if meaning is None else rebuild(result.uop, {given: meaning}))
        for u in result.uop.toposort():
            if u.op.name in _WRITES:
                self._origins.setdefault(u, origin)
        write = last_write(result.uop)
        if write is not None:
            self._see_write(write, buffer_under(write.src[0]))

    def _see_write(self, write: UOp, memory: UOp | None) -> None:
        """Notes a write at the other Tensors of the whole memory. In 0.12 only the Tensor that the assign returns has
        the write in its graph."""
        for tensor in live_tensors():
            graph = self.find(tensor)
            if graph is None:
                graph = tensor.uop
            state = find_under(graph, {"RESHAPE"})
            if _is_whole(graph) and buffer_under(state) is memory is not None and write not in graph.toposort():
                self.set(tensor, rebuild(graph, {state: state.after(write)}))

    # *** a schedule

    def before(self, nodes: Collection[UOp], asked: Sequence[Any], read: Callable[[UOp], tuple[bytes, ...]]) -> None:
        """Prepares for a schedule that will run: `nodes` is its graph, `asked` its Tensors, and `read` returns what a
        BUFFER holds."""
        written: dict[UOp, Origin] = {}
        for memory, write in list_writes(nodes):
            if not getattr(memory, "is_variable", False):
                written[memory] = self._origins.get(write, Origin())
        if not written:
            return
        self._tag += 1
        old = {memory: memory.replace(tag=("vmapdbg", self._tag)) for memory in written}
        done = set(map(id, asked))
        # node -> whether it reads what will be overwritten, other than by what is asked for
        reads: dict[UOp, bool] = {**dict.fromkeys(written, True), **{tensor.uop: False for tensor in asked}}
        changed: dict[UOp, bool] = dict.fromkeys(written, True)
        is_needed = False
        for tensor in live_tensors():
            # tinygrad does not know a meaning: it stays as it is
            meaning = self.find(tensor)
            graph, known = (tensor.uop, reads) if meaning is None else (meaning, changed)
            if id(tensor) in done or buffer_under(graph) in written:
                # memory holds the write from now on
                writes = [u for u in graph.toposort() if u.op.name in _WRITES]
                # which of the writes that were rebuilt is done is not known
                is_known = meaning is not None and all(u in self._origins for u in writes)
                self.set(tensor, self._leave_out(graph, nodes, tensor.uop) if is_known else None)
            elif _does_read(graph, known):
                self.set(tensor, rebuild(graph, old))
                is_needed = True
        if is_needed:
            self.kept.update({u: OldContents(read(memory), written[memory]) for memory, u in old.items()})

    def _leave_out(self, meaning: UOp, writes: Collection[UOp], graph: UOp) -> UOp | None:
        """Returns a meaning without the writes that `_see_write` added; None if it is the graph of its Tensor then."""
        seen = {u: u.src[0] for u in meaning.toposort() if u.op.name == "AFTER" and u.src[1] in writes}
        found = rebuild(meaning, {u: rebuild(below, seen) for u, below in seen.items()})
        return None if found is graph else found

    def find_asked(self, tensor: Any) -> tuple[UOp | None, set[UOp]]:
        """Returns the graph that a Tensor means without the writes that are not in its graph, None if it has that
        graph; and these writes. A write that no schedule has is pending."""
        meaning = self.find(tensor)
        if meaning is None:
            return None, set()
        nodes = tensor.uop.toposort()
        pending = {u for u in meaning.toposort() if u in self._origins and u not in nodes}
        return self._leave_out(meaning, pending, tensor.uop), pending

    def list_pending(self, asked: Collection[Any]) -> Iterator[PendingTensor]:
        """Yields the Tensors that are not `asked` and wait for a write."""
        known = set(map(id, asked))
        for tensor in live_tensors():
            graph = find_under(tensor.uop, {"RESHAPE"})
            if id(tensor) in known or graph.op.name not in {"ASSIGN", "AFTER"}:
                continue
            memory, write = buffer_under(graph), last_write(graph)
            if memory is not None and write is not None:
                origin, is_meant = self._origins.get(write, Origin()), self.find(tensor) is None
                yield PendingTensor(weakref.ref(tensor), graph, memory, origin.line, is_meant)

    def explain(self, slot: int, nodes: Iterable[UOp], meaning: UOp) -> Meant:
        """Returns why an output means something else than its graph: the graph has these `nodes` and the position
        `slot`, and comes after writes that the meaning does not come after."""
        meant = meaning.toposort()
        origins = [self.kept[u].origin for u in meant if u in self.kept]
        origins += [self._origins[u] for u in nodes if u in self._origins and u not in meant]
        lines = dict.fromkeys(origin.line for origin in origins if origin.line is not None)
        return Meant(slot, tuple(lines), bool(origins) and all(origin.is_draw for origin in origins))

    def after(self, asked: Sequence[Any]) -> None:
        """A schedule has run: its Tensors hold values."""
        for tensor in asked:
            self.set(tensor, None)


def is_view(u: UOp) -> bool:
    """Whether a graph is a view of memory."""
    return find_under(u, _VIEWS).op.name == "BUFFER"


def _is_whole(u: UOp) -> bool:
    """Whether a graph is all of some memory."""
    return find_under(u, {"RESHAPE", "AFTER"}).op.name == "BUFFER"


def _does_read(root: UOp, known: dict[UOp, bool]) -> bool:
    """Returns whether a graph has a node that is true in `known`; adds its other nodes."""
    for u in root.toposort(lambda u: u not in known):
        if u not in known:
            known[u] = any(known[source] for source in u.src)
    return known[root]


def rebuild(root: UOp, replaced: Mapping[UOp, UOp]) -> UOp:
    """Returns a graph with other UOps in place of some of its nodes."""
    made = dict(replaced)
    for u in root.toposort(lambda u: u not in made):
        if u not in made:
            src = tuple(made[source] for source in u.src)
            made[u] = u if src == u.src else u.replace(src=src)
    return made[root]
