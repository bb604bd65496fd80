"""Tensors that are realized and that a schedule has nothing to do with: what they hold must not change. Runs in the
child.

Only what a launch would write over is read, so that it costs nothing where all is right. Memory is known by the Buffer
that has it: a kernel that writes beyond its buffer is not seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vmapdbg.child.evidence.folder import EvidenceFolder

UOp = Any


@dataclass(eq=False)
class LiveTensor:
    """A Tensor with the BUFFER that it has, held weakly. `before` is set once a launch writes to its memory: the names
    of what it held until then, one for each device."""

    tensor: weakref.ref[Any]
    memory: weakref.ref[Any]
    before: tuple[str, ...] | None = None

    def find_memory(self) -> UOp | None:
        """Returns its BUFFER, None where the Tensor is gone or has another one."""
        tensor, memory = self.tensor(), self.memory()
        if tensor is None or memory is None or tensor.uop.base is not memory:
            return None
        return memory


class LiveTensors:
    """Those that live when a schedule is about to run, and that its graph does not have."""

    def __init__(self, folder: EvidenceFolder, used: Container[UOp]):
        self.folder = folder
        # buffer that has its memory -> Tensors
        self._by_base: weakref.WeakKeyDictionary[Any, list[LiveTensor]] = weakref.WeakKeyDictionary()
        for tensor in list_tensors():
            memory = tensor.uop.base
            if memory.op.name != "BUFFER" or memory in used or not memory.is_realized:
                continue
            live = LiveTensor(weakref.ref(tensor), weakref.ref(memory))
            for one in list_parts(memory.buffer):
                self._by_base.setdefault(one.base, []).append(live)

    def has(self, buffer: Any) -> bool:
        """Tells whether a buffer has memory that is also that of a Tensor."""
        return any(one.base in self._by_base for one in list_parts(buffer) if one is not None)

    def before_write(self, buffer: Any) -> None:
        """A launch is about to write to a buffer. Raises BlobsFull."""
        for live in self._by_base.get(buffer.base, ()):
            memory = live.find_memory()
            if memory is None or live.before is not None:
                continue
            parts = [find_part(one) for one in list_parts(memory.buffer) if one.base is buffer.base]
            if any(do_overlap(find_part(buffer), part) for part in parts):
                live.before = self.folder.keep_all(memory.buffer)

    def find_changed(self) -> Iterator[tuple[UOp, tuple[str, ...], tuple[str, ...]]]:
        """Yields the BUFFER of each Tensor that has changed, each once, with the names of what it held before, and of
        what it holds now. Raises BlobsFull."""
        found: set[UOp] = set()
        for tensors in list(self._by_base.values()):
            for live in tensors:
                memory = live.find_memory()
                if memory is None or live.before is None or memory in found:
                    continue
                found.add(memory)
                now = self.folder.keep_all(memory.buffer)
                if now != live.before:
                    yield memory, live.before, now


def list_tensors() -> Iterator[Any]:
    """Yields the Tensors that live."""
    from tinygrad import tensor

    for reference in list(getattr(tensor, "all_tensors", ())):
        found = reference()
        if found is not None:
            yield found


def list_parts(buffer: Any) -> Sequence[Any]:
    """Returns the buffers of a buffer, one for each device."""
    return getattr(buffer, "bufs", [buffer])


def find_part(buffer: Any) -> tuple[int, int]:
    """Returns the first byte of a buffer in its memory, and where it ends."""
    return buffer.offset, buffer.offset + buffer.nbytes


def do_overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Tells whether two parts of the same memory have a byte in common."""
    return one[0] < other[1] and other[0] < one[1]
