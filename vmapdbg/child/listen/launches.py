"""Watches launches as a schedule runs, and what TinyJit captures and replays: ExecItems with Buffers (0.12), or the
CALLs of a LINEAR with UOps (since March 2026)."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any, Protocol
from weakref import ref

from vmapdbg.child.listen.guard import Watched, setting
from vmapdbg.child.listen.releases import DEVICE_NUMBER

UOp = Any
SCHEDULE_MAKERS = ("create_linear_with_vars", "complete_create_schedule_with_vars")
"""The function that makes a schedule for `Tensor.realize`: its name from 0.13 on, and in 0.12."""


@dataclass(frozen=True)
class PlannedLaunch:
    """A launch that will run, and the values of its variables. `is_repeated`: it runs many times, with other values.
    `find_arguments` returns its Buffers as the schedule has them, None for a Buffer that is gone."""

    ast: UOp
    variables: Mapping[str, int] = field(default_factory=dict)
    is_repeated: bool = False
    find_arguments: Callable[[], list[Any]] = list


class LaunchWatcher(Protocol):
    """Gets the launches of schedules of `Tensor.realize`: a schedule begins, launch `index` runs with buffers in
    argument order; then `uops` is its linear program (empty: a copy). It fails if it raises or cannot be compiled."""

    def begins(self, steps: Sequence[PlannedLaunch]) -> None: ...
    def before(self, index: int, buffers: Sequence[Any]) -> None: ...
    def after(self, index: int, buffers: Sequence[Any], uops: Sequence[UOp]) -> None: ...
    def fails(self, index: int) -> None: ...


# *** each of these declares changes, and does not make them; each raises UnknownShape


def watch_launches(changes: Any, tensor_module: ModuleType, watcher: LaunchWatcher) -> None:
    """Reports what `Tensor.realize` runs to `watcher`."""
    from tinygrad.engine import realize

    kind = _Calls if hasattr(realize, "run_linear") else _ExecItems
    kind(changes, tensor_module, realize, watcher)


def watch_schedules(changes: Any, tensor_module: ModuleType, around: Callable[..., Any]) -> None:
    """Calls `around` with the function that makes a schedule for `Tensor.realize`, and with its graph."""
    name = next((name for name in SCHEDULE_MAKERS if hasattr(tensor_module, name)), SCHEDULE_MAKERS[0])
    changes.wrap(tensor_module, name, around, "big_sink")


def jit_class(jit: Any) -> Any:
    """Returns the class of TinyJit's objects, from its module: in 0.14 TinyJit is a function."""
    return getattr(jit, "_TinyJit", jit.TinyJit)


def watch_replays(
    changes: Any,
    on_call: Callable[..., Any],
    on_replay: Callable[..., Any],
    on_prepare: Callable[..., Any] = lambda prepare, *given: prepare(*given),
) -> None:
    """Calls a function around each call of a TinyJit, around each replay, and when a call realizes its inputs."""
    from tinygrad.engine import jit

    changes.wrap(jit, "_prepare_jit_inputs", on_prepare, "args", "kwargs")
    changes.wrap(jit_class(jit), "__call__", on_call, "self", "args", "kwargs")
    parameters = inspect.signature(jit.CapturedJit.__call__).parameters
    given = next((name for name in parameters if name.startswith("input_")), "input_buffers")
    changes.wrap(jit.CapturedJit, "__call__", on_replay, "self", given, "var_vals")


def watch_captures(changes: Any, around: Callable[..., Any]) -> None:
    """Calls `around` with the function that keeps the schedule of a captured call, to run it later (0.13 on)."""
    from tinygrad.engine import jit

    if hasattr(jit_class(jit), "add_linear"):
        changes.wrap(jit_class(jit), "add_linear", around, "self", "linear", "var_vals")


def watch_replacements(changes: Any, tensor_module: ModuleType, around: Callable[..., Any]) -> None:
    """Calls `around` with the function that gives the live Tensors BUFFERs in the place of the values to compute."""
    if (found := getattr(tensor_module, "_apply_map_to_tensors", None)) is not None:
        changes.wrap(tensor_module, "_apply_map_to_tensors", around, *inspect.signature(found).parameters)


def watch_calls(changes: Any, realize: Any, around: Callable[..., Any], part: str) -> None:
    """Calls `around` with the function that runs a CALL of a LINEAR, for each (0.13 on)."""
    from tinygrad.uop.ops import PatternMatcher

    kind = Watched if isinstance(realize.pm_exec, Watched) else PatternMatcher  # several parts of the tool may watch
    changes.replace_value(realize, "pm_exec", kind, lambda stock: Watched(stock, around, part))


class _ExecItems:
    """0.12: `run_schedule` takes items off a list and runs an ExecItem for each."""

    def __init__(self, changes: Any, tensor_module: ModuleType, realize: ModuleType, watcher: LaunchWatcher):
        self.watcher = watcher
        # items of the running schedule that are not taken yet, how many there were, and the index of the last launch
        self.schedule, self.count, self.last = list[Any](), 0, -1
        changes.wrap(tensor_module, "run_schedule", self.on_schedule, "schedule", "var_vals", "do_update_stats")
        item = vars(realize)["ExecItem"]
        changes.wrap(item, "run", self.on_run, "self", "_var_vals", "wait", "jit", "do_update_stats")

    def on_schedule(self, run: Callable[..., Any], schedule: list[Any], var_vals: Any = None, **options: Any) -> Any:
        known = dict(var_vals or {})
        planned: list[PlannedLaunch] = []
        for item in schedule:
            is_repeated = bool(item.fixedvars.keys() - {DEVICE_NUMBER})  # each of several devices has memory of its own
            planned.append(PlannedLaunch(item.ast, {**known, **item.fixedvars}, is_repeated, _refer_to(item.bufs)))
        self.watcher.begins(planned)
        self.schedule, self.count, self.last = schedule, len(schedule), -1
        try:
            return run(schedule, var_vals, **options)
        except BaseException:
            # tinygrad takes each item off the schedule before it compiles it
            if taken := self.count - len(schedule):
                self.watcher.fails(taken - 1)
            raise
        finally:
            self.schedule, self.count = [], 0

    def on_run(self, run: Callable[..., Any], item: Any, *arguments: Any, **options: Any) -> Any:
        index = self.count - len(self.schedule) - 1
        # a run inside of a run, or the second run of an item that VALIDATE_WITH_CPU asks for
        if index <= self.last:
            return run(item, *arguments, **options)
        self.last = index
        self.watcher.before(index, item.bufs)
        result = run(item, *arguments, **options)
        self.watcher.after(index, item.bufs, _linear_of(item.prg))
        return result


class _Calls:
    """0.13 on: `run_linear` has a matcher run each CALL of a LINEAR."""

    def __init__(self, changes: Any, tensor_module: ModuleType, realize: ModuleType, watcher: LaunchWatcher):
        self.watcher = watcher
        self.next: int | None = None  # number of the next launch, None if no schedule runs
        self.list_arguments = _find_resolver(changes, realize)
        # commits without `resolve_params` compile a SINK when they run it
        self.compile = None if hasattr(realize, "resolve_params") else getattr(realize, "get_runner", None)
        parameters = inspect.signature(realize.run_linear).parameters
        first = ("linear", "var_vals")  # the parameters after these have changed often
        changes.wrap(tensor_module, "run_linear", self.on_linear, *first, *[p for p in parameters if p not in first])
        watch_calls(changes, realize, self.on_call, "launches")

    def on_linear(self, run: Callable[..., Any], linear: UOp, var_vals: Any = None, *rest: Any, **options: Any) -> Any:
        known = dict(var_vals or {})
        planned = [
            PlannedLaunch(call.src[0], known, find_arguments=partial(_find_buffers, call)) for call in linear.src
        ]
        self.watcher.begins(planned)
        with setting(self, "next", 0):
            return run(linear, var_vals, *rest, **options)

    def on_call(self, run: Callable[..., Any], call: UOp, context: Any) -> Any:
        if self.next is None:
            return run(call, context)
        # to read a buffer is a copy, which 0.14 runs in the same way
        index, self.next = self.next, None
        try:
            program = call.src[0]
            is_sink = self.compile is not None and program.op.name in {"SINK", "BEAM"}
            if program.op.name not in {"PROGRAM", "COPY"} and not is_sink:
                return run(call, context)  # other calls make their own buffers
            buffers = [u.buffer for u in self.list_arguments(call, context)]
            self.watcher.before(index, buffers)
            result = run(call, context)
            if is_sink and self.compile is not None:
                program = self.compile(getattr(buffers[0], "bufs", buffers)[0].device, program)  # from tinygrad's cache
            self.watcher.after(index, buffers, _linear_of(program))
            return result
        except BaseException:
            self.watcher.fails(index)
            raise
        finally:
            self.next = index + 1


def _find_resolver(changes: Any, realize: Any) -> Callable[[UOp, Any], list[UOp]]:
    """Returns a function that finds the arguments of a CALL as tinygrad does then."""
    stock: Any = getattr(realize, "resolve_params", None)
    if stock is None:
        return lambda call, context: drop_variables(call.src[1:])  # in April 2026
    if "ctx" in inspect.signature(stock).parameters:  # some commits give it the context
        changes.expect(realize, "resolve_params", "ctx", "call")
        return lambda call, context: realize.resolve_params(context, call)
    changes.expect(realize, "resolve_params", "call", "inputs")
    return lambda call, context: realize.resolve_params(call, context.input_uops)


def _linear_of(program: Any) -> Sequence[UOp]:
    """Returns the linear program of a runner (0.12) or of a PROGRAM; empty if it has none."""
    if (spec := getattr(program, "p", None)) is not None:
        return spec.uops or ()
    return next((part.src for part in getattr(program, "src", ()) if part.op.name == "LINEAR"), ())


def list_arguments(
    arguments: Sequence[Any], options: Mapping[str, Any], around: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields (path, value) for a call's arguments and items in them: (0,), (name,), (0, index or key, ...). `around`
    has the ids of the containers around them: one may contain itself."""
    for key, value in (*enumerate(arguments), *options.items()):
        kind: Any = type(value)  # isinstance may run code of the value
        inside = (*around, id(value))
        if id(value) in around:
            continue
        if issubclass(kind, (list, tuple)):
            found = list_arguments(value, {}, inside)
        elif issubclass(kind, dict):
            found = list_arguments((), value, inside)
        else:
            found = [((), value)]
        yield from (((key, *path), item) for path, item in found)


def list_written(linear: UOp) -> list[UOp]:
    """Returns the UOps that the launches of a captured schedule write."""
    return [call.src[1] for call in linear.src if len(call.src) > 1]


def source_of(captured: Any) -> Any:
    """Returns what a CapturedJit replays: its LINEAR, shared by unpickled copies; in 0.12 itself: they copy buffers."""
    return getattr(captured, "linear", captured)


def used_buffers_of(source: Any) -> set[UOp] | None:
    """Returns the BUFFERs that replays still use in the memory of the captured call; in 0.12 None: all."""
    if hasattr(source, "jit_cache"):
        return None
    return _list_buffers(argument for call in list_calls(source) for argument in call.src[1:])


def _list_buffers(arguments: Iterable[UOp]) -> set[UOp]:
    return {u for argument in arguments for u in argument.toposort() if u.op.name == "BUFFER"}


def list_replayed(source: Any) -> list[Any]:
    """Returns the buffers that replayed kernels write, without the inputs."""
    if hasattr(source, "jit_cache"):
        return [item.bufs[0] for item in source.jit_cache if item.bufs[0] is not None]
    return [u.buffer for u in _list_buffers(u for call in list_calls(source) for u in call.src[1:2])]


def list_calls(linear: UOp) -> Iterator[UOp]:
    """Yields the CALLs of a LINEAR, and the CALLs that a graph launches together."""
    for call in linear.src:
        yield call
        if call.src[0].op.name == "CUSTOM_FUNCTION":
            yield from list_calls(call.src[0].src[0])


def list_captured(captured: Any) -> Iterator[tuple[UOp, list[Any]]]:
    """Yields the AST and the arguments of each launch of a replay: Buffers, None without one, the numbers of inputs."""
    if hasattr(captured, "jit_cache"):
        for number, item in enumerate(captured.jit_cache):
            given = captured.input_replace
            yield item.ast, [given.get((number, slot), buffer) for slot, buffer in enumerate(item.bufs)]
        return
    for call in list_calls(captured.linear):
        if call.src[0].op.name != "CUSTOM_FUNCTION":
            yield call.src[0], list(map(_find_captured_argument, drop_variables(call.src[1:])))


def drop_variables(arguments: Iterable[UOp]) -> list[UOp]:
    """Returns the arguments of a CALL that are no variables."""
    return [u for u in arguments if u.op.name != "BIND" and not getattr(u, "is_bound_var", False)]


def _find_buffers(call: UOp) -> list[Any]:
    """Returns the Buffers of a CALL; none if it has parameters."""
    arguments = drop_variables(call.src[1:])
    is_known = not any(u.op.name == "PARAM" for argument in arguments for u in argument.toposort())
    return [u.buffer for u in arguments] if is_known else []


def _refer_to(buffers: Iterable[Any]) -> Callable[[], list[Any]]:
    """Returns a function that returns Buffers, and does not keep their memory."""
    known = [ref(buffer) if buffer is not None else lambda: None for buffer in buffers]
    return lambda: [one() for one in known]


def _find_captured_argument(u: UOp) -> Any:
    given = next((param.arg for param in u.toposort() if param.op.name == "PARAM"), None)
    return u.buffer if given is None else getattr(given, "slot", given)


def list_memory(source: Any) -> list[Any]:
    """Returns the buffers that replays use, without the inputs."""
    if (used := used_buffers_of(source)) is not None:
        return [u.buffer for u in used]
    return [buffer for item in source.jit_cache for buffer in item.bufs if buffer is not None]


def runs_captured_now() -> bool:
    """Whether a TinyJit captures what is realized and runs it when the call is done (0.13 on); 0.12 runs it now."""
    from tinygrad.engine import realize

    capturing: list[Any] = getattr(realize, "capturing", [])
    return bool(capturing) and hasattr(capturing[0], "add_linear")
