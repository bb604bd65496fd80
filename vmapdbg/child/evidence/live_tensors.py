"""Realized Tensors that a schedule does not use: their contents must not change. Runs in the child.

Only memory that a launch would overwrite is read, so a right schedule costs nothing. A kernel that writes outside of
its buffers is not noticed.
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
    """A Tensor and its BUFFER, held weakly. When a launch writes to its memory, `before` gets the names of what it held
    until then, one for each device."""

    tensor: weakref.ref[Any]
    memory: weakref.ref[Any]
    before: tuple[str, ...] | None = None

    def find_memory(self) -> UOp | None:
        """Returns its BUFFER, None if the Tensor is gone or has another BUFFER."""
        tensor, memory = self.tensor(), self.memory()
        if tensor is None or memory is None or tensor.uop.base is not memory:
            return None
        return memory


class LiveTensors:
    """The Tensors outside of the graph of a schedule that is about to run."""

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
        """Returns whether a Tensor has memory of a buffer."""
        return any(one.base in self._by_base for one in list_parts(buffer) if one is not None)

    def before_write(self, buffer: Any) -> None:
        """Keeps what a launch is about to overwrite. Raises BlobsFull."""
        for live in self._by_base.get(buffer.base, ()):
            memory = live.find_memory()
            if memory is None or live.before is not None:
                continue
            parts = [find_part(one) for one in list_parts(memory.buffer) if one.base is buffer.base]
            if any(do_overlap(find_part(buffer), part) for part in parts):
                live.before = self.folder.keep_all(memory.buffer)

    def find_changed(self) -> Iterator[tuple[UOp, tuple[str, ...], tuple[str, ...]]]:
        """Yields each changed BUFFER once, with the names of its contents before and now. Raises BlobsFull."""
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
    """Yields all live Tensors."""
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
    """Returns whether two parts of the same memory have a byte in common."""
    return one[0] < other[1] and other[0] < one[1]
