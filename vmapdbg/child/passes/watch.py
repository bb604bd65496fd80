"""Keeps the scheduler's passes for each `Tensor.realize`: graph before and after, and rewrites. Runs in the child."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from vmapdbg.child.evidence.collector import Collector
from vmapdbg.child.evidence.realize_call import RealizeCall
from vmapdbg.child.failures.diagnose import find_rewrite_at
from vmapdbg.child.failures.endless import find_frame
from vmapdbg.child.listen.guard import setting, watching
from vmapdbg.child.listen.launches import watch_schedules
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.listen.records import Launch
from vmapdbg.child.listen.releases import CREATORS, is_whole, list_launches, schedule_module

UOp = Any

SCHEDULERS = frozenset({"transform_to_call", "get_kernel_graph", "get_rangeify_map"})
"""The functions of tinygrad's that take a graph through passes."""
_REWRITES = frozenset({"unified_rewrite", "walk_rewrite"})
_DECIDES = "decide"  # the function of the overlay that decides in a pass what is stored (`tinygrad/schedule/_parts.py`)
_SHARDED = frozenset({"MULTI", "UNSHARD", "MSTACK", "MSELECT", "ALLREDUCE"})


@dataclass
class PassRun:
    """One rewrite of a whole graph by the scheduler: its name, the `file:line` of its call, and the graph before and
    after it. `rewrites` has each (before, after) of its rules in order; `context` is tinygrad's RewriteContext.
    `outputs` has the UOp of each output after it, by the output's number. With `is_memory` it is not for the output,
    but for all that the buffer holds that it is in."""

    name: str
    place: str | None
    before: UOp
    context: Any
    after: UOp = None
    rewrites: list[tuple[UOp, UOp]] = field(default_factory=list)
    outputs: dict[int, UOp] = field(default_factory=dict)
    is_memory: bool = False


@dataclass
class Chain:
    """The passes of one call of a scheduler function, in order; another attempt or part of the graph has another."""

    function: str
    frame: FrameType | None
    runs: list[PassRun] = field(default_factory=list)


@dataclass
class FollowedCall:
    """A scheduled call of `Tensor.realize`: `call` has its evidence, `scheduled` the scheduler's graph, `chains` its
    passes (none from tinygrad's cache), `created` the launches of each new schedule. `origin` maps rewritten UOps to
    nodes, if observed."""

    call: RealizeCall
    scheduled: UOp
    chains: list[Chain] = field(default_factory=list)
    created: list[list[Launch]] = field(default_factory=list)
    origin: Mapping[UOp, UOp] = field(default_factory=dict)

    @property
    def is_sharded(self) -> bool:
        """Whether its graph has values on several devices at once."""
        return any(u.op.name in _SHARDED for u in self.scheduled.toposort())

    @property
    def schedule(self) -> int:
        return self.call.evidence.schedule


class FollowingCollector(Collector):
    """Collects evidence, and the passes of each schedule."""

    def __init__(self, folder: Path, recorder: Recorder, with_gradients: bool = False):
        super().__init__(folder, recorder, with_gradients)
        self.followed: list[FollowedCall] = []
        self.chains: list[Chain] = []  # of the current call
        self.created: list[list[Launch]] = []
        self._lowering: list[PassRun] | None = None  # the passes of the kernel that is lowered again
        self._runs: dict[int, PassRun] = {}  # id of a RewriteContext -> the pass that it belongs to

    def watch(self, tensor_module: ModuleType) -> None:
        from tinygrad.uop import ops

        super().watch(tensor_module)
        context: Any = vars(ops)["RewriteContext"]
        with watching("passes of the scheduler") as changes:
            changes.wrap(context, "unified_rewrite", self._on_rewrite, "self", "root")
            if hasattr(context, "walk_rewrite"):
                changes.wrap(context, "walk_rewrite", self._on_rewrite, "self", "root")
            changes.wrap(context, "pm_rewrite", self._on_rule, "self", "x")
            changes.wrap(context, "cached_bpm_rewrite", self._on_rule, "self", "x")
            module = schedule_module()
            creator = next(name for name in CREATORS if hasattr(module, name))
            changes.wrap(module, creator, self._on_created, "sched_sink")
            # if launches cannot be watched, schedules still can
            watch_schedules(changes, tensor_module, self.note_schedule)

    def on_realize(self, realize: Callable[..., Any], tensor: Any, *others: Any, **options: Any) -> Any:
        if self.call is not None:
            return realize(tensor, *others, **options)
        before = len(self.followed)
        self.chains, self.created = [], []
        try:
            return super().on_realize(realize, tensor, *others, **options)
        finally:
            for one in self.followed[before:]:
                one.chains = [chain for chain in self.chains if chain.runs]
                one.created, one.origin = self.created, self.recorder.origin
            for chain in self.chains:
                chain.frame = None

    def note_schedule(self, schedule: Callable[..., Any], asked: UOp) -> Any:
        if self.call is not None:
            self.followed.append(FollowedCall(self.call, asked))
        return schedule(asked)

    def _on_created(self, create: Callable[..., Any], sched_sink: UOp) -> Any:
        made = create(sched_sink)
        if self.call is not None:
            self.created.append(list(list_launches(sched_sink, made)))
        return made

    def watch_lowering(self, lower: Callable[[], object]) -> list[PassRun]:
        """Lowers a kernel, and returns its passes."""
        runs: list[PassRun] = []
        with setting(self, "_lowering", runs):
            lower()
        return runs

    def _on_rewrite(self, rewrite: Callable[..., UOp], context: Any, root: UOp) -> UOp:
        if self._lowering is not None and not self._runs:
            return self._keep(self._lowering, rewrite, context, root)
        if self.call is None or not is_whole(root):
            return rewrite(context, root)
        # it may be a rewrite in a rewrite, or estimate costs for the overlay
        frame = find_frame(sys._getframe(1), *SCHEDULERS, *_REWRITES, _DECIDES)
        if frame is None or frame.f_code.co_name not in SCHEDULERS:
            return rewrite(context, root)
        known = (chain for chain in self.chains if chain.frame is frame)
        chain = next(known, None) or Chain(frame.f_code.co_name, frame)
        # a known chain moves to the end: another call may have run in it
        self.chains = [*(other for other in self.chains if other is not chain), chain]
        return self._keep(chain.runs, rewrite, context, root)

    def _keep(self, runs: list[PassRun], rewrite: Callable[..., UOp], context: Any, root: UOp) -> UOp:
        """Runs a pass and adds it to `runs`; a pass that raises is left out."""
        name, place = find_rewrite_at(sys._getframe(2))
        run = self._runs[id(context)] = PassRun(name or "a rewrite without a name", place, root, context)
        try:
            run.after = rewrite(context, root)
        finally:
            del self._runs[id(context)]
        runs.append(run)
        return run.after

    def _on_rule(self, rewrite: Callable[..., UOp | None], context: Any, x: UOp) -> UOp | None:
        made = rewrite(context, x)
        run = self._runs.get(id(context))
        if run is not None and made is not None:
            run.rewrites.append((x, made))
        return made
