"""Finds writes that the snippet asks for and that no schedule has. Runs in the child.

On tinygrad 0.12 an assign to a part of a tensor only runs if the Tensor that it returns is realized. From 0.13 on a
write is a STORE, and all Tensors of the buffer come after it; in 0.13 Tensors that read through a bitcast do not.

A write is lost when no Tensor has it any more and none of its kernels ran. It is reported when a later schedule reads
the buffer without it. Writes to a value without a buffer are not tracked.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from vmapdbg.check.result import LostWrite
from vmapdbg.child.listen.user_lines import find_user_line
from vmapdbg.child.memory import name_dtype

UOp = Any
_WRITES = {"ASSIGN", "STORE"}
_VIEWS = {"RESHAPE", "EXPAND", "PERMUTE", "PAD", "SHRINK", "FLIP", "BITCAST", "DETACH", "AFTER", "ASSIGN"}


# compared by identity: a Tensor that is alive would be compared element by element
@dataclass(frozen=True, eq=False)
class _Write:
    """A requested write: its BUFFER and the Tensor that the assign returned, both held weakly, and the report if it is
    lost."""

    buffer: weakref.ref[Any]
    tensor: weakref.ref[Any]
    report: LostWrite


class WriteWatcher:
    """Knows the requested writes that are not scheduled yet."""

    def __init__(self, note_assign: Callable[[UOp], None] = lambda u: None) -> None:
        """`note_assign` gets the UOp that each assign returns."""
        self.note_assign = note_assign
        self._pending: list[_Write] = []
        self._module: Any = None

    def declare(self, changes: Any, tensor_module: ModuleType) -> None:
        """Wraps `Tensor.assign`."""
        self._module = tensor_module
        if hasattr(tensor_module, "all_tensors"):
            changes.wrap(self._module.Tensor, "assign", self.on_assign, "self", "x")

    def on_assign(self, assign: Callable[..., Any], tensor: Any, value: Any) -> Any:
        target = tensor.uop
        result = assign(tensor, value)
        self.note_assign(result.uop)
        # if other Tensors come after the write, too, it is not lost with this Tensor
        is_own = result.uop.op.name in {"ASSIGN", "AFTER"} and result.uop.src[0] is target
        buffer = find_buffer(target)
        if is_own and buffer is not None:
            shape = tuple(int(n) for n in target.shape if isinstance(n, int))
            report = LostWrite(find_user_line(), shape, math.prod(buffer.shape), name_dtype(target.dtype))
            self._pending.append(_Write(weakref.ref(buffer), weakref.ref(result), report))
        return result

    def find_lost(self, sink: UOp) -> list[LostWrite]:
        """Returns the lost writes to BUFFERs that the graph of a schedule reads."""
        if not self._pending:
            return []
        nodes = sink.toposort()
        written = set(list_written(nodes))
        self._pending = [write for write in self._pending if write.buffer() not in (None, *written)]
        lost = [write for write in self._pending if write.tensor() is None and write.buffer() in nodes]
        if lost:
            held = set(self._list_held())
            lost = [write for write in lost if write.buffer() not in held]
        self._pending = [write for write in self._pending if write not in lost]
        return [write.report for write in lost]

    def _list_held(self) -> Iterator[UOp]:
        """Yields the BUFFERs that some Tensor has a write to."""
        for reference in list(self._module.all_tensors):
            tensor = reference()
            if tensor is not None:
                yield from list_written(tensor.uop.toposort())


def list_written(nodes: Iterable[UOp]) -> Iterator[UOp]:
    """Yields the BUFFERs that a graph writes."""
    for u in nodes:
        if u.op.name in _WRITES and (buffer := find_buffer(u.src[0])) is not None:
            yield buffer


def find_write(u: UOp) -> UOp | None:
    """Returns the last write that a value comes after, None if there is no write."""
    while u.op.name == "RESHAPE":
        u = u.src[0]
    if u.op.name == "AFTER":
        u = u.src[-1]
    return u if u.op.name in _WRITES else None


def find_buffer(view: UOp) -> UOp | None:
    """Returns the BUFFER under a view, None if the view is over something else."""
    while view.op.name in _VIEWS:
        view = view.src[0]
    return view if view.op.name == "BUFFER" else None
