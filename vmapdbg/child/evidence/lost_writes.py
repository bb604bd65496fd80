"""Writes that the snippet asks for and that no schedule has: on tinygrad 0.12 an assign to a part of a tensor only runs
where the tensor that it returns does. From 0.13 on a write is a STORE, and all Tensors that look at the buffer come
after it; in 0.13 those that look through a bitcast do not. Runs in the child.

A write is lost for good when no Tensor has it any more and none of its kernels ran; that is told where a later schedule
reads the buffer without it. Nothing is told of writes to a value that has no buffer yet.
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
    """A write that was asked for: the BUFFER it goes to (held weakly, as the Tensor of what it returns is), and what is
    told of it if it is lost."""

    buffer: weakref.ref[Any]
    tensor: weakref.ref[Any]
    told: LostWrite


class WriteWatcher:
    """Knows the writes that are asked for and not scheduled yet."""

    def __init__(self, note_assign: Callable[[UOp], None] = lambda u: None) -> None:
        """`note_assign` is told what each assign makes of its tensor."""
        self.note_assign = note_assign
        self._pending: list[_Write] = []
        self._module: Any = None

    def declare(self, changes: Any, tensor_module: ModuleType) -> None:
        """Has `Tensor.assign` wrapped."""
        self._module = tensor_module
        if hasattr(tensor_module, "all_tensors"):
            changes.wrap(self._module.Tensor, "assign", self.on_assign, "self", "x")

    def on_assign(self, assign: Callable[..., Any], tensor: Any, value: Any) -> Any:
        target = tensor.uop
        result = assign(tensor, value)
        self.note_assign(result.uop)
        # where other Tensors come after the write, too, it is not this one's alone: it is not lost with it
        is_own = result.uop.op.name in {"ASSIGN", "AFTER"} and result.uop.src[0] is target
        buffer = find_buffer(target)
        if is_own and buffer is not None:
            shape = tuple(int(n) for n in target.shape if isinstance(n, int))
            told = LostWrite(find_user_line(), shape, math.prod(buffer.shape), name_dtype(target.dtype))
            self._pending.append(_Write(weakref.ref(buffer), weakref.ref(result), told))
        return result

    def find_lost(self, sink: UOp) -> list[LostWrite]:
        """Returns the writes that are lost and that the graph of a schedule would need: it reads their BUFFERs."""
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
        return [write.told for write in lost]

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
    """Returns the write that a value comes after at last, None where it comes after none."""
    while u.op.name == "RESHAPE":
        u = u.src[0]
    if u.op.name == "AFTER":
        u = u.src[-1]
    return u if u.op.name in _WRITES else None


def find_buffer(view: UOp) -> UOp | None:
    """Returns the BUFFER that a view looks at, None where it looks at something else."""
    while view.op.name in _VIEWS:
        view = view.src[0]
    return view if view.op.name == "BUFFER" else None
