"""Watches the passes of tinygrad's scheduler: which graph each of them takes and makes, and by which rewrites."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from vmapdbg.child.failures.rewrites import shorten_place
from vmapdbg.child.follow.records import Chain, Created, PassRun, Watched
from vmapdbg.child.listen.adapter import CREATED
from vmapdbg.child.memory import name_dtype
from vmapdbg.install.overlay import load_patching

UOp = Any

SCHEDULERS = frozenset({"transform_to_call", "get_kernel_graph", "get_rangeify_map"})
"""The functions of tinygrad's that take a graph through passes."""
INDICES = frozenset({"index", "weakint"})
"""What numbers of places are, which are no values of the program."""
_REWRITES = frozenset({"unified_rewrite", "walk_rewrite"})
_DECIDES = "tinygrad_overlay.schedule._parts"
"""The overlay's module that decides what is stored, within a pass."""
_KERNELS = frozenset({"STORE", "END"})
"""What a kernel is made of."""
_ENTRY = "graph_rewrite"
_NAMELESS = "a rewrite without a name"


class PassWatcher:
    """Keeps in `seen` what happens while it `is_on`."""

    def __init__(self) -> None:
        self.is_on = False
        self.seen = Watched()
        # id of a RewriteContext -> the pass that it belongs to
        self._runs: dict[int, PassRun] = {}
        # the pass that runs now
        self._running: PassRun | None = None

    def watch(self) -> None:
        """Wraps what every rewrite of a graph goes through. Raises UnknownShape."""
        from tinygrad.uop import ops

        context: Any = vars(ops)["RewriteContext"]
        with load_patching().Changes("passes of the scheduler") as changes:
            changes.wrap(context, "unified_rewrite", self._on_rewrite, "self", "root")
            if hasattr(context, "walk_rewrite"):
                changes.wrap(context, "walk_rewrite", self._on_rewrite, "self", "root")
            changes.wrap(context, "pm_rewrite", self._on_rule, "self", "x")
            changes.wrap(context, "cached_bpm_rewrite", self._on_rule, "self", "x")
        creator = CREATED.find()
        # without it the order of the kernels is not known
        if creator is not None:
            module, name = creator
            with load_patching().Changes("passes of the scheduler") as changes:
                changes.wrap(importlib.import_module(module), name, self._on_created, "sched_sink")

    def start(self) -> None:
        self.seen, self.is_on = Watched(), True

    def stop(self) -> Watched:
        """Returns what was seen since `start`."""
        self.is_on = False
        self._runs = {}
        self.seen.chains = [chain for chain in self.seen.chains if chain.runs]
        for chain in self.seen.chains:
            chain.frame = None
        return self.seen

    def _on_created(self, create: Callable[..., Any], sched_sink: UOp) -> Any:
        made = create(sched_sink)
        if self.is_on:
            self.seen.created.append(Created(sched_sink, made))
        return made

    def _on_rewrite(self, rewrite: Callable[..., UOp], context: Any, root: UOp) -> UOp:
        if self._running is not None and root.op.name in _KERNELS:
            return self._keep_inner(self._running, rewrite, context, root)
        if not self.is_on or not is_whole(root):
            return rewrite(context, root)
        frame = find_scheduler(sys._getframe(1))
        if frame is None:
            return rewrite(context, root)
        run = PassRun(*find_name(sys._getframe(1)), root, context)
        chain = self._find_chain(frame)
        self._runs[id(context)] = self._running = run
        try:
            run.after = rewrite(context, root)
        finally:
            self._running = None
            self._runs.pop(id(context), None)
        # of one that raises nothing comes
        chain.runs.append(run)
        return run.after

    def _keep_inner(self, outer: PassRun, rewrite: Callable[..., UOp], context: Any, root: UOp) -> UOp:
        """Keeps how a pass makes a kernel of a STORE."""
        run = PassRun(*find_name(sys._getframe(2)), root, context)
        self._runs[id(context)] = run
        try:
            run.after = rewrite(context, root)
        finally:
            self._runs.pop(id(context), None)
        outer.inner.append(run)
        return run.after

    def _on_rule(self, rewrite: Callable[..., UOp | None], context: Any, x: UOp) -> UOp | None:
        made = rewrite(context, x)
        run = self._runs.get(id(context))
        if run is not None and made is not None:
            run.rewrites.append((x, made))
        return made

    def _find_chain(self, frame: FrameType) -> Chain:
        """Returns the chain of a call, as the last one: another call may have begun and ended within it."""
        chains = self.seen.chains
        known = next((i for i, chain in enumerate(chains) if chain.frame is frame), None)
        chains.append(Chain(frame.f_code.co_name, frame) if known is None else chains.pop(known))
        return chains[-1]


def is_whole(root: UOp) -> bool:
    """Tells whether a UOp is the root of a graph of values: what simplifies indices has one for these."""
    if root.op.name != "SINK" or not root.src:
        return False
    return any(name_dtype(u.dtype) not in INDICES for u in root.src)


def find_scheduler(frame: FrameType | None) -> FrameType | None:
    """Returns the frame of the scheduler's function that a rewrite is a pass of; None for one within another one, and
    for one by which the overlay finds out what a kernel costs."""
    while frame is not None:
        name = frame.f_code.co_name
        if name in SCHEDULERS:
            return frame
        if name in _REWRITES or (name == "decide" and frame.f_globals.get("__name__") == _DECIDES):
            return None
        frame = frame.f_back
    return None


def find_name(frame: FrameType | None) -> tuple[str, str | None]:
    """Returns what tinygrad calls the rewrite that a frame is in, and the `file:line` that asks for it."""
    while frame is not None and frame.f_code.co_name != _ENTRY:
        frame = frame.f_back
    if frame is None:
        return _NAMELESS, None
    name = frame.f_locals.get("name") or _NAMELESS
    file = frame.f_code.co_filename
    # wrappers that count time stand around it, in the same file
    while frame is not None and frame.f_code.co_filename in {file, contextlib.__file__}:
        frame = frame.f_back
    if frame is None:
        return name, None
    return name, shorten_place(frame.f_code.co_filename, frame.f_lineno)
