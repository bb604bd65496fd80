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
from vmapdbg.child.program.programs import keep_program
from vmapdbg.reference.graph import ScheduledKernel

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
    """The contents that a part of memory is known to have held, in order, and the last launch that wrote to it.
    `is_known`: it holds the last of the contents now."""

    versions: list[Version] = field(default_factory=list[Version])
    is_known: bool = False
    writer: int | None = None

    def note(self, name: str, launch: int | None = None) -> None:
        """Notes its contents now, and the launch that wrote them."""
        self.versions.append(Version(name, launch))
        self.is_known = True


class KnownMemory:
    """What is known of parts of memory. It keeps no memory alive."""

    def __init__(self) -> None:
        # buffer that has its memory -> (first byte, end) of parts of it
        self._parts: WeakKeyDictionary[Any, dict[tuple[int, int], PartOfMemory]] = WeakKeyDictionary()

    def find(self, buffer: Any) -> PartOfMemory:
        return self._parts.setdefault(buffer.base, {}).setdefault(find_part(buffer), PartOfMemory())

    def find_overlapping(self, buffer: Any) -> list[PartOfMemory]:
        known = self._parts.get(buffer.base, {})
        return [part for place, part in known.items() if do_overlap(find_part(buffer), place)]

    def note_write(self, buffer: Any, launch: int) -> None:
        """Notes that a launch writes to a buffer."""
        for part in self.find_overlapping(buffer):
            part.is_known = False
        self.find(buffer).writer = launch


class LaunchKeeper:
    """Keeps the launches of one schedule. `is_full`: there was no room for everything. With `holds` it keeps the
    buffers that they write alive, in `outputs`. `failed` is the launch that raised."""

    def __init__(self, folder: EvidenceFolder):
        self.folder = folder
        self.steps: Sequence[PlannedLaunch] = ()
        self.written: dict[int, KeptWrite] = {}
        self.is_full = self.holds = False
        self.outputs: list[Any] = []
        self.failed: int | None = None
        self.live: LiveTensors | None = None
        # launch -> its linear program
        self._programs: dict[int, Sequence[UOp]] = {}
        # launch -> for each argument: what it held (None for memory without contents), its memory, and the number of
        # its version
        self._read: dict[int, list[tuple[str | None, PartOfMemory, int | None]]] = {}
        self._memory = KnownMemory()

    def note_inputs(self, inputs: Iterable[tuple[Any, Sequence[str]]]) -> None:
        """Notes the contents of buffers before anything runs."""
        for buffer, names in inputs:
            for one, name in zip(list_parts(buffer), names, strict=True):
                self._memory.find(one).note(name)

    def before(self, index: int, buffers: Sequence[Any]) -> None:
        """A launch is about to run."""
        # a search for the best kernel launches other programs
        if index >= len(self.steps) or self.is_full:
            return
        try:
            if self.live is not None and any(map(self.live.has, buffers)):
                for number in self._find_written(index, buffers):
                    for one in list_parts(buffers[number]):
                        self.live.before_write(one)
            if not any(buffer is None or hasattr(buffer, "bufs") for buffer in buffers):
                self._read[index] = list(map(self._keep, buffers))
        except BlobsFull:
            self.is_full = True

    def _keep(self, buffer: Any) -> tuple[str | None, PartOfMemory, int | None]:
        part = self._memory.find(buffer)
        if not part.is_known:
            if not buffer.is_allocated():
                return None, part, None
            part.note(self.folder.keep_buffer(buffer))
        return part.versions[-1].name, part, len(part.versions) - 1

    def after(self, index: int, buffers: Sequence[Any], uops: Sequence[UOp]) -> None:
        """Keeps what a launch wrote, before tinygrad gives its memory to another buffer. `uops` is its linear
        program."""
        for number in self._find_written(index, buffers):
            for one in list_parts(buffers[number]):
                self._memory.note_write(one, index)
        if self.holds:
            self.outputs += buffers[:1]
        if index >= len(self.steps) or self.is_full or not buffers or None in buffers:
            return
        if self._is_repeated(index):
            return
        written = list_parts(buffers[0])
        try:
            names = tuple(map(self.folder.keep_buffer, written))
        except BlobsFull:
            self.is_full = True
            return
        for one, name in zip(written, names, strict=True):
            self._memory.find(one).note(name, index)
        self._programs[index] = uops
        self.written[index] = KeptWrite(names, name_dtype(written[0].dtype), written[0].size)

    def is_written(self, buffer: Any) -> bool | None:
        """Returns whether a launch wrote to a buffer; None if launches were not watched."""
        if not self.steps:
            return None
        return self.find_writer(buffer) is not None

    def find_writer(self, buffer: Any) -> int | None:
        """Returns the last launch that wrote to memory of a buffer, None if no launch is known."""
        parts = [part for one in list_parts(buffer) for part in self._memory.find_overlapping(one)]
        return max((part.writer for part in parts if part.writer is not None), default=None)

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

    def _is_repeated(self, index: int) -> bool:
        # the next launch of the same kernel writes the same buffer: the steps of an OUTER range
        if index + 1 >= len(self.steps):
            return False
        step, following = self.steps[index], self.steps[index + 1]
        return step.is_repeated and following.is_repeated and step.ast is following.ast

    # *** what a kernel is, and what it read

    def pack_run(self, index: int, kernels: list[ScheduledKernel], known: dict[Any, int]) -> KernelRun:
        """Returns the run of a launch. Adds its kernel to `kernels`, and its number there to `known`."""
        step, read = self.steps[index], self._read.get(index)
        if step.ast.op.name != "SINK":
            return KernelRun(refused="it is a copy")
        if step.is_repeated:
            return KernelRun(refused="it is launched once for each step of a loop")
        if read is None:
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
        return KernelRun(
            kernel=known.get(key),
            arguments=tuple(name for name, _, _ in read),
            refused=refused,
            linear=linear,
            linear_refused=linear_refused,
            versions=tuple(tuple(part.versions) for _, part, _ in read),
            held=tuple(position for _, _, position in read),
        )


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
