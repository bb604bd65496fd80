"""Keeps what the launches of a schedule read and wrote, while it runs. Runs in the child.

A buffer is read once for each time that it is written: what a launch reads is known from the start of the schedule, or
from the launch that wrote it, unless another one has written to that memory since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from vmapdbg.child.adapters.launches import Step
from vmapdbg.child.evidence.folder import BlobsFull, EvidenceFolder
from vmapdbg.child.evidence.graphs import KernelRun
from vmapdbg.child.evidence.kernel_packer import find_stores, pack_kernel
from vmapdbg.child.evidence.linear_programs import keep_linear
from vmapdbg.child.evidence.packing import CannotPack
from vmapdbg.child.memory import name_dtype
from vmapdbg.reference.kernel import Kernel

UOp = Any


class KnownMemory:
    """What parts of memory hold, by the names of their contents, as far as that is known. Holds no memory itself."""

    def __init__(self) -> None:
        # buffer that has its memory -> (first byte, end) of parts of it -> name
        self._names: WeakKeyDictionary[Any, dict[tuple[int, int], str]] = WeakKeyDictionary()

    def find(self, buffer: Any) -> str | None:
        return self._names.get(buffer.base, {}).get(_find_part(buffer))

    def note(self, buffer: Any, name: str) -> None:
        """A buffer has contents of this name."""
        self._names.setdefault(buffer.base, {})[_find_part(buffer)] = name

    def forget(self, buffer: Any) -> None:
        """A buffer is written to."""
        start, end = _find_part(buffer)
        known = self._names.get(buffer.base, {})
        for part in [part for part in known if part[0] < end and start < part[1]]:
            del known[part]


def _find_part(buffer: Any) -> tuple[int, int]:
    return buffer.offset, buffer.offset + buffer.nbytes


class LaunchKeeper:
    """Keeps the launches of one schedule. `is_full`: there was no room for all of it. With `holds` it keeps hold of the
    buffers that they write, in `outputs`."""

    def __init__(self, folder: EvidenceFolder):
        self.folder = folder
        self.steps: Sequence[Step] = ()
        # launch -> contents, dtype, size of what it wrote
        self.written: dict[int, tuple[str, str, int]] = {}
        self.is_full = self.holds = False
        self.outputs: list[Any] = []
        # the launch that raised
        self.failed: int | None = None
        # launch -> what its arguments held before it, None for what has no contents yet
        self._arguments: dict[int, tuple[str | None, ...]] = {}
        # launch -> its linear program
        self._programs: dict[int, Sequence[UOp]] = {}
        self._memory = KnownMemory()
        # buffers whose memory was written
        self._touched: WeakSet[Any] = WeakSet()

    def note_inputs(self, inputs: Iterable[tuple[Any, Sequence[str]]]) -> None:
        """Nothing has run: these are the names of the contents of buffers."""
        for buffer, names in inputs:
            for one, name in zip(getattr(buffer, "bufs", [buffer]), names, strict=True):
                self._memory.note(one, name)

    def begins(self, steps: Sequence[Step]) -> None:
        """The launches of the schedule, in order."""
        self.steps = steps

    def before(self, index: int, buffers: Sequence[Any]) -> None:
        """A launch is about to run."""
        # a search for the best kernel launches others
        if index >= len(self.steps) or self.is_full or _is_sharded(buffers):
            return
        try:
            self._arguments[index] = tuple(map(self._keep, buffers))
        except BlobsFull:
            self.is_full = True

    def after(self, index: int, buffers: Sequence[Any], uops: Sequence[UOp]) -> None:
        """A launch ran just now, with this linear program: what it wrote is kept before its memory goes to another
        buffer."""
        for number in self._find_written(index, buffers):
            self._note_write(buffers[number])
        if self.holds:
            self.outputs += buffers[:1]
        if index >= len(self.steps) or self.is_full or _is_sharded(buffers) or not buffers:
            return
        if self._is_repeated(index, buffers):
            return
        written = buffers[0]
        try:
            name = self.folder.keep_buffer(written)
        except BlobsFull:
            self.is_full = True
            return
        self._memory.note(written, name)
        self._programs[index] = uops
        self.written[index] = (name, name_dtype(written.dtype), written.size)

    def fails(self, index: int) -> None:
        """A launch raises, or what compiles it."""
        self.failed = index

    def _keep(self, buffer: Any) -> str | None:
        known = self._memory.find(buffer)
        if known is None and buffer.is_allocated():
            known = self.folder.keep_buffer(buffer)
            self._memory.note(buffer, known)
        return known

    def _note_write(self, buffer: Any) -> None:
        for one in getattr(buffer, "bufs", [buffer]):
            self._touched.add(one.base)
            self._memory.forget(one)

    def is_written(self, buffer: Any) -> bool | None:
        """Tells whether a launch wrote to a buffer; None where launches were not looked at."""
        if not self.steps:
            return None
        return any(one.base in self._touched for one in getattr(buffer, "bufs", [buffer]))

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
        """Returns the run of a launch, its kernel added to `kernels`; `known` has those that are there."""
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
        return KernelRun(known.get(key), arguments, refused, linear, linear_refused)


def _is_sharded(buffers: Sequence[Any]) -> bool:
    return any(buffer is None or hasattr(buffer, "bufs") for buffer in buffers)
