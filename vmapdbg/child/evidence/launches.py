"""Keeps what the launches of a schedule read and wrote, while it runs. Runs in the child.

A buffer is copied once after each write. What a launch reads is known from the start of the schedule or from the launch
that wrote it, unless another launch has written to this memory since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from vmapdbg.child.evidence.folder import BlobsFull, EvidenceFolder
from vmapdbg.child.evidence.graphs import KernelRun, Version
from vmapdbg.child.evidence.live_tensors import LiveTensors, do_overlap, find_part, list_parts
from vmapdbg.child.evidence.loop_packer import find_stores, pack_kernel
from vmapdbg.child.evidence.packer import CannotPack
from vmapdbg.child.listen.launches import PlannedLaunch
from vmapdbg.child.memory import name_dtype
from vmapdbg.child.program.emulator import keep_program
from vmapdbg.reference.graph import Kernel

UOp = Any

MOST_OPS = 50_000
"""A longer linear program is not kept."""

# last UOp of a linear program -> values of its variables -> the packed program, or why there is none: a program is
# packed once, however often it is launched
_programs: WeakKeyDictionary[UOp, dict[tuple[tuple[str, int], ...], bytes | str]] = WeakKeyDictionary()


@dataclass(frozen=True)
class KeptWrite:
    """What a launch wrote: the names of the contents, one for each device, the dtype, and the size on one device."""

    names: tuple[str, ...]
    dtype: str
    size: int


@dataclass(eq=False)
class PartOfMemory:
    """The contents that a part of memory is known to have held, in order. `is_known`: it holds the last of them now."""

    versions: list[Version] = field(default_factory=list[Version])
    is_known: bool = False

    @property
    def held(self) -> int | None:
        """The position of its current contents, None if unknown."""
        return len(self.versions) - 1 if self.is_known else None


class KnownMemory:
    """The names of what parts of memory hold, as far as known. It keeps no memory alive."""

    def __init__(self) -> None:
        # buffer that has its memory -> (first byte, end) of parts of it
        self._parts: WeakKeyDictionary[Any, dict[tuple[int, int], PartOfMemory]] = WeakKeyDictionary()

    def find(self, buffer: Any) -> PartOfMemory:
        return self._parts.setdefault(buffer.base, {}).setdefault(find_part(buffer), PartOfMemory())

    def note(self, buffer: Any, name: str, launch: int | None = None) -> None:
        """Notes the contents of a buffer, and the launch that wrote them."""
        part = self.find(buffer)
        part.versions.append(Version(name, launch))
        part.is_known = True

    def forget(self, buffer: Any) -> None:
        """Notes that a buffer is written to."""
        written = find_part(buffer)
        for place, part in self._parts.get(buffer.base, {}).items():
            if do_overlap(written, place):
                part.is_known = False


class LaunchKeeper:
    """Keeps the launches of one schedule. `is_full`: there was no room for everything. With `holds` it keeps the
    buffers that they write alive, in `outputs`."""

    def __init__(self, folder: EvidenceFolder):
        self.folder = folder
        self.steps: Sequence[PlannedLaunch] = ()
        self.written: dict[int, KeptWrite] = {}
        self.is_full = self.holds = False
        self.outputs: list[Any] = []
        # the launch that raised
        self.failed: int | None = None
        # launch -> what its arguments held before it, None for memory without contents
        self._arguments: dict[int, tuple[str | None, ...]] = {}
        # launch -> its linear program
        self._programs: dict[int, Sequence[UOp]] = {}
        # launch -> the memory of each argument, and the number of its version
        self._read: dict[int, tuple[tuple[PartOfMemory, int | None], ...]] = {}
        self._memory = KnownMemory()
        # base buffer -> written parts, each with its launch
        self._writers: WeakKeyDictionary[Any, list[tuple[tuple[int, int], int]]] = WeakKeyDictionary()
        self.live: LiveTensors | None = None

    def note_inputs(self, inputs: Iterable[tuple[Any, Sequence[str]]]) -> None:
        """Notes the contents of buffers before anything runs."""
        for buffer, names in inputs:
            for one, name in zip(getattr(buffer, "bufs", [buffer]), names, strict=True):
                self._memory.note(one, name)

    def begins(self, steps: Sequence[PlannedLaunch]) -> None:
        """Notes the launches of the schedule, in order."""
        self.steps = steps

    def before(self, index: int, buffers: Sequence[Any]) -> None:
        """A launch is about to run."""
        # a search for the best kernel launches other programs
        if index >= len(self.steps) or self.is_full:
            return
        try:
            self._look_at_live(index, buffers)
            if _is_sharded(buffers):
                return
            self._arguments[index] = tuple(map(self._keep, buffers))
        except BlobsFull:
            self.is_full = True
            return
        parts = map(self._memory.find, buffers)
        self._read[index] = tuple((part, part.held) for part in parts)

    def after(self, index: int, buffers: Sequence[Any], uops: Sequence[UOp]) -> None:
        """Keeps what a launch wrote, before tinygrad gives its memory to another buffer. `uops` is its linear
        program."""
        for number in self._find_written(index, buffers):
            self._note_write(buffers[number], index)
        if self.holds:
            self.outputs += buffers[:1]
        if index >= len(self.steps) or self.is_full or not buffers or None in buffers:
            return
        if self._is_repeated(index, buffers):
            return
        written = list_parts(buffers[0])
        try:
            names = tuple(map(self.folder.keep_buffer, written))
        except BlobsFull:
            self.is_full = True
            return
        for one, name in zip(written, names, strict=True):
            self._memory.note(one, name, index)
        self._programs[index] = uops
        self.written[index] = KeptWrite(names, name_dtype(written[0].dtype), written[0].size)

    def fails(self, index: int) -> None:
        """Notes that a launch raises, or its compilation."""
        self.failed = index

    def _keep(self, buffer: Any) -> str | None:
        part = self._memory.find(buffer)
        if part.is_known:
            return part.versions[-1].name
        if not buffer.is_allocated():
            return None
        name = self.folder.keep_buffer(buffer)
        self._memory.note(buffer, name)
        return name

    def _look_at_live(self, index: int, buffers: Sequence[Any]) -> None:
        if self.live is None or not any(map(self.live.has, buffers)):
            return
        for number in self._find_written(index, buffers):
            for one in list_parts(buffers[number]):
                self.live.before_write(one)

    def _note_write(self, buffer: Any, launch: int) -> None:
        for one in list_parts(buffer):
            self._writers.setdefault(one.base, []).append((find_part(one), launch))
            self._memory.forget(one)

    def is_written(self, buffer: Any) -> bool | None:
        """Returns whether a launch wrote to a buffer; None if launches were not watched."""
        if not self.steps:
            return None
        return any(one.base in self._writers for one in list_parts(buffer))

    def find_writer(self, buffer: Any) -> int | None:
        """Returns the last launch that wrote to memory of a buffer, None if no launch is known."""
        launches = [
            launch
            for one in list_parts(buffer)
            for part, launch in self._writers.get(one.base, ())
            if do_overlap(part, find_part(one))
        ]
        return max(launches, default=None)

    def _find_written(self, index: int, buffers: Sequence[Any]) -> list[int]:
        """Returns the numbers of the arguments that a launch writes."""
        ast = self.steps[index].ast
        if ast.op.name != "SINK":
            return [0]
        try:
            targets = [store.src[0].src[0] for store in find_stores(ast)]
        except CannotPack:
            return list(range(len(buffers)))
        slots = [getattr(target.arg, "slot", target.arg) for target in targets]
        return [slot for slot in slots if isinstance(slot, int) and slot < len(buffers)]

    def _is_repeated(self, index: int, buffers: Sequence[Any]) -> bool:
        # the next launch of the same kernel writes the same buffer: the steps of an OUTER range
        if index + 1 >= len(self.steps):
            return False
        step, following = self.steps[index], self.steps[index + 1]
        return step.is_repeated and following.is_repeated and step.ast is following.ast

    # *** what a kernel is, and what it read

    def pack_run(self, index: int, kernels: list[Kernel], known: dict[Any, int]) -> KernelRun:
        """Returns the run of a launch. Adds its kernel to `kernels`, and its number there to `known`."""
        step = self.steps[index]
        arguments = self._arguments.get(index)
        if step.ast.op.name != "SINK":
            return KernelRun(refused="it is a copy")
        if step.is_repeated:
            return KernelRun(refused="it is launched once for each step of a loop")
        if arguments is None:
            return KernelRun(refused="what it reads was not kept")
        key = step.ast, tuple(sorted(step.variables.items()))
        refused = None
        if key not in known:
            try:
                kernel = pack_kernel(step.ast, step.variables)
                known[key] = len(kernels)
                kernels.append(kernel)
            except CannotPack as error:
                refused = str(error)
        linear, linear_refused = keep_linear(self.folder, self._programs.get(index, ()), step.variables)
        read = self._read[index]
        versions = tuple(tuple(part.versions) for part, _ in read)
        held = tuple(position for _, position in read)
        return KernelRun(known.get(key), arguments, refused, linear, linear_refused, versions, held)


def _is_sharded(buffers: Sequence[Any]) -> bool:
    return any(buffer is None or hasattr(buffer, "bufs") for buffer in buffers)


def keep_linear(
    folder: EvidenceFolder, uops: Sequence[UOp], variables: Mapping[str, int]
) -> tuple[str | None, str | None]:
    """Returns the name of a linear program in the folder; or None, and why it is not there."""
    if not uops:
        return None, "its linear program was not kept"
    known = _programs.setdefault(uops[-1], {})
    key = tuple(sorted(variables.items()))
    if key not in known:
        known[key] = _pack_linear(uops, variables)
    data = known[key]
    if isinstance(data, str):
        return None, data
    try:
        return folder.keep_data(data), None
    except BlobsFull:
        return None, "there was no room for its linear program"


def _pack_linear(uops: Sequence[UOp], variables: Mapping[str, int]) -> bytes | str:
    if len(uops) > MOST_OPS:
        return f"its linear program is too long to be kept: {len(uops):,} ops"
    try:
        return keep_program(uops, variables)
    except Exception as error:  # an op of the snippet's own, which no other process knows
        return f"its linear program cannot be kept: {type(error).__name__}: {error}"
