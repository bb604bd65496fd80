"""Where tinygrad is listened to: each hook is put on right after the module that defines its name ran, before others
import it from there. A missing name switches off its part, and `recorder.missing` says so when tinygrad is imported.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from importlib.abc import Loader
from itertools import islice
from types import CodeType, ModuleType
from typing import Any

from vmapdbg.child.listen.instrument import RETURNED, instrument
from vmapdbg.child.listen.matchers import WatchedMatcher
from vmapdbg.child.listen.origins import UserLines
from vmapdbg.child.listen.recorder import ObservingRecorder
from vmapdbg.install.import_hook import tinygrad_finder
from vmapdbg.install.overlay import OVERLAY_PACKAGE, is_installed

# the modules whose functions decide: theirs and ours
_DECIDING = ("tinygrad.schedule.indexing", "tinygrad.schedule.rangeify")
_OVERLAY_GRAPH, _OVERLAY_SCOPES = f"{OVERLAY_PACKAGE}._func.graph", f"{OVERLAY_PACKAGE}.schedule._scopes"
_OVERLAY_DECIDING = (f"{OVERLAY_PACKAGE}.schedule.indexing",)
# what tinygrad does on its own: UOps that it makes then are followed, or are no user's. The first of a schedule begins
# a new set of followed lines.
_FIRST = ("transform_to_call", "complete_create_schedule_with_vars")
# when a schedule is run, kernels are lowered: what these rewrites do is no matter of the schedule any more
_LOWERING = ("run_schedule", "run_linear", "get_program", "to_program", "do_to_program")
_OWN_WORK = (*_FIRST, "create_linear_with_vars", *_LOWERING)
# switches that only print or check
_NO_DECISION = frozenset({"DEBUG", "DEBUG_RANGEIFY", "VIZ", "SPEC", "PROFILE", "TRACEMETA", "SCACHE", "CAPTURING"})


def start(
    tensor_ready: Callable[[ModuleType], object] = lambda module: None, recorder: ObservingRecorder | None = None
) -> ObservingRecorder:
    """Observes every schedule of this process from here on. tinygrad must not be imported yet. `tensor_ready` is called
    with its module `tensor`, right after that ran. Returns the recorder, a new one if none is given.

    Raises RuntimeError if tinygrad is imported already.
    """
    if "tinygrad" in sys.modules:
        raise RuntimeError("tinygrad is imported already: what it decides cannot be observed any more")
    if recorder is None:
        recorder = ObservingRecorder()
    tinygrad_finder().listener = _Hooks(recorder, tensor_ready)
    return recorder


# no name that is watched has ever been there: devices, what is built on Tensor
_ELSEWHERE = ("tinygrad.runtime", "tinygrad.renderer", "tinygrad.nn", "tinygrad.apps", "tinygrad.viz", "tinygrad.llm")


class _Hooks:
    """Listens to imports and puts the hooks on. `_quiet` counts how deep tinygrad is in its own work, `_lowering` how
    deep in lowering."""

    def __init__(self, recorder: ObservingRecorder, tensor_ready: Callable[[ModuleType], object]) -> None:
        self.recorder, self.tensor_ready = recorder, tensor_ready
        self._quiet = self._lowering = 0
        self._set_making: Callable[[bool], None] = lambda noting: None
        self._put: set[str] = set()

    # *** imports

    def wants(self, name: str) -> bool:
        if name in (*_OVERLAY_DECIDING, _OVERLAY_GRAPH, _OVERLAY_SCOPES):
            return True
        return name.startswith("tinygrad.") and not name.startswith(_ELSEWHERE)

    def compile(self, module: ModuleType, loader: Loader) -> CodeType | None:
        """Has the functions of a deciding module keep what they see."""
        file = module.__file__
        if module.__name__ not in (*_DECIDING, *_OVERLAY_DECIDING) or file is None or not hasattr(loader, "get_data"):
            return None
        # a rule is frozen with the globals that it names, so ours must be there before the module runs
        setattr(module, RETURNED, self.recorder.returned)
        source: Any = loader
        # compiled each time: a .pyc of the changed module would be loaded by the next process that imports tinygrad
        return compile(instrument(source.get_data(file), file), file, "exec", dont_inherit=True)

    def ready(self, module: ModuleType) -> None:
        """Puts on every hook whose name this module defines."""
        if module.__name__.startswith("tinygrad."):
            self._put_on_tinygrad(module)
        else:
            self._put_on_overlay(module)

    def _put_on_tinygrad(self, module: ModuleType) -> None:
        own = vars(module)
        hooks: dict[str, Callable[[ModuleType], None]] = {
            "UOpMetaClass": self._watch_making,
            "RewriteContext": self._watch_rewrites,
            "IndexingContext": self._watch_context,
            "run_rangeify": self._watch_pass,
            "create_schedule": self._watch_created,
            "schedule_cache": self._watch_cache,
            "compute_gradient": self._watch_gradient,
        }
        # the module that defines a name is done before those that import it
        for name in own.keys() & hooks.keys() - self._put:
            hooks[name](module)
            self._put.add(name)
        for name in own.keys() & set(_OWN_WORK) - self._put:
            own[name] = self._as_own_work(own[name], is_first=name in _FIRST, is_lowering=name in _LOWERING)
            self._put.add(name)
        if module.__name__ == "tinygrad.tensor":
            self._look_for_missing()
            if self.recorder.lines is not None:
                self.recorder.lines.begin()
            self.tensor_ready(module)

    def _put_on_overlay(self, module: ModuleType) -> None:
        """The overlay makes a few graphs without a rewrite: their nodes have the lines of those that they replace."""
        lines, own = self.recorder.lines, vars(module)
        if lines is None:
            return
        if module.__name__ == _OVERLAY_GRAPH:
            replace_nodes = own["replace_nodes"]

            @functools.wraps(replace_nodes)
            def replacing(*args: Any) -> Any:
                replaced = replace_nodes(*args)
                lines.take_over(replaced)
                return replaced

            own["replace_nodes"] = replacing
        if module.__name__ == _OVERLAY_SCOPES:
            prepare = own["prepare_scopes"]

            @functools.wraps(prepare)
            def preparing(tsink: Any, toposort: Any, *args: Any) -> Any:
                prepared = prepare(tsink, toposort, *args)
                lines.follow_tags(toposort, prepared.toposort())
                return prepared

            own["prepare_scopes"] = preparing

    def _look_for_missing(self) -> None:
        lost = {
            "UOpMetaClass": "user's lines",
            "RewriteContext": "what a kernel stores, and which buffers were removed",
            "IndexingContext": "reasons of realized nodes",
            "run_rangeify": "the schedules",
            "create_schedule": "the kernels of a schedule",
            "schedule_cache": "what came out of the schedule cache",
        }
        for name, part in lost.items():
            if name not in self._put:
                self.recorder.leave_out(part, f"this tinygrad has no {name}")

    # *** what is watched

    def _watch_making(self, module: ModuleType) -> None:
        lines = UserLines(os.path.dirname(os.path.dirname(os.path.abspath(module.__file__ or ""))))
        self.recorder.lines = lines
        meta: Any = vars(module)["UOpMetaClass"]
        make = meta.__call__
        noting = lines.noting(make)

        def set_making(notes: bool) -> None:
            meta.__call__ = noting if notes else make

        self._set_making = set_making
        set_making(True)

    def _watch_gradient(self, module: ModuleType) -> None:
        lines = self.recorder.lines
        if lines is None:
            return
        own = vars(module)
        own["pm_gradient"] = WatchedMatcher(own["pm_gradient"], lines.holding_gradient)
        compute = own["compute_gradient"]

        @functools.wraps(compute)
        def watched(*args: Any, **kwargs: Any) -> Any:
            # what adds gradients up is made by no line
            with lines.holding(None):
                return compute(*args, **kwargs)

        own["compute_gradient"] = watched

    def _watch_rewrites(self, module: ModuleType) -> None:
        kind: Any = vars(module)["RewriteContext"]
        for name in ("unified_rewrite", "walk_rewrite"):
            if hasattr(kind, name):
                setattr(kind, name, self._watched_rewrite(getattr(kind, name)))

    def _watched_rewrite(self, rewrite: Callable[..., Any]) -> Callable[..., Any]:
        recorder = self.recorder

        @functools.wraps(rewrite)
        def watched(context: Any, root: Any) -> Any:
            before = len(context.replace)
            result = rewrite(context, root)
            # what the user's own code simplifies gets its line where it is made
            if self._quiet and not self._lowering and not recorder.is_paused:
                # 0.12 goes through a graph node by node, in one context for all
                added = islice(reversed(context.replace.items()), len(context.replace) - before)
                recorder.rewritten(dict(reversed(list(added))))
            return result

        return watched

    def _watch_context(self, module: ModuleType) -> None:
        kind: Any = vars(module)["IndexingContext"]
        make = kind.__init__
        recorder = self.recorder

        @functools.wraps(make)
        def made(context: Any, *args: Any, **kwargs: Any) -> None:
            make(context, *args, **kwargs)
            recorder.context_made(context)

        kind.__init__ = made

    def _watch_pass(self, module: ModuleType) -> None:
        run = vars(module)["run_rangeify"]
        # ours reports its pass itself, when it has put its scopes in order
        reports_itself = is_installed()

        @functools.wraps(run)
        def watched(tsink: Any, *args: Any, **kwargs: Any) -> Any:
            if not reports_itself:
                self.recorder.stock_pass_starts(tsink)
            result = run(tsink, *args, **kwargs)
            self.recorder.pass_ends()
            return result

        vars(module)["run_rangeify"] = self._as_own_work(watched)

    def _watch_created(self, module: ModuleType) -> None:
        create = vars(module)["create_schedule"]
        self.recorder.read_settings = functools.partial(_read_settings, _find_switches())

        @functools.wraps(create)
        def watched(graph: Any, *args: Any, **kwargs: Any) -> Any:
            created = create(graph, *args, **kwargs)
            self.recorder.schedule_created(graph, created)
            return created

        vars(module)["create_schedule"] = watched

    def _watch_cache(self, module: ModuleType) -> None:
        recorder = self.recorder

        class WatchedCache(dict[Any, Any]):
            def get(self, key: Any, default: Any = None) -> Any:
                found = super().get(key, default)
                recorder.schedule_asked(key, found is not None)
                return found

        vars(module)["schedule_cache"] = WatchedCache(vars(module)["schedule_cache"])

    def _as_own_work(
        self, work: Callable[..., Any], is_first: bool = False, is_lowering: bool = False
    ) -> Callable[..., Any]:
        def follow_anew() -> None:
            if self.recorder.lines is not None:
                self.recorder.lines.followed = {}

        @functools.wraps(work)
        def quietly(*args: Any, **kwargs: Any) -> Any:
            if is_first:
                follow_anew()
            if not self._quiet:
                self._set_making(False)
            self._quiet += 1
            self._lowering += is_lowering
            try:
                return work(*args, **kwargs)
            finally:
                self._quiet -= 1
                self._lowering -= is_lowering
                if not self._quiet:
                    self._set_making(True)
                    if is_lowering:
                        # a UOp that is kept keeps its memory, too
                        follow_anew()

        return quietly


def _find_switches() -> dict[str, Any]:
    """The switches that the scheduler's modules look at; the key of the schedule cache has none of them."""
    found: dict[str, Any] = {}
    for name in sys.modules.keys() & set(_DECIDING):
        for switch, value in vars(sys.modules[name]).items():
            if type(value).__name__.lstrip("_") == "ContextVar" and switch not in _NO_DECISION:
                found[switch] = value
    return found


def _read_settings(switches: dict[str, Any]) -> dict[str, Any]:
    return {name: switch.value for name, switch in switches.items()}
