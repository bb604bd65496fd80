"""Finds the outputs of a schedule, and buffers of the snippet, in the graph after each pass and in the memory that the
kernels leave when numpy runs them in order. Runs in the child. Until 0.12 tags number the UOps of the tensor graph.
From 0.13 on there is first a graph of writes to buffers; each write keeps its place in the root."""

from collections.abc import Callable, Container, Sequence
from typing import Any

from vmapdbg.check.result import Difference, RewriteKind, WrongRewrite
from vmapdbg.child.evidence.loop_packer import LoopPacker, find_base, find_buffer, list_views
from vmapdbg.child.evidence.packer import CannotPack
from vmapdbg.child.failures.diagnose import KnownNodes
from vmapdbg.child.listen.records import Launch
from vmapdbg.child.listen.releases import find_under, kernel_of
from vmapdbg.child.passes.steps import describe_uop, find_rule_of
from vmapdbg.child.passes.watch import Chain, FollowedCall, PassRun
from vmapdbg.child.program.linear_reader import list_stored
from vmapdbg.model.ops import RESHAPING, STAGE_OPS

UOp = Any
_BELOW_TARGET = RESHAPING | {"BITCAST", "INDEX", "AFTER"}
_MEMORY = frozenset({"BUFFER", "PARAM"})


def choose_chains(one: FollowedCall) -> list[Chain]:
    """Returns the chains of a schedule. The overlay tries several for a graph or parts: the last has the kernels."""
    attempts = [chain for chain in one.chains if chain.function == "get_rangeify_map"]
    if not attempts or not one.created:
        return attempts[-1:] or one.chains
    asts = {launch.ast for launch in one.created[-1]}
    for chain in reversed(attempts):
        kernels = list(map(kernel_of, chain.runs[-1].after.toposort()))
        if asts <= {kernel[0] for kernel in kernels if kernel is not None}:
            return [chain]
    return attempts[-1:]


def note_outputs(chains: Sequence[Chain]) -> dict[int, UOp]:
    """Notes the outputs after each pass. Returns the outputs in the graph before the first pass."""
    wanted = dict(enumerate(chains[0].runs[0].before.src))
    if chains[0].function == "get_rangeify_map":
        _follow_tags(chains[0].runs)
        return {number: find_base(u) for number, u in wanted.items()}
    known = wanted
    for chain in chains:
        for run in chain.runs:
            run.is_memory = chain.function == "get_kernel_graph"
            before, after = run.before.src, run.after.src
            if len(before) != len(after):
                known = {}
            elif run.is_memory:
                known = _follow_memory(before, after, known)
            else:
                known = _follow_places(before, after, known)
            run.outputs = known
    return wanted


def _follow_tags(runs: Sequence[PassRun]) -> None:
    tags: dict[int, int] = {}
    for number, u in enumerate(runs[0].after.src):
        tag = find_base(u).tag
        if isinstance(tag, tuple) and tag:
            tags[number] = tag[0]
    order: list[int | None] = []  # number of the output at each place of the root, for graphs without tags
    for run in runs:
        found: dict[int, UOp] = {}
        for u in run.after.src:
            for view in (*list_views(u), find_base(u)):
                for number, tag in tags.items():
                    if isinstance(view.tag, tuple) and tag in view.tag:
                        found.setdefault(number, view)
        if not found and order:
            found = {number: u for number, u in zip(order, run.after.src, strict=False) if number is not None}
        else:
            places = {u: number for number, u in found.items()}
            order = list(map(places.get, run.after.src))
        run.outputs = found


def _follow_places(before: Sequence[UOp], after: Sequence[UOp], known: dict[int, UOp]) -> dict[int, UOp]:
    """Returns each output after a pass: it is at the same place of the root, or a view of such a UOp."""
    places = {u: place for place, u in enumerate(before)}
    found: dict[int, UOp] = {}
    for number, u in known.items():
        views: list[UOp] = []
        if u not in places:
            views, u = list_views(u), find_base(u)
        if u in places:
            made = after[places[u]]
            for view in reversed(views):
                made = view.replace(src=(made, *view.src[1:]))
            found[number] = made
    return found


def _follow_memory(before: Sequence[UOp], after: Sequence[UOp], known: dict[int, UOp]) -> dict[int, UOp]:
    """Returns the buffer of each output after a pass: tinygrad may remove its views."""
    places = {find_buffer(u): place for place, u in enumerate(before)}
    slots = {_slot_of(buffer): place for buffer, place in places.items()}
    found: dict[int, UOp] = {}
    for number, u in known.items():
        buffer = find_buffer(u)
        place = places.get(buffer, slots.get(_slot_of(buffer)))
        if place is not None:
            found[number] = after[place]
    return found


def _slot_of(buffer: UOp) -> int | None:
    """Returns the number of a PARAM among the arguments, which it keeps when it is tagged."""
    if buffer.op.name != "PARAM":
        return None
    return getattr(buffer.arg, "slot", buffer.arg)


class BufferFollower:
    """Packs what buffers hold. `snippet_buffer_of` returns the snippet's BUFFER for a leaf, None for another leaf."""

    def __init__(self, packer: LoopPacker, snippet_buffer_of: Callable[[UOp], UOp | None]):
        self.packer, self.snippet_buffer_of = packer, snippet_buffer_of

    def pack_memory(self, sink: UOp, buffer: UOp) -> int:
        """Returns the slot of what a buffer holds when the whole graph has run. Raises CannotPack."""
        # the AFTERs of the buffer, and the ASSIGNs to it, in the order of the graph
        states: list[UOp] = []
        assigns: list[UOp] = []
        for u in sink.toposort():
            if u.op.name == "AFTER" and self.snippet_buffer_of(find_buffer(u)) is buffer:
                states.append(u)
            elif u.op.name == "ASSIGN" and self._is_target(buffer, u):
                assigns.append(u)
            elif u.op.name == "ASSIGN" and self._is_target(buffer, u, _BELOW_TARGET | {*STAGE_OPS}):
                raise CannotPack("it is written through a buffer that a later pass takes away")
        if states:
            last = states[-1]
            if not set(states) <= set(last.toposort()):
                raise CannotPack("it is written in two ways that do not follow each other")
            return self.packer.pack_memory(last)
        leaves = (u for u in sink.toposort() if self.snippet_buffer_of(u) is buffer)
        return self.packer.add_writes(assigns, self.packer.pack(next(leaves, buffer)))

    def _is_target(self, buffer: UOp, assign: UOp, ops: Container[str] = _BELOW_TARGET) -> bool:
        """Whether the target of an ASSIGN, under all of `ops`, is a buffer."""
        return self.snippet_buffer_of(find_under(assign.src[0], ops)) is buffer

    def explain(self, run: PassRun, buffer: UOp, found: Difference, nodes: KnownNodes) -> WrongRewrite | None:
        """Returns a pass's first rewrite from or to a write to a buffer, whose contents then differ by `found`."""
        for old, new in run.rewrites:
            kind: RewriteKind | None = None
            made = find_base(new)
            is_value = old.op.name in STAGE_OPS and old.src[0].op.name not in {"ASSIGN", "AFTER"}
            if old.op.name == "ASSIGN" and new.op.name != "ASSIGN" and self._is_target(buffer, old):
                kind = "write"
            elif is_value and made.op.name == "AFTER" and self.snippet_buffer_of(find_buffer(made)) is buffer:
                kind = "overwrites"
            if kind is not None:
                rule, node = find_rule_of(run, old, new), nodes.find(old)
                return WrongRewrite(kind, describe_uop(old), describe_uop(new), rule, found, (), node, None, 1, 0)
        return None


class OrderedKernels:
    """The launches of one schedule, on one memory. `held` has the slot of what each buffer holds after the last one."""

    def __init__(self, created: Sequence[Launch], packer: LoopPacker):
        """Adds the launches of a created schedule to the graph of `packer`. Raises CannotPack."""
        self.packer = packer
        self.held: dict[UOp, int] = {}
        for launch in created:
            slots = tuple(map(self._find_held, launch.buffers))
            variables = {**packer.sizes.variables, **launch.variables}
            for number in [0] if launch.ast.op.name == "COPY" else list_stored(launch.ast):
                made = packer.add_launch(launch.ast, variables, number, slots[number], slots)
                self.held[launch.buffers[number]] = made

    def find_slot(self, u: UOp, is_memory: bool) -> int:
        """Returns the slot of an output after the last launch, or of all that its buffer holds. Raises CannotPack."""
        base = find_base(u)
        buffer = find_buffer(base)
        if is_memory:
            return self.held[buffer] if buffer in self.held else self.packer.pack_memory(u)
        if base.op.name not in {"AFTER", *_MEMORY} or buffer not in self.held:
            return self.packer.pack(u)
        slot = self.held[buffer]
        for view in reversed(list_views(u)):
            slot = self.packer.add_view(view, slot)
        return slot

    def _find_held(self, buffer: UOp) -> int:
        if buffer.op.name not in _MEMORY:
            raise CannotPack(f"a kernel is given {buffer.op.name}")
        if buffer not in self.held:
            self.held[buffer] = self.packer.pack(buffer)
        return self.held[buffer]
