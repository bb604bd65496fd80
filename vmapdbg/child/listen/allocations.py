"""Watches which memory tinygrad has while the snippet runs, and which launches use it. Runs in the child."""

from __future__ import annotations

import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal, NamedTuple
from weakref import ref

from vmapdbg.child.listen.guard import watching
from vmapdbg.child.listen.launches import (
    PlannedLaunch,
    list_captured,
    runs_captured_now,
    watch_captures,
    watch_launches,
    watch_replays,
)
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.listen.user_lines import find_user_file, find_user_line
from vmapdbg.child.memory import name_dtype

Place = tuple[int, int]
"""The index of a recorded schedule, and the number of a launch in it."""


@dataclass(eq=False)
class Allocation:
    """Memory of a device from an event until an event (None: until the end). `buffer` is a weak reference."""

    buffer: Any
    bytes: int
    device: str
    dtype: str
    line: str | None
    born: int
    is_data: bool
    freed: int | None = None


class Use(NamedTuple):
    """An argument of a launch: a part of an allocation, as a view of it or whole, or the input of a replay with this
    number."""

    memory: Allocation | int
    writes: bool = False
    offset: int = 0
    bytes: int = 0
    dtype: str = ""
    is_view: bool = False


@dataclass(eq=False)
class Batch:
    """Launches one after the other, the first of which is number `launch` of the run: a schedule, a replay, or a read
    by Python, which counts as no launch. `uses` has the arguments of each launch; replays share it, and have the
    allocations of their `inputs` apart (None if unknown). The events from `first` until `last` happened meanwhile."""

    kind: Literal["schedule", "replay", "read"]
    line: str | None
    launch: int
    places: Sequence[Place | None]
    uses: Sequence[Sequence[Use]]
    first: int
    last: int = 0
    inputs: Sequence[Any] = ()

    def find_memory(self, memory: Allocation | int) -> Allocation | None:
        """Returns the memory of a use in this batch; None if it is an input whose memory is unknown."""
        if not isinstance(memory, int):
            return memory
        return self.inputs[memory] if memory < len(self.inputs) else None


@dataclass(frozen=True)
class Step:
    """A call of a TinyJit: the name and line of its function, its number among the calls, and its events."""

    name: str
    line: str | None
    call: int
    first: int
    last: int


@dataclass
class _Captured:
    """What a TinyJit captured: the AST and place of each launch, and once it was replayed, the arguments. `owner` is a
    weak reference to its CapturedJit."""

    owner: Any = None
    launches: list[tuple[Any, Place | None]] = field(default_factory=list[Any])
    uses: Sequence[Sequence[Use]] | None = None
    places: Sequence[Place | None] = ()


class Allocations:
    """All memory that tinygrad allocates, by its own counter `GlobalCounters.mem_used`, on all devices together.

    `events` has for each change of the counter its bytes, the allocation, and the number of launches until then.
    Without a recorder only `peak`, the most bytes at a time, is known; it is None if nothing is watched.
    """

    def __init__(self, recorder: Recorder | None) -> None:
        self.recorder = recorder
        self.peak: int | None = None
        self.events: list[tuple[int, Allocation, int]] = []
        self.batches: list[Batch] = []
        self.steps: list[Step] = []
        self.launches = 0
        # id of the Buffer with the memory -> its allocation, while it has the memory
        self.alive: dict[int, Allocation] = {}
        self._counters: Any = None
        self._schedules = 0
        self._captured: dict[int, _Captured] = {}
        self._capturing: _Captured | None = None
        # the schedule that runs, or ran last
        self._running: Batch | None = None

    def watch(self, tensor_module: ModuleType) -> None:
        """Looks at the counter around each allocation: nothing else changes it. Raises UnknownShape."""
        from tinygrad.device import Buffer
        from tinygrad.helpers import GlobalCounters

        self._counters = GlobalCounters
        with watching("allocated memory") as changes:
            changes.wrap(Buffer, "allocate", self.on_allocate, "self", "opaque", "external_ptr")
            if self.recorder is not None:
                changes.wrap(Buffer, "deallocate", self.on_free, "self")
                # 0.13 renamed it
                read = "as_memoryview" if hasattr(Buffer, "as_memoryview") else "as_buffer"
                changes.wrap(Buffer, read, self.on_read, *inspect.signature(getattr(Buffer, read)).parameters)
        self.peak = GlobalCounters.mem_used
        if self.recorder is not None:
            with watching("launches and their memory") as changes:
                watch_launches(changes, tensor_module, self)
                watch_captures(changes, self.on_captured)
                watch_replays(changes, self.on_call, self.on_replay)

    # *** memory

    def on_allocate(self, allocate: Callable[..., Any], buffer: Any, *args: Any, **options: Any) -> Any:
        before = self._counters.mem_used
        made = allocate(buffer, *args, **options)
        now = self._counters.mem_used
        self.peak = max(self.peak or 0, now)
        # the memory of a view is its base's
        if self.recorder is not None and buffer.base is buffer and now > before:
            is_data = bool(args) or any(value is not None for value in options.values())
            what = now - before, buffer.device, name_dtype(buffer.dtype), find_user_line()
            made_here = Allocation(ref(buffer), *what, born=len(self.events), is_data=is_data)
            self.alive[id(buffer)] = made_here
            self.events.append((now - before, made_here, self.launches))
        return made

    def on_free(self, free: Callable[..., Any], buffer: Any) -> Any:
        before = self._counters.mem_used
        result = free(buffer)
        freed = before - self._counters.mem_used
        # external memory is never subtracted in 0.12
        if freed and (known := self.alive.pop(id(buffer), None)) is not None:
            known.freed = len(self.events)
            self.events.append((-freed, known, self.launches))
        return result

    def on_read(self, read: Callable[..., Any], buffer: Any, *args: Any, **options: Any) -> Any:
        result = read(buffer, *args, **options)
        if uses := self._list_uses([buffer], first_slot=1):
            self._add("read", [None], [uses])
        return result

    def _list_uses(self, arguments: Iterable[Any], first_slot: int = 0) -> list[Use]:
        """Returns the counted memory of some arguments of a launch, which writes its first argument: Buffers, and the
        numbers of a replay's inputs."""
        found: list[Use] = []
        for slot, argument in enumerate(arguments, first_slot):
            if isinstance(argument, int):
                found.append(Use(argument, slot == 0))
                continue
            for part in () if argument is None else getattr(argument, "bufs", [argument]):
                if (known := self.alive.get(id(part.base))) is not None:
                    where = part.offset, part.nbytes, name_dtype(part.dtype)
                    found.append(Use(known, slot == 0, *where, is_view=part.base is not part))
        return found

    def _add(
        self, kind: Any, places: Sequence[Place | None], uses: Sequence[Sequence[Use]], first: int | None = None
    ) -> Batch:
        """Adds launches that have run, or a schedule that begins."""
        now = len(self.events)
        batch = Batch(kind, find_user_line(), self.launches, places, uses, now if first is None else first, now)
        self.batches.append(batch)
        return batch

    # *** the launches of schedules

    def begins(self, steps: Sequence[PlannedLaunch]) -> None:
        asts = [step.ast for step in steps]
        places = self._find_places(asts)
        if self._capturing is not None and not runs_captured_now():
            # 0.12 runs what it captures
            self._capturing.launches += zip(asts, places, strict=True)
        self._running = self._add("schedule", places, [])

    def before(self, index: int, buffers: Sequence[Any]) -> None: ...

    def fails(self, index: int) -> None: ...

    def after(self, index: int, buffers: Sequence[Any], uops: Sequence[Any]) -> None:
        batch = self._running
        if batch is None:
            return
        uses: Any = batch.uses
        # a launch that was not seen, a view for example
        uses += [[] for _ in range(index - len(uses))]
        uses.append(self._list_uses(buffers))
        self.launches = batch.launch + len(uses)
        batch.last = len(self.events)

    def _find_places(self, asts: Sequence[Any]) -> list[Place | None]:
        """Returns the place of each launch of a schedule that was recorded since the last call; None if unknown."""
        assert self.recorder is not None, "launches are matched with the recorded schedules"
        schedules = enumerate(self.recorder.schedules[self._schedules :], self._schedules)
        new = [(number, one.passed) for number, one in schedules if one.passed is not None]
        self._schedules = len(self.recorder.schedules)
        for number, passed in reversed(new):
            # 0.14 has another COPY when it runs
            same = [
                kernel.ast is ast or not kernel.is_compute for kernel, ast in zip(passed.kernels, asts, strict=False)
            ]
            if len(passed.kernels) == len(asts) and all(same):
                return [(number, index) for index in range(len(asts))]
        # the kernels of functions that it calls, in between; or a launch for each device
        return match_launches(asts, [(k.ast, (n, i)) for n, one in new for i, k in enumerate(one.kernels)])

    # *** TinyJit

    def on_call(self, call: Callable[..., Any], tiny: Any, *args: Any, **options: Any) -> Any:
        first, line, code = len(self.events), find_user_line(), getattr(tiny.fxn, "__code__", None)
        is_captured = tiny.captured is not None
        self._capturing, outer = None if is_captured else _Captured(), self._capturing
        number = tiny.cnt
        try:
            result = call(tiny, *args, **options)
            if not is_captured and tiny.captured is not None:
                self._find_captured(tiny.captured)
        finally:
            self._capturing = outer
            name = getattr(tiny.fxn, "__qualname__", "TinyJit").replace("<locals>.", "")
            if code is not None:
                line = f"{find_user_file(code.co_filename) or code.co_filename}:{code.co_firstlineno}"
            self.steps.append(Step(name, line, number, first, len(self.events)))
        return result

    def on_captured(self, keep: Callable[..., Any], tiny: Any, linear: Any, *args: Any, **options: Any) -> Any:
        if self._capturing is not None:
            calls = [call.src[0] for call in linear.src]
            self._capturing.launches += zip(calls, self._find_places(calls), strict=True)
        return keep(tiny, linear, *args, **options)

    def on_replay(self, replay: Callable[..., Any], captured: Any, given: Any, *args: Any, **options: Any) -> Any:
        first = len(self.events)
        result = replay(captured, given, *args, **options)
        # 0.13 replays before the capturing call returns
        known = self._find_captured(captured)
        if known.uses is None:
            launched = list(list_captured(captured))
            known.uses = [self._list_uses(arguments) for _, arguments in launched]
            known.places = [place for ast, place in known.launches if ast.op.name != "BUFFER_VIEW"]
            if len(known.places) != len(launched):
                # prune=True leaves out some
                known.places = match_launches([ast for ast, _ in launched], known.launches)
        batch = self._add("replay", known.places, known.uses, first)
        inputs = (self._list_uses([getattr(one, "buffer", one)]) for one in given)
        batch.inputs = [uses[0].memory if uses else None for uses in inputs]
        self.launches += len(known.uses)
        return result

    def _find_captured(self, captured: Any) -> _Captured:
        known = self._captured.get(id(captured))
        if known is None or known.owner() is not captured:
            known = self._captured[id(captured)] = self._capturing or _Captured()
            known.owner = ref(captured)
        return known


def match_launches(asts: Sequence[Any], known: Iterable[tuple[Any, Place | None]]) -> list[Place | None]:
    """Returns the place of each launch by its AST: launches with one AST run in the order of their places, each of
    them once for each device."""
    by_ast: dict[Any, list[Place | None]] = defaultdict(list)
    for ast, place in known:
        by_ast[ast].append(place)
    counts, turns, found = Counter(asts), Counter[Any](), list[Place | None]()
    for ast in asts:
        places = by_ast.get(ast) or [None]
        found.append(places[turns[ast] * len(places) // max(counts[ast], len(places))])
        turns[ast] += 1
    return found
