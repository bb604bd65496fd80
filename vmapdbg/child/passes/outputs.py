"""Finds the outputs of a schedule, and the buffers of the snippet, in the graph after each pass. Runs in the child.

Until 0.12 the scheduler numbers the UOps of the tensor graph and keeps the numbers as tags. From 0.13 on it first makes
a graph of writes to buffers; each write keeps its place in the graph's root.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

from vmapdbg.check.result import Difference, RewriteKind, WrongRewrite
from vmapdbg.child.evidence.loop_packer import LoopPacker, find_base, find_buffer, list_views
from vmapdbg.child.evidence.packer import CannotPack
from vmapdbg.child.failures.diagnose import KnownNodes
from vmapdbg.child.listen.releases import kernel_of, list_launches
from vmapdbg.child.passes.steps import describe_uop, find_rule
from vmapdbg.child.passes.watch import Chain, PassRun, Watched
from vmapdbg.model.ops import RESHAPING, STAGE_OPS

UOp = Any
_BELOW_TARGET = RESHAPING | {"BITCAST", "INDEX", "AFTER"}


@dataclass
class Followed:
    """One pass with the UOp of each output after it, by the output's number. `is_memory`: not for the output, but
    for all that the buffer holds that it is in."""

    run: PassRun
    outputs: dict[int, UOp]
    is_memory: bool = False


def choose_chains(seen: Watched) -> list[Chain]:
    """Returns the chains that the schedule came from. The overlay tries several ways to fuse, for all of the graph or
    for parts of it, each a chain of its own: the taken chain is the last chain that has the kernels."""
    attempts = [chain for chain in seen.chains if chain.function == "get_rangeify_map"]
    if not attempts or not seen.created:
        return attempts[-1:] or seen.chains
    asts = {launch.ast for launch in list_launches(seen.created[-1].launches)}
    for chain in reversed(attempts):
        known = [kernel_of(u) for u in chain.runs[-1].after.toposort()]
        if asts <= {one[0] for one in known if one is not None}:
            return [chain]
    return attempts[-1:]


def follow_outputs(chains: Sequence[Chain]) -> tuple[dict[int, UOp], list[Followed]]:
    """Returns the outputs in the first graph, and in the graph after each pass."""
    wanted = dict(enumerate(chains[0].runs[0].before.src))
    if chains[0].function == "get_rangeify_map":
        bases = {number: find_base(u) for number, u in wanted.items()}
        return bases, _follow_tags(chains[0].runs)
    known = wanted
    followed: list[Followed] = []
    for chain in chains:
        is_memory = chain.function == "get_kernel_graph"
        for run in chain.runs:
            known = _find_memory(run, known) if is_memory else _find_places(run, known)
            followed.append(Followed(run, known, is_memory))
    return wanted, followed


# *** by tags


def _follow_tags(runs: Sequence[PassRun]) -> list[Followed]:
    tags: dict[int, int] = {}
    for number, u in enumerate(runs[0].after.src):
        tag = find_base(u).tag
        if isinstance(tag, tuple) and tag:
            tags[number] = tag[0]
    followed: list[Followed] = []
    # number of the output at each place of the root, for graphs without tags
    order: list[int | None] = []
    for run in runs:
        found = _find_tagged(run.after, tags)
        if not found and order:
            found = {number: u for number, u in zip(order, run.after.src, strict=False) if number is not None}
        else:
            places = {u: number for number, u in found.items()}
            order = [places.get(u) for u in run.after.src]
        followed.append(Followed(run, found))
    return followed


def _find_tagged(sink: UOp, tags: dict[int, int]) -> dict[int, UOp]:
    found: dict[int, UOp] = {}
    for u in sink.src:
        for view in (*list_views(u), find_base(u)):
            for number, tag in tags.items():
                if isinstance(view.tag, tuple) and tag in view.tag:
                    found.setdefault(number, view)
    return found


# *** by places


def _find_places(run: PassRun, known: dict[int, UOp]) -> dict[int, UOp]:
    """Returns each output after a pass: it is at the same place of the root, or a view of such a UOp."""
    before, after = run.before.src, run.after.src
    if len(before) != len(after):
        return {}
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


def _find_memory(run: PassRun, known: dict[int, UOp]) -> dict[int, UOp]:
    """Returns the buffer of each output after a pass: tinygrad may remove its views."""
    before, after = run.before.src, run.after.src
    if len(before) != len(after):
        return {}
    places = {find_buffer(u): place for place, u in enumerate(before)}
    slots = {_find_slot(buffer): place for buffer, place in places.items()}
    found: dict[int, UOp] = {}
    for number, u in known.items():
        buffer = find_buffer(u)
        place = places.get(buffer, slots.get(_find_slot(buffer)))
        if place is not None:
            found[number] = after[place]
    return found


def _find_slot(buffer: UOp) -> int | None:
    """Returns the number of a PARAM among the arguments, which it keeps when it is tagged."""
    return getattr(buffer.arg, "slot", buffer.arg) if buffer.op.name == "PARAM" else None


# *** buffers of the snippet


class BufferFollower:
    """Packs what buffers hold. `find_own` returns the BUFFER of the snippet for a leaf of any graph, None for another
    leaf."""

    def __init__(self, packer: LoopPacker, find_own: Callable[[UOp], UOp | None]):
        self.packer, self.find_own = packer, find_own

    def pack_memory(self, sink: UOp, buffer: UOp) -> int:
        """Returns the slot of what a buffer holds when the whole graph has run. Raises CannotPack."""
        states, assigns = self._find_writes(sink, buffer)
        if states:
            last = states[-1]
            if not set(states) <= set(last.toposort()):
                raise CannotPack("it is written in two ways that do not follow each other")
            return self.packer.pack_memory(last)
        leaves = (u for u in sink.toposort() if self.find_own(u) is buffer)
        return self.packer.add_writes(assigns, self.packer.pack(next(leaves, buffer)))

    def _find_writes(self, sink: UOp, buffer: UOp) -> tuple[list[UOp], list[UOp]]:
        """Returns the AFTERs of a buffer, and the ASSIGNs to it, in the order of the graph."""
        states: list[UOp] = []
        assigns: list[UOp] = []
        for u in sink.toposort():
            if u.op.name == "AFTER" and self.find_own(find_buffer(u)) is buffer:
                states.append(u)
            elif u.op.name == "ASSIGN" and self.find_own(find_target(u)) is buffer:
                assigns.append(u)
            elif u.op.name == "ASSIGN" and self.find_own(find_target(u, _BELOW_TARGET | {*STAGE_OPS})) is buffer:
                raise CannotPack("it is written through a buffer that a later pass takes away")
        return states, assigns

    def explain(self, run: PassRun, buffer: UOp, found: Difference, nodes: KnownNodes) -> WrongRewrite | None:
        """Returns the first rewrite of a pass that replaces a write to a buffer by something else, or something else by
        a write. `found` is how its contents differ; `nodes` has the nodes of the Capture."""
        for old, new in run.rewrites:
            kind = self._find_kind(old, new, buffer)
            if kind is not None:
                rule = find_rule(run, old, new)
                node = nodes.find(old)
                return WrongRewrite(kind, describe_uop(old), describe_uop(new), rule, found, (), node, None, 1, 0)
        return None

    def _find_kind(self, old: UOp, new: UOp, buffer: UOp) -> RewriteKind | None:
        """Returns what a rewrite does wrong with a buffer, None if nothing."""
        if old.op.name == "ASSIGN" and new.op.name != "ASSIGN" and self.find_own(find_target(old)) is buffer:
            return "write"
        made = find_base(new)
        is_value = old.op.name in STAGE_OPS and old.src[0].op.name not in {"ASSIGN", "AFTER"}
        if is_value and made.op.name == "AFTER" and self.find_own(find_buffer(made)) is buffer:
            return "overwrites"
        return None


def find_target(assign: UOp, ops: Container[str] = _BELOW_TARGET) -> UOp:
    """Returns the target of an ASSIGN under all of `ops`."""
    u = assign.src[0]
    while u.op.name in ops:
        u = u.src[0]
    return u
