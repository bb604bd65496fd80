"""Watches calls of Tensor whose graphs do not say what was asked for. Runs in the child.

An item assignment, `x[index] = v`: what is outside of the index must stay as it is. tinygrad's `Tensor.__setitem__`
makes a graph of the call, which the reference computes as it is, so numpy reads the index again. An index is followed
if it consists of integers, slices, `None`, `...` and lists of integers: what a Tensor chooses is not known beforehand.

A gradient that tinygrad 0.12 cuts off at an ASSIGN: the gradient of what is assigned, or cloned, is zero. What computes
that zero is right; only the graph of the loss shows the fault.

A lost write: no Tensor has it any more, none of its kernels ran, and a later schedule reads the buffer. On tinygrad
0.12 an assign to a part of a tensor only runs if the Tensor that it returns is realized. From 0.13 on a write is a
STORE, and all Tensors of the buffer come after it; in 0.13 Tensors that read through a bitcast do not. Writes to a
value without a buffer are not tracked.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import dataclass
from types import EllipsisType, ModuleType
from typing import Any

from vmapdbg.check.result import CutGradient, LostWrite
from vmapdbg.child.listen.releases import SHARDED, buffer_under, find_under, list_writes
from vmapdbg.child.listen.user_lines import find_user_line
from vmapdbg.child.memory import name_dtype

UOp = Any
Owners = weakref.WeakKeyDictionary[UOp, list[weakref.ref[Any]]]
"""BUFFER -> the Tensors that show all of it."""
_LARGEST = 1 << 22
"""Item assignments to larger tensors are ignored, in elements."""
_WRITES = {"ASSIGN", "STORE"}


# compared by identity: it has weak references
@dataclass(frozen=True, eq=False)
class ChosenPart:
    """The write of an item assignment, held weakly, and which elements its index chooses, as the bytes of booleans for
    a tensor of this shape."""

    write: weakref.ref[Any]
    chosen: bytes
    shape: tuple[int, ...]


# compared by identity: a Tensor that is alive would be compared element by element
@dataclass(frozen=True, eq=False)
class _Write:
    """A requested write: its BUFFER, its UOp and the Tensor that the assign returned, all held weakly, and the report
    if it is lost."""

    buffer: weakref.ref[Any]
    write: weakref.ref[Any]
    tensor: weakref.ref[Any]
    report: LostWrite


# compared by identity, as above
@dataclass(frozen=True, eq=False)
class PendingTensor:
    """A Tensor, held weakly, that waits for a write at `line`: its graph, the BUFFER that it writes to, and whether the
    Tensor means this graph."""

    tensor: weakref.ref[Any]
    graph: UOp
    memory: UOp
    line: str | None
    is_meant: bool

    def find_memory(self) -> UOp | None:
        """Returns the BUFFER that the Tensor shows now, also if it is sharded; None if it is gone or still waits."""
        tensor = self.tensor()
        shown = None if tensor is None else find_under(tensor.uop, SHARDED | {"RESHAPE"})
        return shown if shown is not None and shown.op.name == "BUFFER" else None


class TensorCalls:
    """Collects the item assignments and the writes that are not scheduled yet, and the gradients that are cut off."""

    def __init__(self) -> None:
        self._parts: list[ChosenPart] = []
        self._writes: list[_Write] = []
        self._cut: list[CutGradient] = []
        # what the item assignment that runs chooses, and the shape of its tensor
        self._item: tuple[bytes, tuple[int, ...]] | None = None

    def declare(self, changes: Any, tensor_module: ModuleType) -> None:
        """Wraps `Tensor.assign` and `Tensor.__setitem__`; also `Tensor.gradient` if writes are ASSIGNs: in 0.12."""
        from tinygrad.uop import Ops

        tensor: Any = tensor_module.Tensor
        if hasattr(tensor_module, "all_tensors"):
            changes.wrap(tensor, "assign", self.on_assign, "self", "x")
        changes.wrap(tensor, "__setitem__", self.on_item, "self", "indices", "v")
        if hasattr(Ops, "ASSIGN"):
            changes.wrap(tensor, "gradient", self.on_gradient, "self", "targets", "gradient", "materialize_grads")

    def on_item(self, assign: Callable[..., Any], tensor: Any, indices: Any, value: Any) -> None:
        before, self._item = self._item, None
        chosen = choose(tensor.uop.shape, indices) if is_whole(tensor.uop) else None
        if chosen is not None:
            self._item = chosen, tuple(tensor.uop.shape)
        try:
            assign(tensor, indices, value)
        finally:
            self._item = before

    def on_assign(self, assign: Callable[..., Any], tensor: Any, value: Any) -> Any:
        target = tensor.uop
        result = assign(tensor, value)
        write, buffer = last_write(result.uop), buffer_under(target)
        if self._item is not None and write is not None:
            self._parts.append(ChosenPart(weakref.ref(write), *self._item))
        # if other Tensors come after the write, too, it is not lost with this Tensor
        is_only = result.uop.op.name in {"ASSIGN", "AFTER"} and result.uop.src[0] is target
        if is_only and buffer is not None and write is not None:
            report = describe_write(target)
            self._writes.append(_Write(weakref.ref(buffer), weakref.ref(write), weakref.ref(result), report))
        return result

    def on_gradient(self, compute: Callable[..., Any], loss: Any, /, *targets: Any, **options: Any) -> Any:
        cut = find_cut(loss.uop, [target.uop for target in targets])
        self._cut += [CutGradient(find_user_line(), tuple(map(str, u.shape)), name_dtype(u.dtype)) for u in cut]
        return compute(loss, *targets, **options)

    # *** what a schedule takes; `nodes` are the nodes of its graph

    def take_parts(self, nodes: Collection[UOp]) -> list[ChosenPart]:
        """Returns the item assignments that are in the graph, and forgets them."""
        self._parts = [part for part in self._parts if part.write() is not None]
        taken = [part for part in self._parts if part.write() in nodes]
        self._parts = [part for part in self._parts if part not in taken]
        return taken

    def take_lost(self, nodes: Collection[UOp], pending: Container[UOp]) -> list[LostWrite]:
        """Returns the lost writes among those that the graph should come after (`pending`), and forgets them."""
        if not self._writes:
            return []
        written = {buffer for buffer, _ in list_writes(nodes)}
        self._writes = [write for write in self._writes if write.buffer() not in (None, *written)]
        lost = [write for write in self._writes if write.tensor() is None and write.write() in pending]
        if lost:
            # some Tensor may have another write to the buffer
            held = {buffer for tensor in live_tensors() for buffer, _ in list_writes(tensor.uop.toposort())}
            lost = [write for write in lost if write.buffer() not in held]
        self._writes = [write for write in self._writes if write not in lost]
        return [write.report for write in lost]

    def take_cut(self) -> list[CutGradient]:
        """Returns the gradients that were cut off since the last call."""
        cut, self._cut = self._cut, []
        return cut


def live_tensors() -> Iterator[Any]:
    """Yields all live Tensors."""
    from tinygrad import tensor

    for reference in list(getattr(tensor, "all_tensors", ())):
        found = reference()
        if found is not None:
            yield found


# *** writes


def describe_write(target: UOp) -> LostWrite:
    """Returns the report of a write that the user's line asks for now, if it will be lost."""
    shape = tuple(int(n) for n in target.shape if isinstance(n, int))
    memory = buffer_under(target)
    size = math.prod(shape if memory is None else memory.shape)
    return LostWrite(find_user_line(), shape, size, name_dtype(target.dtype))


def find_shown(tensor: Any) -> UOp | None:
    """Returns the BUFFER that a Tensor shows all of, None if it shows a part, waits for a write, or is a value."""
    shown = find_under(tensor.uop, {"RESHAPE"})
    return shown if shown.op.name == "BUFFER" else None


def find_waiting(tensor: Any) -> UOp | None:
    """Returns the graph of memory after a write that a Tensor waits for, None if it waits for none."""
    shown = find_under(tensor.uop, {"RESHAPE"})
    return shown if shown.op.name in {"ASSIGN", "AFTER"} else None


def is_pending(buffer: UOp) -> bool:
    """Whether the graph of a live Tensor writes a BUFFER."""
    return any(buffer is one for tensor in live_tensors() for one, _ in list_writes(tensor.uop.toposort()))


def is_shown(buffer: UOp) -> bool:
    """Whether a live Tensor shows a BUFFER, or a part of it."""
    return any(buffer is buffer_under(tensor.uop) for tensor in live_tensors())


def list_owners() -> Owners:
    """Returns the live Tensors of each whole BUFFER."""
    found: Owners = weakref.WeakKeyDictionary()
    for tensor in live_tensors():
        memory = find_shown(tensor)
        if memory is not None:
            found.setdefault(memory, []).append(weakref.ref(tensor))
    return found


def list_pending() -> Iterator[tuple[UOp, UOp]]:
    """Yields (BUFFER, write) for each live Tensor that stands for a write that was not scheduled yet."""
    for tensor in live_tensors():
        shown = find_waiting(tensor)
        if shown is not None and (buffer := buffer_under(shown)) is not None:
            yield buffer, shown


def last_write(u: UOp) -> UOp | None:
    """Returns the last write that a value comes after, None if there is no write."""
    u = find_under(u, {"RESHAPE"})
    if u.op.name == "AFTER":
        u = u.src[-1]
    return u if u.op.name in _WRITES else None


def find_cut(root: UOp, targets: list[UOp]) -> list[UOp]:
    """Returns the targets that a value depends on by ASSIGNs alone."""
    nodes = root.toposort(lambda u: u.op.name != "DETACH")
    if not any(u.op.name == "ASSIGN" for u in nodes):
        return []
    reached = _list_sources(nodes)
    followed = _list_sources(root.toposort(lambda u: u.op.name not in {"DETACH", "ASSIGN"}))
    return [u for u in dict.fromkeys(targets) if u is not root and u in reached and u not in followed]


def _list_sources(nodes: Iterable[UOp]) -> set[UOp]:
    return {source for u in nodes for source in u.src}


# *** indices


def is_whole(u: UOp) -> bool:
    """Whether a tensor's value is a whole buffer, or will be when it is realized."""
    shown = find_under(u, {"RESHAPE", "AFTER", "ASSIGN"})
    return shown.op.name not in {"EXPAND", "PERMUTE", "PAD", "SHRINK", "FLIP", "BITCAST", "MULTI"}


def choose(shape: tuple[Any, ...], indices: Any) -> bytes | None:
    """Returns which elements of a tensor an index chooses, None if the index is not followed."""
    if not all(isinstance(size, int) for size in shape) or math.prod(shape) > _LARGEST:
        return None
    # a list of integers is one index, any other list one for each axis
    is_one = isinstance(indices, list) and all(map(_is_integer, indices))
    parts = [indices] if is_one or not isinstance(indices, (list, tuple)) else list(indices)
    if not all(map(_is_plain, parts)):
        return None
    import numpy as np

    chosen = np.zeros(shape, np.bool_)
    try:
        chosen[tuple(np.array(part) if isinstance(part, (list, tuple)) else part for part in parts)] = True
    except IndexError:
        # tinygrad raises its own error
        return None
    return chosen.tobytes()


def _is_plain(index: Any) -> bool:
    if isinstance(index, (list, tuple)):
        # lists of integers, at any depth
        return len(index) > 0 and all(isinstance(one, (int, list, tuple)) and _is_plain(one) for one in index)
    if isinstance(index, slice):
        return all(one is None or _is_integer(one) for one in (index.start, index.stop, index.step))
    return index is None or isinstance(index, EllipsisType) or _is_integer(index)


def _is_integer(index: Any) -> bool:
    return isinstance(index, int) and not isinstance(index, bool)
