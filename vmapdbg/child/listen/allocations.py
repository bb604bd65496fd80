"""Watches which memory tinygrad has while the snippet runs, and which launches use it. Runs in the child."""

import inspect
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple
from weakref import ref

from vmapdbg.child.identity import IdentityMap
from vmapdbg.child.listen.guard import watching
from vmapdbg.child.listen.launches import PlannedLaunch, list_captured, watch_captures, watch_launches, watch_replays
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.listen.user_lines import find_user_file, find_user_line, name_function
from vmapdbg.child.memory import name_dtype

ENDLESS = sys.maxsize
Place = tuple[int, int]
"""The index of a recorded schedule, and the number of a launch in it."""


@dataclass(eq=False)
class StoredValue:
    """What has memory from tick `start` to `end` (excluded): a Buffer, or what the planner put in the Buffer `arena`.
    `buffer` is a weak reference. `used`, `written`: launches; `reads`: tick of a read by Python -> user's line."""

    buffer: Any
    bytes: int
    device: str
    dtype: str
    line: str | None
    is_data: bool
    start: int
    end: int = ENDLESS
    offset: int = 0
    arena: "StoredValue | None" = None
    used: "list[MemoryLaunch]" = field(default_factory=list["MemoryLaunch"])
    written: "list[MemoryLaunch]" = field(default_factory=list["MemoryLaunch"])
    reads: dict[int, str | None] = field(default_factory=dict[int, str | None])
    used_as_view: set[bool] = field(default_factory=set[bool])  # True: a view; False: the whole

    @property
    def is_shared(self) -> bool:
        """Whether the planner shares it among values: nothing else makes bytes that are only used in parts."""
        return self.dtype == "char" and self.used_as_view == {True}

    @property
    def span(self) -> tuple[int, int, int]:
        return self.start, self.end, self.bytes

    @property
    def touched(self) -> list[int]:
        """The ticks of all launches and reads that use it."""
        return sorted([*(launch.tick for launch in self.used), *self.reads])

    def note(self, launch: "MemoryLaunch", writes: bool) -> None:
        self.used.append(launch)
        if writes:
            self.written.append(launch)
        if self.arena is not None:
            self.end = launch.tick + 1

    def overlaps(self, other: "StoredValue | Use") -> bool:
        return self.offset < other.offset + other.bytes and other.offset < self.offset + self.bytes


class Use(NamedTuple):
    """An argument of a launch: a Buffer, or the part of it that a view has."""

    value: StoredValue
    writes: bool
    offset: int
    bytes: int
    dtype: str


class MemoryLaunch(NamedTuple):
    """Launch `number` of the run, and the user's line that runs it. `is_repeated`: as in an earlier replay."""

    number: int
    tick: int
    line: str | None
    place: Place | None
    uses: Sequence[Use]
    is_repeated: bool = False


@dataclass
class MemoryPart:
    """A schedule that runs, or the call of a TinyJit with this number, from tick `first` until tick `end` (excluded):
    the index of the schedule, and the line that runs it; or name and line of the TinyJit's function."""

    name: str
    line: str | None
    first: int
    end: int
    schedule: int | None = None
    call: int | None = None


class Allocations:
    """All memory that tinygrad allocates, on all devices: `GlobalCounters.mem_used`. The clock ticks when it changes,
    at each launch, and if Python reads a buffer; `levels` has it after each tick. Without a recorder that is all."""

    def __init__(self, recorder: Recorder | None) -> None:
        self.recorder = recorder
        self.levels: list[int] = []
        self.values: list[StoredValue] = []
        self.launches: list[MemoryLaunch] = []
        self.parts: list[MemoryPart] = []
        self._alive: dict[int, StoredValue] = {}  # id of a Buffer -> its value, while it has memory
        self._counters: Any = None
        self._schedules = 0  # how many recorded schedules have run
        # the schedule that runs, or ran last, and the places of its launches
        self._running, self._places = MemoryPart("", None, 0, 0), list[Place | None]()
        # AST and place of the launches that TinyJit captures
        self._capturing: list[tuple[Any, Place | None]] | None = None
        # CapturedJit -> its launches as captured, and as replayed: with arguments, and uses if these are fixed
        self._captured: IdentityMap[list[tuple[Any, Place | None]]] = IdentityMap()
        self._replayed: IdentityMap[list[tuple[Place | None, Sequence[Any], list[Use] | None]]] = IdentityMap()

    @property
    def peak(self) -> int | None:
        """The most bytes at a time; None if nothing is watched."""
        return max(self.levels, default=None)

    def watch(self, tensor_module: ModuleType) -> None:
        """Looks at the counter around each allocation: nothing else changes it. Raises UnknownShape."""
        from tinygrad.device import Buffer
        from tinygrad.helpers import GlobalCounters

        self._counters = GlobalCounters
        with watching("allocated memory") as changes:
            changes.wrap(Buffer, "allocate", self.on_allocate, "self", "opaque", "external_ptr")
            if self.recorder is not None:
                changes.wrap(Buffer, "deallocate", self.on_free, "self")
                read = "as_memoryview" if hasattr(Buffer, "as_memoryview") else "as_buffer"  # 0.13 renamed it
                changes.wrap(Buffer, read, self.on_read, *inspect.signature(getattr(Buffer, read)).parameters)
        self.levels.append(GlobalCounters.mem_used)
        if self.recorder is not None:
            with watching("launches and their memory") as changes:
                watch_launches(changes, tensor_module, self)
                watch_captures(changes, self.on_captured)
                watch_replays(changes, self.on_call, self.on_replay)

    # *** memory

    def on_allocate(self, allocate: Callable[..., Any], buffer: Any, *args: Any, **options: Any) -> Any:
        made = allocate(buffer, *args, **options)
        tick, size = len(self.levels), self._counters.mem_used - self.levels[-1]
        self.levels.append(self._counters.mem_used)
        # the memory of a view is its base's
        if self.recorder is not None and buffer.base is buffer and size > 0:
            is_data = bool(args) or any(value is not None for value in options.values())
            what = size, buffer.device, name_dtype(buffer.dtype), find_user_line()
            self._alive[id(buffer)] = value = StoredValue(ref(buffer), *what, is_data, tick)
            self.values.append(value)
        return made

    def on_free(self, free: Callable[..., Any], buffer: Any) -> Any:
        result = free(buffer)
        # external memory is never subtracted in 0.12
        if self._counters.mem_used < self.levels[-1] and (known := self._alive.pop(id(buffer), None)) is not None:
            known.end = len(self.levels)
        self.levels.append(self._counters.mem_used)
        return result

    def on_read(self, read: Callable[..., Any], buffer: Any, *args: Any, **options: Any) -> Any:
        result = read(buffer, *args, **options)
        for known, _ in self._list_parts(buffer):
            known.reads[len(self.levels)] = find_user_line()
            self.levels.append(self.levels[-1])
        return result

    def _list_parts(self, buffer: Any) -> Iterable[tuple[StoredValue, Any]]:
        """Yields each counted Buffer of an argument, on each device, with the Buffer or view that is used."""
        for part in () if buffer is None else getattr(buffer, "bufs", [buffer]):
            if (known := self._alive.get(id(part.base))) is not None:
                known.used_as_view.add(part.base is not part)
                yield known, part

    def _list_uses(self, arguments: Iterable[Any]) -> list[Use]:
        """Returns the uses of a launch, which writes its first argument."""
        found = ((slot == 0, *pair) for slot, one in enumerate(arguments) for pair in self._list_parts(one))
        return [Use(known, writes, part.offset, part.nbytes, name_dtype(part.dtype)) for writes, known, part in found]

    def _add(self, line: str | None, place: Place | None, uses: Sequence[Use], is_repeated: bool = False) -> None:
        self.launches.append(MemoryLaunch(len(self.launches), len(self.levels), line, place, uses, is_repeated))
        self.levels.append(self.levels[-1])

    # *** the launches of schedules

    def begins(self, steps: Sequence[PlannedLaunch]) -> None:
        self._places = self._find_places([step.ast for step in steps])
        schedule = next((place[0] for place in self._places if place is not None), None)
        self._running = MemoryPart("", find_user_line(), len(self.levels), len(self.levels), schedule)
        if schedule is not None:
            self.parts.append(self._running)

    def before(self, index: int, buffers: Sequence[Any]) -> None: ...

    def fails(self, index: int) -> None: ...

    def after(self, index: int, buffers: Sequence[Any], uops: Sequence[Any]) -> None:
        self._add(self._running.line, self._places[index], self._list_uses(buffers))
        self._running.end = len(self.levels)

    def _find_places(self, asts: Sequence[Any]) -> list[Place | None]:
        """Returns places of launches that run or are captured, in schedules since the last call; None: unknown."""
        assert self.recorder is not None, "launches are matched with the recorded schedules"
        new = enumerate(self.recorder.schedules[self._schedules :], self._schedules)
        passes = [(number, one.passed) for number, one in new if one.passed is not None]
        self._schedules = len(self.recorder.schedules)
        kernels = ((number, i, kernel) for number, passed in passes for i, kernel in enumerate(passed.kernels))
        known = [(kernel.ast if kernel.is_compute else None, (number, i)) for number, i, kernel in kernels]
        places = match_launches(list(map(_find_kernel, asts)), known)
        if self._capturing is not None:
            self._capturing += zip(asts, places, strict=True)
        return places

    # *** TinyJit

    def on_call(self, call: Callable[..., Any], tiny: Any, *args: Any, **options: Any) -> Any:
        name, code = getattr(tiny.fxn, "__qualname__", "TinyJit"), getattr(tiny.fxn, "__code__", None)
        line = find_user_line()
        if code is not None:
            line = f"{find_user_file(code.co_filename) or code.co_filename}:{code.co_firstlineno}"
        part = MemoryPart(name_function(name), line, len(self.levels), 0, call=min(tiny.cnt, 2))
        self._capturing, outer = None if tiny.captured is not None else [], self._capturing
        try:
            result = call(tiny, *args, **options)
            if self._capturing is not None and tiny.captured is not None:
                self._captured.setdefault(tiny.captured, self._capturing)
        finally:
            self._capturing, part.end = outer, len(self.levels)
            self.parts.append(part)
        return result

    def on_captured(self, keep: Callable[..., Any], tiny: Any, linear: Any, *args: Any, **options: Any) -> Any:
        self._find_places([call.src[0] for call in linear.src])
        return keep(tiny, linear, *args, **options)

    def on_replay(self, replay: Callable[..., Any], captured: Any, given: Any, *args: Any, **options: Any) -> Any:
        result = replay(captured, given, *args, **options)
        # 0.13 replays before the capturing call returns
        known, line = self._captured.setdefault(captured, self._capturing or []), find_user_line()
        is_repeated = captured in self._replayed
        if not is_repeated:
            launched = list(list_captured(captured))
            places = _place_captured([ast for ast, _ in launched], known)
            self._replayed[captured] = [
                (place, used, None if any(isinstance(one, int) for one in used) else self._list_uses(used))
                for place, (_, used) in zip(places, launched, strict=True)
            ]
        for place, arguments, uses in self._replayed[captured]:
            if uses is None:
                buffers = (given[one] if isinstance(one, int) else one for one in arguments)
                uses = self._list_uses(getattr(one, "buffer", one) for one in buffers)
            self._add(line, place, uses, is_repeated)
        return result


def match_launches(asts: Sequence[Any], known: Iterable[tuple[Any, Place | None]]) -> list[Place | None]:
    """Returns the place of each launch: launches of an AST run in the order of its places, each on all its devices."""
    by_ast: dict[Any, list[Place | None]] = defaultdict(list)
    for ast, place in known:
        by_ast[ast].append(place)
    counts, turns, found = Counter(asts), Counter[Any](), list[Place | None]()
    for ast in asts:
        places = by_ast.get(ast) or [None]
        found.append(places[turns[ast] * len(places) // max(counts[ast], len(places))])
        turns[ast] += 1
    return found


def _find_kernel(ast: Any) -> Any:
    """Returns the AST of a kernel; None for a copy: 0.14 has another COPY when it runs."""
    return ast if ast.op.name in {"SINK", "PROGRAM"} else None


def _place_captured(asts: Sequence[Any], known: Iterable[tuple[Any, Place | None]]) -> list[Place | None]:
    """Returns the place of each launch of a replay, from the launches that TinyJit captured."""
    placed = [(_find_kernel(ast), place) for ast, place in known if ast.op.name != "BUFFER_VIEW"]
    if len(placed) == len(asts):
        return [place for _, place in placed]
    return match_launches(list(map(_find_kernel, asts)), placed)  # prune=True leaves out some
