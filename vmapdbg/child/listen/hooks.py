"""Hooks on tinygrad, put on right after the module that defines a name ran, before others import the name from there. A
missing name leaves its part out, with a line in `recorder.missing`."""

import functools
import os
import sys
from collections.abc import Callable
from importlib.abc import Loader
from itertools import islice
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

from vmapdbg.child.listen.decisions import RETURNED, instrument
from vmapdbg.child.listen.guard import Watched, leaving_out, put_after, put_around, setting
from vmapdbg.child.listen.launches import SCHEDULE_MAKERS, jit_class
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.listen.releases import CREATORS
from vmapdbg.child.listen.user_lines import set_internal_folders
from vmapdbg.install.overlay import OVERLAY_PACKAGE, get_state, is_installed, overlay_dir, tinygrad_finder
from vmapdbg.model.account import Left

_DECIDING = "tinygrad.schedule."  # the modules whose functions decide
_OVERLAY_DECIDING = f"{OVERLAY_PACKAGE}.schedule.indexing"
_OVERLAY_GRAPH, _OVERLAY_SCOPES = f"{OVERLAY_PACKAGE}._func.graph", f"{OVERLAY_PACKAGE}.schedule._scopes"
# UOps made in these functions are followed, or are no user's; the first of a schedule begins new followed lines
_FIRST = ("transform_to_call", "complete_create_schedule_with_vars")
# lowering a kernel when a schedule runs: these rewrites no longer concern the schedule
_LOWERING = ("run_schedule", "run_linear", "get_program", "to_program", "do_to_program")
_INTERNAL = (*_FIRST, "create_linear_with_vars", *_LOWERING)
# switches that only print or check
_NO_DECISION = frozenset({"DEBUG", "DEBUG_RANGEIFY", "VIZ", "SPEC", "PROFILE", "TRACEMETA", "SCACHE", "CAPTURING"})
# devices, and what is built on Tensor: no watched name has ever been there
_ELSEWHERE = ("tinygrad.runtime", "tinygrad.renderer", "tinygrad.nn", "tinygrad.apps", "tinygrad.viz", "tinygrad.llm")


def start(
    recorder: Recorder, tensor_ready: Callable[[ModuleType], object] = lambda module: None, records: bool = True
) -> None:
    """Has a recorder record each schedule from here on, with the overlay or without, if `records`. `tensor_ready` gets
    `tinygrad.tensor` right after it ran. Raises RuntimeError if tinygrad is imported already."""
    if "tinygrad" in sys.modules:
        raise RuntimeError("tinygrad is imported already: what it decides cannot be observed any more")
    # `Tensor.realize` is wrapped with code of the overlay's folder, with the overlay or without
    set_internal_folders(str(overlay_dir()))
    waiting: dict[str, Any] = {"compile": lambda *_: None, "ready": tensor_ready, "restore_modules": lambda: None}
    without_records = SimpleNamespace(wants="tinygrad.tensor".__eq__, **waiting)
    tinygrad_finder().listener = _Hooks(recorder, tensor_ready) if records else without_records
    if is_installed():
        get_state().observer = recorder


class _Hooks:
    """Puts hooks on at imports. `_quiet` and `_lowering` count running functions of `_INTERNAL` and `_LOWERING`.
    `_is_replacing`: Tensors get the BUFFERs of a schedule in the place of their values."""

    def __init__(self, recorder: Recorder, tensor_ready: Callable[[ModuleType], object]) -> None:
        self.recorder, self.tensor_ready = recorder, tensor_ready
        self._quiet = self._lowering = 0
        self._is_replacing = False
        # the rewrites that run, outermost first, and how many UOps their contexts had replaced when they began
        self._contexts: list[tuple[Any, int]] = []
        self._set_making: Callable[[bool], None] = lambda noting: None
        self._put: set[str] = set()
        self._modules: dict[str, ModuleType] = {}  # of tinygrad and the overlay, once looked at
        self._is_stopped = False
        # name -> its hook, and the part that is left out without the name; 0.14 defines the last name later
        self._hooks: dict[str, tuple[Callable[[Any], None], str]] = {
            "UOpMetaClass": (self._watch_making, "user's lines"),
            "RewriteContext": (self._watch_rewrites, "what a kernel stores, and which buffers were removed"),
            "IndexingContext": (self._watch_context, "reasons of realized nodes"),
            "run_rangeify": (self._watch_pass, "the schedules"),
            "schedule_cache": (self._watch_cache, ""),
            "compute_gradient": (self._watch_gradient, ""),
            "_apply_map_to_tensors": (self._watch_replacing, ""),
            "GlobalCounters": (self._watch_counters, ""),
            "CapturedJit": (self._watch_jit, ""),
            "Tensor": (lambda module: put_around(module.Tensor, "realize", recorder.tally.on_realize, "what ran"), ""),
            **{name: (functools.partial(self._watch_maker, name), "") for name in SCHEDULE_MAKERS},
            **{name: (functools.partial(self._watch_created, name), "") for name in CREATORS},
        }

    # *** imports

    def wants(self, name: str) -> bool:
        """Whether a module of this name is looked at."""
        if name in self._modules and not self._is_stopped:
            self._begin_again(name)
        if self._is_stopped:
            return False
        is_stock = name.startswith("tinygrad.") and not name.startswith(_ELSEWHERE)
        return is_stock or name in (_OVERLAY_DECIDING, _OVERLAY_GRAPH, _OVERLAY_SCOPES)

    def compile(self, module: ModuleType, loader: Loader) -> CodeType | None:
        """Returns the code of a deciding module whose functions keep what they see; None for any other module."""
        file = module.__file__
        decides = module.__name__ == _OVERLAY_DECIDING or module.__name__.startswith(_DECIDING)
        if not decides or file is None or not hasattr(loader, "get_data"):
            return None
        # a rule is frozen with the globals that it names, so ours must be there before the module runs
        setattr(module, RETURNED, self.recorder.returned)
        source: Any = loader
        with leaving_out("reasons of the scheduler"):
            tree = instrument(source.get_data(file), file)
            return tree and compile(tree, file, "exec", dont_inherit=True)
        return None

    def ready(self, module: ModuleType) -> None:
        """Puts on every hook whose name this module defines. It ran and is patched; no importer sees it yet."""
        self._modules |= {"tinygrad": sys.modules["tinygrad"], module.__name__: module}
        lines = self.recorder.lines
        if module.__name__ == _OVERLAY_GRAPH:
            # the overlay makes a few graphs without a rewrite: their nodes have the lines of the nodes they replace
            put_after(module, "replace_nodes", lambda replaced, *_: lines.take_over(replaced))
        if module.__name__ == _OVERLAY_SCOPES:
            report = lines.follow_tags
            put_after(module, "prepare_scopes", lambda made, _, toposort, *__: report(toposort, made.toposort()))
        if not module.__name__.startswith("tinygrad."):
            return
        # the module that defines a name runs to its end before others import the name
        new = vars(module).keys() - self._put
        for name in new & self._hooks.keys():
            hook, part = self._hooks[name]
            with self.recorder.leaving_out(part or name):
                hook(module)
        for name in new & set(_INTERNAL):
            around = functools.partial(self._on_internal, is_first=name in _FIRST, is_lowering=name in _LOWERING)
            put_around(module, name, around, "user's lines")
        self._put |= new & {*self._hooks, *_INTERNAL}
        if module.__name__ == "tinygrad.tensor":
            absent = {name: part for name, (_, part) in self._hooks.items() if part and name not in self._put}
            self.recorder.missing += (f"{part}: this tinygrad has no {name}" for name, part in absent.items())
            if self._put.isdisjoint(CREATORS):
                self.recorder.missing.append(f"the kernels of a schedule: this tinygrad has no {CREATORS[0]}")
            with self.recorder.leaving_out("user's lines"):
                self.recorder.lines.begin()
            self.tensor_ready(module)

    def _begin_again(self, name: str) -> None:
        """The program has removed this module, and imports it again. If it has scheduled something, the hooks stop:
        the records are of one tinygrad."""
        if not self.recorder.schedules:
            self._modules.clear()
            self._put.clear()
            return
        self._is_stopped = True
        why = f"a second copy of tinygrad is not observed: the program imports {name} again"
        self.recorder.missing.append(why)
        self.recorder.tally.left.append(Left("processes", 1, why))
        self._modules |= {name: module for name, module in sys.modules.items() if name.startswith(OVERLAY_PACKAGE)}
        if is_installed():
            get_state().observer = get_state().nobody

    def restore_modules(self) -> None:
        """Puts the tinygrad that was watched back into `sys.modules`, if the program has removed or replaced it."""
        if all(sys.modules.get(name) is module for name, module in self._modules.items()):
            return
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tinygrad", OVERLAY_PACKAGE)]:
            del sys.modules[name]
        sys.modules.update(self._modules)

    # *** what is watched

    def _watch_counters(self, module: Any) -> None:
        self.recorder.tally.counters = module.GlobalCounters
        put_around(module.GlobalCounters, "reset", self.recorder.tally.on_reset, "what ran")

    def _watch_jit(self, module: Any) -> None:
        put_around(jit_class(module), "__call__", self.recorder.tally.on_call, "what ran")
        put_around(module.CapturedJit, "__call__", self.recorder.tally.on_replay, "what ran")

    def _watch_maker(self, name: str, module: Any) -> None:
        def on_schedule(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            try:
                return self.recorder.tally.on_schedule(make, *args, **kwargs)
            except BaseException:
                self.recorder.schedule_failed()
                raise

        put_around(module, name, on_schedule, "what ran")

    def _watch_making(self, module: ModuleType) -> None:
        set_internal_folders(os.path.dirname(os.path.dirname(os.path.abspath(module.__file__ or ""))))
        meta: Any = vars(module)["UOpMetaClass"]
        make = meta.__call__
        noting = self.recorder.lines.noting(make)

        def set_making(notes: bool) -> None:
            meta.__call__ = noting if notes else make

        self._set_making = set_making
        set_making(True)

    def _watch_gradient(self, module: Any) -> None:
        lines = self.recorder.lines
        module.pm_gradient = Watched(module.pm_gradient, lines.holding_gradient, "lines of gradients")

        def on_gradient(compute: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            # no line makes the sums of gradients
            with lines.holding(None):
                return compute(*args, **kwargs)

        put_around(module, "compute_gradient", on_gradient, "lines of gradients")

    def _watch_rewrites(self, module: Any) -> None:
        for name in ("unified_rewrite", "walk_rewrite"):
            if hasattr(module.RewriteContext, name):
                put_around(module.RewriteContext, name, self._on_rewrite, "what the rewrites made")

    def _on_rewrite(self, rewrite: Callable[..., Any], context: Any, root: Any) -> Any:
        before = len(context.replace)
        self._contexts.append((context, before))
        try:
            result = rewrite(context, root)
        finally:
            self._contexts.pop()
        # 0.12 goes through a graph node by node, in one context for all
        added = islice(reversed(context.replace.items()), len(context.replace) - before)
        # what the user's code simplifies gets its line when it is created
        if self._is_replacing:
            self.recorder.lines.take_over({old: new for old, new in added if old.op is new.op})
        elif self._quiet and not self._lowering and not self.recorder.is_paused:
            around = [len(outer.replace) - start for outer, start in self._contexts]
            self.recorder.rewritten(dict(reversed(list(added))), root, getattr(context, "bpm_cache", {}), around)
        return result

    def _watch_replacing(self, module: Any) -> None:
        def on_replacing(replace: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            with setting(self, "_is_replacing", True):
                return replace(*args, **kwargs)

        put_around(module, "_apply_map_to_tensors", on_replacing, "user's lines")

    def _watch_context(self, module: Any) -> None:
        made, part = self.recorder.context_made, "reasons of realized nodes"
        put_after(module.IndexingContext, "__init__", lambda _, context, *args: made(context), part)

    def _watch_pass(self, module: ModuleType) -> None:
        reports_itself = is_installed()  # ours does, when its scopes are in order

        def on_pass(run: Callable[..., Any], tsink: Any, *args: Any, **kwargs: Any) -> Any:
            if not reports_itself:
                self.recorder.pass_starts(tsink)
            result = run(tsink, *args, **kwargs)
            self.recorder.pass_ends()
            return result

        put_around(module, "run_rangeify", on_pass, "ranges")
        put_around(module, "run_rangeify", self._on_internal, "user's lines")

    def _watch_created(self, creator: str, module: ModuleType) -> None:
        # switches of the scheduler's modules; the key of the schedule cache has none of them
        for scheduler in [found for name, found in sys.modules.items() if name.startswith(_DECIDING)]:
            for switch, value in vars(scheduler).items():
                if type(value).__name__.lstrip("_") == "ContextVar" and switch not in _NO_DECISION:
                    self.recorder.switches[switch] = value
        report = self.recorder.schedule_created
        put_after(module, creator, lambda created, graph, *_: report(graph, created), "the kernels of a schedule")

    def _watch_cache(self, module: Any) -> None:
        recorder = self.recorder

        class WatchedCache(dict[Any, Any]):
            def get(self, key: Any, default: Any = None) -> Any:
                found = super().get(key, default)
                with leaving_out("the schedules"):
                    recorder.schedule_asked(key, found is not None)
                return found

        module.schedule_cache = WatchedCache(module.schedule_cache)

    def _on_internal(
        self, work: Callable[..., Any], *args: Any, is_first: bool = False, is_lowering: bool = False, **kwargs: Any
    ) -> Any:
        """Runs a function of `_INTERNAL`: the UOps that it makes belong to no line of the user."""
        lines = self.recorder.lines
        if is_first:
            lines.followed = {}
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
                    lines.followed = {}  # a UOp that is kept keeps its memory, too
