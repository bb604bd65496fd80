"""How long each kernel takes, by the device's own clock, and what the rest of the program's time goes into."""

import functools
import inspect
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import median, quantiles
from typing import Any

import vmapdbg
from vmapdbg.child.listen.guard import Watched, put_around, watching
from vmapdbg.child.listen.launches import jit_class, watch_calls, watch_schedules
from vmapdbg.child.listen.rendering import name_opt
from vmapdbg.child.listen.user_lines import name_function
from vmapdbg.model.capture import Capture, Kernel, LaunchTime, MarkTime, Measured, OptimizationTime, Timing
from vmapdbg.model.schedule_index import change_kernels, digest_source
from vmapdbg.model.wording import first_line

_REPEATS, _REPEATED_SECONDS = 8, 0.1  # how often a launch is repeated at most, and for how long
_FEW = 4  # from so many launches on, the times of a kernel have a spread


class Stopwatch:
    """Times a program and each launch, by the kernel's source: what ran and what is shown have one linear program."""

    def __init__(self, repeats: bool = False) -> None:
        # whether launches are repeated, and the fastest counts: other processes slow a single launch down
        self.repeats, self._overheads = repeats, list[float]()
        self.seconds: dict[str, list[float]] = {}
        self.launches: list[LaunchTime] = []  # in their order
        self.devices: Counter[str] = Counter()
        # what the wall time goes into, the part of a block without the blocks in it
        self._parts: defaultdict[str, float] = defaultdict(float)
        self._open = ["importing"]
        self._since = time.perf_counter()
        self._marks: dict[str, MarkTime] = {}
        self._marked: tuple[str, float] | None = None
        self._jits: list[str] = []
        # the keys of the kernels that BEAM optimizes, or, without BEAM, that have other optimizations, too
        self._searched: Container[str] = ()
        self._beam = 0
        # source of such a kernel -> its programs by the name of the optimizations, or why there is none; then its times
        self._variants: dict[str, dict[str, Any]] = {}
        self._tried: dict[str, tuple[OptimizationTime, ...]] = {}

    # *** the program

    def start(self, beam: int = 0, searched: Container[str] = ()) -> None:
        """The program begins. TinyJit launches kernels one by one, so that each is timed. Kernels with the keys
        `searched` are compiled in this process: optimized by BEAM with `beam`, else also with other optimizations."""
        os.environ.setdefault("JIT", "2")
        self._searched, self._beam = searched, beam
        if searched:
            os.environ["PARALLEL"] = "0"
        if beam:
            os.environ.update(BEAM=str(beam), JITBEAM=str(beam))
        self._since = time.perf_counter()
        vmapdbg.listeners.append(self.mark)

    def stop(self) -> None:
        """The program is done."""
        self._switch(self._open)
        self.mark(None)

    def mark(self, name: str | None) -> None:
        """The user's phase of a name begins; the phase before it ends."""
        now = time.perf_counter()
        if self._marked is not None:
            self._add_mark(self._marked[0], now - self._marked[1], 1)
        self._marked = None if name is None else (name, now)

    def _add_mark(self, name: str, seconds: float = 0, calls: int = 0, launches: int = 0, kernels: float = 0) -> None:
        known = self._marks.get(name, MarkTime(name, 0, 0, 0, 0))
        numbers = known.seconds + seconds, known.calls + calls, known.launches + launches, known.kernels + kernels
        self._marks[name] = MarkTime(name, *numbers)

    def _switch(self, opened: list[str]) -> None:
        """Adds the time since the last switch to the part that was open, and opens another one."""
        now = time.perf_counter()
        self._parts[self._open[-1]] += now - self._since
        self._open, self._since = opened, now

    @contextmanager
    def _spending(self, part: str) -> Iterator[None]:
        outer = self._open
        self._switch([*outer, part])
        try:
            yield
        finally:
            self._switch(outer)

    def _run_in(self, part: str, run: Callable[..., Any], *args: Any, **options: Any) -> Any:
        with self._spending(part):
            return run(*args, **options)

    # *** tinygrad

    def watch(self, tensor_module: Any) -> None:
        """Waits for every launch and times it, from the import of tinygrad on. Raises UnknownShape."""
        from tinygrad.engine import jit, realize

        self._switch(["python"])
        modules = [module for module in (realize, jit) if hasattr(module, "compile_linear")]
        compilers: list[tuple[Any, str]] = [(module, "compile_linear") for module in modules]
        with watching("times") as changes:
            if hasattr(realize, "CompiledRunner"):
                compilers.append((realize.ExecItem, "lower"))  # 0.12
                parameters = "self", "rawbufs", "var_vals", "wait"
                changes.wrap(realize.CompiledRunner, "__call__", self.on_runner, *parameters)
                on_copy = functools.partial(self._run_in, "copying")
                changes.wrap(realize.BufferCopy, "__call__", on_copy, *parameters)
            else:
                watch_calls(changes, realize, self.on_call, "times")
                changes.wrap(realize, "get_runtime", self.on_runtime, "device", "ast", "cache")
            watch_schedules(changes, tensor_module, functools.partial(self._run_in, "scheduling"))
            for owner, name in compilers:
                parameters = inspect.signature(getattr(owner, name)).parameters
                changes.wrap(owner, name, functools.partial(self._run_in, "compiling"), *parameters)
            if self._searched:
                name = "to_program" if hasattr(realize, "to_program") else "get_program"
                put_around(realize, name, self.on_compile, "times with other optimizations")
            changes.wrap(jit_class(jit), "__call__", self.on_jit, "self", "args", "kwargs")

    def on_compile(self, run: Callable[..., Any], ast: Any, *rest: Any, **options: Any) -> Any:
        from tinygrad.helpers import Context

        # since 0.13 the width of the search is a part of the AST
        plain = ast.replace(arg=replace(ast.arg, beam=0)) if hasattr(ast.arg, "beam") else ast
        is_searched = plain.key.hex() in self._searched
        if is_searched and self._beam:
            return run(ast, *rest, **options)
        with Context(BEAM=0):
            program = run(plain, *rest, **options)
            if is_searched:
                self._compile_variants(plain, program, lambda ast: run(ast, *rest, **options))
            return program

    def _compile_variants(self, ast: Any, program: Any, lower: Callable[[Any], Any]) -> None:
        """Compiles a kernel without its optimizations, and with each of them alone."""
        info = program.uops[-1].arg if hasattr(program, "uops") else program.src[0].arg
        sets = {"none": ()} | {name_opt(one): (one,) for one in info.applied_opts}
        found = self._variants[_find_source(program)] = dict[str, Any]()
        for name, opts in sets.items():
            try:
                found[name] = lower(ast.replace(arg=replace(ast.arg or type(info)(), opts_to_apply=opts)))
            except Exception as error:  # it is for axes that another optimization makes
                found[name] = f"tinygrad refuses it: {first_line(error)}"

    def _time_variants(
        self, source: str, own: Callable[[], float], prepare: Callable[[Any], Callable[[], float]]
    ) -> None:
        """Times a kernel with its own and with other optimizations, in turns: once, and on the same buffers."""
        programs = self._variants.pop(source, {})
        runs, least, refused = {"all": own}, dict[str, float](), dict[str, str]()
        with self._spending("repeating"):
            for name, program in programs.items():
                if isinstance(program, str):
                    refused[name] = program
                    continue
                try:
                    runs[name] = prepare(program)
                    runs[name]()
                except Exception as error:  # the device refuses it
                    refused[name] = first_line(error)
            end = time.perf_counter() + _REPEATED_SECONDS * len(runs)
            for number in range(_REPEATS):
                if number and time.perf_counter() > end:
                    break
                for name in runs.keys() - refused.keys():
                    seconds = runs[name]()
                    least[name] = min(seconds, least.get(name, seconds))
            own()  # an optimization may compute something else
        rows = (OptimizationTime(name, least.get(name), refused.get(name)) for name in ("all", *programs))
        if programs:
            self._tried[source.strip("\n")] = tuple(rows)

    def on_call(self, run: Callable[..., Any], call: Any, context: Any) -> Any:
        return self._run_in("copying", run, call, context) if call.src[0].op.name == "COPY" else run(call, context)

    def on_runner(
        self, run: Callable[..., Any], runner: Any, rawbufs: Any, var_vals: Any = None, *_: Any, **__: Any
    ) -> Any:
        is_pure = _is_pure(runner.p, rawbufs)  # `wait` is left out: it is given here
        seconds = self.on_launch(runner.p.src, runner.device, self.repeats and is_pure, run, runner, rawbufs, var_vals)
        if is_pure and runner.p.src in self._variants:

            def prepare(program: Any) -> Callable[[], float]:
                other = runner if program is runner.p else type(runner)(program)
                return lambda: run(other, rawbufs, var_vals, wait=True)

            self._time_variants(runner.p.src, prepare(runner.p), prepare)
        return seconds

    def on_runtime(self, find: Callable[..., Any], device: str, program: Any, *rest: Any, **options: Any) -> Any:
        run = find(device, program, *rest, **options)
        source = _find_source(program)

        def launch(run: Callable[..., Any], *buffers: Any, **options: Any) -> float | None:
            is_pure = _is_pure(program.arg, buffers)
            seconds = self.on_launch(source, device, self.repeats and is_pure, run, *buffers, **options)
            if is_pure and source in self._variants:

                def prepare(other: Any) -> Callable[[], float]:
                    known = {u.expr: value for u, value in zip(program.arg.vars, options["vals"], strict=True)}
                    names = ("global_size", "local_size", "vals")
                    given = dict(zip(names, (*other.arg.launch_dims(known), other.arg.vals(known)), strict=True))
                    variant = run if other is program else find(device, other, *rest)
                    return lambda: variant(*buffers, **{**options, **given, "wait": True})

                self._time_variants(source, prepare(program), prepare)
            return seconds

        return Watched(run, launch, "times") if source else run

    def on_launch(
        self, source: str, device: str, can_repeat: bool, run: Callable[..., Any], *arguments: Any, **options: Any
    ) -> float | None:
        options["wait"] = True
        with self._spending("launching"):
            began = time.perf_counter()
            seconds = run(*arguments, **options)
            waited = time.perf_counter() - began
        # BEAM tries kernels while it compiles
        if seconds is None or "compiling" in self._open:
            return seconds
        if can_repeat:
            with self._spending("repeating"):
                seconds, least = _repeat(functools.partial(run, *arguments, **options), seconds, waited)
            self._overheads.append(least - seconds)
        source = source.strip("\n")
        self.seconds.setdefault(source, []).append(seconds)
        self.launches.append(LaunchTime(digest_source(source), seconds))
        self.devices[device] += 1
        self._parts["launching"] -= seconds
        self._parts["kernels"] += seconds
        for name in filter(None, (self._marked and self._marked[0], *self._jits[-1:])):
            self._add_mark(name, launches=1, kernels=seconds)
        return seconds

    def on_jit(self, call: Callable[..., Any], jitted: Any, *arguments: Any, **options: Any) -> Any:
        name = name_function(getattr(jitted.fxn, "__qualname__", "a loaded TinyJit"))
        name += ": first calls" if jitted.captured is None else ": replays"
        began = time.perf_counter()
        self._jits.append(name)
        try:
            return call(jitted, *arguments, **options)
        finally:
            self._jits.pop()
            self._add_mark(name, time.perf_counter() - began, 1)

    # *** the result

    def add_times(self, capture: Capture) -> Capture:
        """Returns the capture with the times of its kernels."""

        def fill(kernel: Kernel) -> Kernel:
            times = self.seconds.get(kernel.source.strip("\n"))
            tried = self._tried.get(kernel.source.strip("\n"), ())
            return replace(kernel, measured=measure(times), optimizations=tried) if times else kernel

        if self._overheads:
            # what launching costs without other processes
            self._parts["launching"] = sum(self.devices.values()) * sorted(self._overheads)[len(self._overheads) // 2]
        timing = Timing(sum(self._parts.values()), dict(self._parts), tuple(self._marks.values()), tuple(self.launches))
        return replace(change_kernels(capture, fill), timing=timing)


def _find_source(program: Any) -> str:
    """Returns the source of a program; nothing if it has none."""
    if hasattr(program, "uops"):
        return program.src
    return next((u.arg for u in program.src if u.op.name == "SOURCE"), "")


def _is_pure(program: Any, buffers: Sequence[Any]) -> bool:
    """Returns whether a program gives the same if it runs twice: it writes to no memory that it reads."""
    memory: list[tuple[Any, int, int]] = []
    for buffer in buffers:
        if hasattr(buffer, "va_addr"):
            memory.append((None, buffer.va_addr, buffer.size))
        elif hasattr(buffer, "nbytes") and hasattr(buffer, "base"):
            memory.append((buffer.base, buffer.offset, buffer.nbytes))  # 0.12
        else:
            return False  # it may be the same memory
    for number in program.outs:
        base, start, size = memory[list(program.globals).index(number)]
        # the buffer itself is one
        shared = [one for one in memory if one[0] is base and start < one[1] + one[2] and one[1] < start + size]
        if number in program.ins or len(shared) > 1:
            return False
    return True


def _repeat(run: Callable[[], float | None], seconds: float, waited: float) -> tuple[float, float]:
    """Repeats a launch. Returns the least time by the device's clock, and the least time that was waited for one."""
    end = time.perf_counter() + _REPEATED_SECONDS
    for _ in range(_REPEATS):
        if (began := time.perf_counter()) > end:
            break
        again = run()
        seconds, waited = min(seconds, again or seconds), min(waited, time.perf_counter() - began)
    return seconds, waited


def measure(times: Sequence[float]) -> Measured:
    """Returns the figures of some launches of a kernel, in their order."""
    spread = None
    if len(times) >= _FEW:
        low, _, high = quantiles(times, n=4)
        spread = high - low
    return Measured(len(times), median(times), min(times), max(times), first=times[0], spread=spread)
