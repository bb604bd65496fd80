"""Writes that the snippet asks for and that no schedule has: on tinygrad 0.12 an assign to a part of a tensor only runs
where the tensor that it returns does. Runs in the child.

A write is lost for good when no Tensor has it any more and none of its kernels ran; that is told where a later schedule
reads the buffer without it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from vmapdbg.check.result import LostWrite
from vmapdbg.child.memory import name_dtype
from vmapdbg.child.record.lines import find_user_line

UOp = Any


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

    def __init__(self) -> None:
        self._pending: list[_Write] = []
        self._module: Any = None

    def declare(self, changes: Any, tensor_module: ModuleType) -> None:
        """Has `Tensor.assign` wrapped where a write is an ASSIGN: in 0.12."""
        from tinygrad.uop import Ops

        self._module = tensor_module
        if hasattr(Ops, "ASSIGN") and hasattr(tensor_module, "all_tensors"):
            changes.wrap(self._module.Tensor, "assign", self.on_assign, "self", "x")

    def on_assign(self, assign: Callable[..., Any], tensor: Any, value: Any) -> Any:
        result = assign(tensor, value)
        write = result.uop
        if write.op.name == "ASSIGN" and (buffer := write.src[0].base).op.name == "BUFFER":
            size = tuple(int(n) for n in write.shape if isinstance(n, int))
            told = LostWrite(find_user_line(), size, int(buffer.arg), name_dtype(write.dtype))
            self._pending.append(_Write(weakref.ref(buffer), weakref.ref(result), told))
        return result

    def find_lost(self, sink: UOp) -> list[LostWrite]:
        """Returns the writes that are lost and that the graph of a schedule would need: it reads their BUFFERs."""
        if not self._pending:
            return []
        nodes = sink.toposort()
        written = {u.src[0].base for u in nodes if u.op.name == "ASSIGN"}
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
                yield from (u.src[0].base for u in tensor.uop.toposort() if u.op.name == "ASSIGN")
