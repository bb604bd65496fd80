"""Watches the launches of a schedule as it runs, and what TinyJit captures and replays.

Launches are ExecItems with Buffers (0.12), or the CALLs of a LINEAR with UOps (since March 2026).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol

UOp = Any
# the variable with another value on each device of a sharded tensor
_DEVICE_NUMBER = "_device_num"


@dataclass(frozen=True)
class PlannedLaunch:
    """One launch of a schedule that is about to run: what it computes, and the values of its variables. `is_repeated`:
    its kernel is launched many times, with other values of a variable."""

    ast: UOp
    variables: Mapping[str, int] = field(default_factory=dict)
    is_repeated: bool = False


class Watched:
    """A PatternMatcher or a program of tinygrad. For the `rewrite` of a matcher and for a run of a program, `around` is
    called with the stock function and the arguments."""

    def __init__(self, stock: Any, around: Callable[..., Any]):
        self._stock, self._around = stock, around

    def rewrite(self, *arguments: Any, **options: Any) -> Any:
        return self._around(self._stock.rewrite, *arguments, **options)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._around(self._stock, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stock, name)


class LaunchWatcher(Protocol):
    """Gets the launches of the schedules that `Tensor.realize` runs.

    A schedule of some launches begins. Launch `index` runs with its buffers, in the order of its arguments; after it,
    `uops` is its linear program, empty for a copy. It fails if it raises, or if its kernel cannot be compiled.
    """

    def begins(self, steps: Sequence[PlannedLaunch]) -> None: ...
    def before(self, index: int, buffers: Sequence[Any]) -> None: ...
    def after(self, index: int, buffers: Sequence[Any], uops: Sequence[UOp]) -> None: ...
    def fails(self, index: int) -> None: ...


# *** each of these declares changes, and does not make them; each raises UnknownShape


def watch_launches(changes: Any, tensor_module: ModuleType, watcher: LaunchWatcher) -> None:
    """Reports what `Tensor.realize` runs to `watcher`."""
    from tinygrad.engine import realize

    if hasattr(realize, "run_linear"):
        _Calls(changes, tensor_module, realize, watcher)
    else:
        _ExecItems(changes, tensor_module, realize, watcher)


def watch_schedules(changes: Any, tensor_module: ModuleType, around: Callable[..., Any]) -> None:
    """Calls `around` with the function that makes a schedule for `Tensor.realize`, and with its graph."""
    names = ("create_linear_with_vars", "complete_create_schedule_with_vars")
    name = next((name for name in names if hasattr(tensor_module, name)), names[0])
    changes.wrap(tensor_module, name, around, "big_sink")


def _jit_class() -> Any:
    """Returns the class of TinyJit's objects: in 0.14 TinyJit is a function."""
    from tinygrad.engine import jit

    return getattr(jit, "_TinyJit", jit.TinyJit)


def watch_replays(changes: Any, on_call: Callable[..., Any], on_replay: Callable[..., Any]) -> None:
    """Calls `on_call` around each call of a TinyJit, `on_replay` around each replay of what it captured."""
    from tinygrad.engine import jit

    changes.wrap(_jit_class(), "__call__", on_call, "self", "args", "kwargs")
    parameters = inspect.signature(jit.CapturedJit.__call__).parameters
    given = next((name for name in parameters if name.startswith("input_")), "input_buffers")
    changes.wrap(jit.CapturedJit, "__call__", on_replay, "self", given, "var_vals")


def watch_captures(changes: Any, around: Callable[..., Any]) -> None:
    """Calls `around` with the function that keeps the schedule of a captured call, to run it later (0.13 on)."""
    if hasattr(_jit_class(), "add_linear"):
        changes.wrap(_jit_class(), "add_linear", around, "self", "linear", "var_vals")


class _ExecItems:
    """0.12: `run_schedule` takes ExecItems off a list and runs each."""

    def __init__(self, changes: Any, tensor_module: ModuleType, realize: ModuleType, watcher: LaunchWatcher):
        self.watcher = watcher
        # id of an ExecItem -> its index in the schedule that runs
        self.indices: dict[int, int] = {}
        run_parameters = ("self", "_var_vals", "wait", "jit", "do_update_stats")
        changes.wrap(tensor_module, "run_schedule", self.on_schedule, "schedule", "var_vals", "do_update_stats")
        changes.wrap(vars(realize)["ExecItem"], "run", self.on_run, *run_parameters)

    def on_schedule(self, run: Callable[..., Any], schedule: list[Any], var_vals: Any = None, **options: Any) -> Any:
        known = dict(var_vals or {})
        # each of several devices has memory of its own
        planned = [
            PlannedLaunch(item.ast, {**known, **item.fixedvars}, bool(item.fixedvars.keys() - {_DEVICE_NUMBER}))
            for item in schedule
        ]
        self.watcher.begins(planned)
        self.indices = {id(item): index for index, item in enumerate(schedule)}
        # tinygrad takes each item off the schedule before it compiles it; held, so that no other item gets its id
        items = list(schedule)
        try:
            return run(schedule, var_vals, **options)
        except BaseException:
            if taken := len(items) - len(schedule):
                self.watcher.fails(taken - 1)
            raise
        finally:
            self.indices = {}

    def on_run(self, run: Callable[..., Any], item: Any, *arguments: Any, **options: Any) -> Any:
        index = self.indices.get(id(item))
        if index is None:
            return run(item, *arguments, **options)
        self.watcher.before(index, item.bufs)
        result = run(item, *arguments, **options)
        self.watcher.after(index, item.bufs, _linear_of(item.prg))
        return result


class _Calls:
    """0.13 on: `run_linear` has a matcher run each CALL of a LINEAR."""

    def __init__(self, changes: Any, tensor_module: ModuleType, realize: ModuleType, watcher: LaunchWatcher):
        from tinygrad.uop.ops import PatternMatcher

        self.watcher = watcher
        # the number of the next launch of the schedule that runs, None if no schedule runs
        self.next: int | None = None
        self.resolve: Callable[..., list[UOp]] = changes.expect(realize, "resolve_params", "call", "inputs")
        run_parameters = ("linear", "var_vals", "input_uops", "update_stats", "jit", "wait")
        changes.wrap(tensor_module, "run_linear", self.on_linear, *run_parameters)
        # the evidence and the copy of the process may both watch
        kind: type = PatternMatcher
        if isinstance(realize.pm_exec, Watched):
            kind = Watched
        changes.replace_value(realize, "pm_exec", kind, lambda stock: Watched(stock, self.on_call))

    def on_linear(self, run: Callable[..., Any], linear: UOp, var_vals: Any = None, *rest: Any, **options: Any) -> Any:
        known = dict(var_vals or {})
        self.watcher.begins([PlannedLaunch(call.src[0], known) for call in linear.src])
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
            # other calls make their own buffers
            if call.src[0].op.name not in {"PROGRAM", "COPY"}:
                return run(call, context)
            buffers = [u.buffer for u in self.resolve(call, context.input_uops)]
            self.watcher.before(index, buffers)
            result = run(call, context)
            self.watcher.after(index, buffers, _linear_of(call.src[0]))
            return result
        except BaseException:
            self.watcher.fails(index)
            raise
        finally:
            self.next = index + 1


def _linear_of(program: Any) -> Sequence[UOp]:
    """Returns the linear program of a runner (0.12) or of a PROGRAM; empty if it has none."""
    spec = getattr(program, "p", None)
    if spec is not None:
        return spec.uops or ()
    return next((part.src for part in getattr(program, "src", ()) if part.op.name == "LINEAR"), ())


def buffer_of(given: Any) -> Any:
    """Returns the buffer of an input of TinyJit, which is a buffer or its UOp."""
    return getattr(given, "buffer", given)


def list_written(linear: UOp) -> list[UOp]:
    """Returns the UOps that the launches of a captured schedule write."""
    return [call.src[1] for call in linear.src if len(call.src) > 1]


def used_buffers_of(captured: Any) -> set[UOp] | None:
    """Returns the BUFFERs that a CapturedJit still uses in the memory of the captured call; in 0.12 None: all."""
    linear = getattr(captured, "linear", None)
    if linear is None:
        return None
    return {u for u in linear.toposort() if u.op.name == "BUFFER"}


def runs_captured_now() -> bool:
    """Whether a TinyJit captures what is realized and runs it when the call is done (0.13 on); 0.12 runs it now."""
    from tinygrad.engine import realize
    from tinygrad.uop import Ops

    return hasattr(Ops, "CALL") and bool(getattr(realize, "capturing", ()))
