"""The launches of a schedule as it runs: ExecItems (0.12), or the CALLs of a LINEAR (since March 2026)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol

from vmapdbg.child.listen.matchers import WatchedMatcher

UOp = Any
DEVICE_NUMBER = "_device_num"
"""The variable that tells the devices of a sharded tensor from each other."""


@dataclass(frozen=True)
class Step:
    """One launch of a schedule that is about to run: what it computes, and the values of its variables. `is_repeated`:
    it is one of many launches of its kernel, which have other values of a variable."""

    ast: UOp
    variables: Mapping[str, int] = field(default_factory=dict)
    is_repeated: bool = False


class Listener(Protocol):
    """Who is told of launches."""

    def begins(self, steps: Sequence[Step]) -> None:
        """A schedule of these launches is about to run."""
        ...

    def before(self, index: int, buffers: Sequence[Any]) -> None:
        """A launch of it is about to run: its number, and its buffers in the order of its arguments."""
        ...

    def after(self, index: int, buffers: Sequence[Any], uops: Sequence[UOp]) -> None:
        """The launch has run. `uops` is its linear program, empty for a copy."""
        ...

    def fails(self, index: int) -> None:
        """A launch of it raises; of ExecItems, each of which is compiled before it runs, also where that raises."""
        ...


def watch_launches(changes: Any, tensor_module: ModuleType, listener: Listener) -> None:
    """Has what `Tensor.realize` runs told to `listener`. `changes` are declared, not made. Raises UnknownShape."""
    from tinygrad.engine import realize

    if hasattr(realize, "run_linear"):
        _Calls(listener).declare(changes, tensor_module, realize)
    else:
        _ExecItems(listener).declare(changes, tensor_module, realize)


def watch_schedules(changes: Any, tensor_module: ModuleType, around: Callable[..., Any]) -> None:
    """Has `around` called with what makes a schedule for `Tensor.realize`, and the graph that it is given. `changes`
    are declared, not made. Raises UnknownShape."""
    names = ("create_linear_with_vars", "complete_create_schedule_with_vars")
    name = next((name for name in names if hasattr(tensor_module, name)), names[0])
    changes.wrap(tensor_module, name, around, "big_sink")


class _ExecItems:
    """0.12: `run_schedule` takes ExecItems off a list and runs each."""

    def __init__(self, listener: Listener):
        self.listener = listener
        # id of an ExecItem -> its index in the schedule that runs
        self.indices: dict[int, int] = {}

    def declare(self, changes: Any, tensor_module: ModuleType, realize: ModuleType) -> None:
        run_parameters = ("self", "_var_vals", "wait", "jit", "do_update_stats")
        changes.wrap(tensor_module, "run_schedule", self.on_schedule, "schedule", "var_vals", "do_update_stats")
        changes.wrap(vars(realize)["ExecItem"], "run", self.on_run, *run_parameters)

    def on_schedule(self, run: Callable[..., Any], schedule: list[Any], var_vals: Any = None, **options: Any) -> Any:
        known = dict(var_vals or {})
        self.listener.begins([self._make_step(item, known) for item in schedule])
        self.indices = {id(item): index for index, item in enumerate(schedule)}
        # each is taken off the schedule before it is compiled; held, so that its id is not that of another one
        items = list(schedule)
        try:
            return run(schedule, var_vals, **options)
        except BaseException:
            if taken := len(items) - len(schedule):
                self.listener.fails(taken - 1)
            raise
        finally:
            self.indices = {}

    def _make_step(self, item: Any, known: Mapping[str, int]) -> Step:
        # each of several devices has memory of its own
        is_repeated = bool(item.fixedvars.keys() - {DEVICE_NUMBER})
        return Step(item.ast, {**known, **item.fixedvars}, is_repeated)

    def on_run(self, run: Callable[..., Any], item: Any, *arguments: Any, **options: Any) -> Any:
        index = self.indices.get(id(item))
        if index is None:
            return run(item, *arguments, **options)
        self.listener.before(index, item.bufs)
        result = run(item, *arguments, **options)
        self.listener.after(index, item.bufs, find_linear(item.prg))
        return result


class _Calls:
    """0.13 on: `run_linear` has a matcher run each CALL of a LINEAR."""

    def __init__(self, listener: Listener):
        self.listener = listener
        # the number of the next launch of the schedule that runs, None where none does
        self.next: int | None = None
        self.resolve: Callable[..., list[UOp]] = lambda call, inputs: []

    def declare(self, changes: Any, tensor_module: ModuleType, realize: ModuleType) -> None:
        from tinygrad.uop.ops import PatternMatcher

        self.resolve = changes.expect(realize, "resolve_params", "call", "inputs")
        run_parameters = ("linear", "var_vals", "input_uops", "update_stats", "jit", "wait")
        changes.wrap(tensor_module, "run_linear", self.on_linear, *run_parameters)
        # who keeps evidence and the copy of the process both listen
        is_watched = isinstance(realize.pm_exec, WatchedMatcher)
        kind = WatchedMatcher if is_watched else PatternMatcher
        changes.replace_value(realize, "pm_exec", kind, lambda stock: WatchedMatcher(stock, self.on_call))

    def on_linear(self, run: Callable[..., Any], linear: UOp, var_vals: Any = None, *rest: Any, **options: Any) -> Any:
        known = dict(var_vals or {})
        self.listener.begins([Step(call.src[0], known) for call in linear.src])
        self.next = 0
        try:
            return run(linear, var_vals, *rest, **options)
        finally:
            self.next = None

    def on_call(self, run: Callable[..., Any], call: UOp, context: Any) -> Any:
        if self.next is None:
            return run(call, context)
        # to read a buffer is a copy, which 0.14 runs in the same way
        index, self.next = self.next, None
        try:
            return self._tell(run, index, call, context)
        except BaseException:
            self.listener.fails(index)
            raise
        finally:
            self.next = index + 1

    def _tell(self, run: Callable[..., Any], index: int, call: UOp, context: Any) -> Any:
        # others make their own buffers
        if call.src[0].op.name not in {"PROGRAM", "COPY"}:
            return run(call, context)
        buffers = [u.buffer for u in self.resolve(call, context.input_uops)]
        self.listener.before(index, buffers)
        result = run(call, context)
        self.listener.after(index, buffers, find_linear(call.src[0]))
        return result


def find_linear(program: Any) -> Sequence[UOp]:
    """Returns the linear program of what was launched: a runner (0.12), or a PROGRAM. Empty where it has none."""
    spec = getattr(program, "p", None)
    if spec is not None:
        return spec.uops or ()
    return next((part.src for part in getattr(program, "src", ()) if part.op.name == "LINEAR"), ())


def find_inputs(scheduled: UOp, leaves: Iterable[UOp]) -> dict[UOp, UOp]:
    """Returns the BUFFER of the snippet for each leaf of the graph of the pass that stands for one: the scheduler puts
    others there, to find schedules in its cache. `scheduled` is what it was given."""
    if scheduled.op.name == "CALL":
        slots = {u: getattr(u.arg, "slot", u.arg) for u in leaves if u.op.name == "PARAM"}
        return {u: scheduled.src[1 + slot] for u, slot in slots.items() if 0 <= slot < len(scheduled.src) - 1}
    from tinygrad.engine.schedule import pm_pre_sched_cache
    from tinygrad.uop.ops import graph_rewrite

    replaced: dict[UOp, UOp] = {}
    graph_rewrite(scheduled, pm_pre_sched_cache, ctx=(replaced, {}))
    return {new: old for old, new in replaced.items()}
