"""Watches calls of Tensor whose graphs do not say what was asked for. Runs in the child.

An item assignment, `x[index] = v`: what is outside of the index must stay as it is. tinygrad's `Tensor.__setitem__`
makes a graph of the call, which the reference computes as it is, so numpy reads the index again. An index is followed
if it consists of integers, slices, `None`, `...` and lists of integers: what a Tensor chooses is not known beforehand.

A gradient that tinygrad 0.12 cuts off at an ASSIGN: the gradient of what is assigned, or cloned, is zero. What computes
that zero is right; only the graph of the loss shows the fault.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import EllipsisType, ModuleType
from typing import Any

from vmapdbg.check.result import CutGradient
from vmapdbg.child.evidence.lost_writes import find_write
from vmapdbg.child.listen.user_lines import find_user_line
from vmapdbg.child.memory import name_dtype

UOp = Any
_LARGEST = 1 << 22
"""Larger tensors are ignored, in elements."""


# compared by identity: it has weak references
@dataclass(frozen=True, eq=False)
class ChosenPart:
    """The write of an item assignment, held weakly, and which elements its index chooses, as the bytes of booleans for
    a tensor of this shape."""

    write: weakref.ref[Any]
    chosen: bytes
    shape: tuple[int, ...]


class ItemWatcher:
    """Collects the item assignments that are not scheduled yet."""

    def __init__(self) -> None:
        self._pending: list[ChosenPart] = []
        # what the item assignment that runs chooses, and the shape of its tensor
        self._now: tuple[bytes, tuple[int, ...]] | None = None

    def declare(self, changes: Any, tensor_module: ModuleType) -> None:
        """Wraps `Tensor.__setitem__`."""
        changes.wrap(tensor_module.Tensor, "__setitem__", self.on_item, "self", "indices", "v")

    def on_item(self, assign: Callable[..., Any], tensor: Any, indices: Any, value: Any) -> None:
        before, self._now = self._now, None
        if is_whole(tensor.uop):
            chosen = choose(tensor.uop.shape, indices)
            self._now = None if chosen is None else (chosen, tuple(tensor.uop.shape))
        try:
            assign(tensor, indices, value)
        finally:
            self._now = before

    def note_assign(self, u: UOp) -> None:
        """Notes the result of a call of `Tensor.assign`."""
        write = find_write(u)
        if self._now is not None and write is not None:
            self._pending.append(ChosenPart(weakref.ref(write), *self._now))

    def take(self, sink: UOp) -> Iterator[ChosenPart]:
        """Yields the parts whose writes are in the graph of a schedule, and forgets them."""
        self._pending = [part for part in self._pending if part.write() is not None]
        if not self._pending:
            return
        nodes = sink.toposort()
        found = [part for part in self._pending if part.write() in nodes]
        self._pending = [part for part in self._pending if part not in found]
        yield from found


def is_whole(u: UOp) -> bool:
    """Whether a tensor's value is a whole buffer, or will be when it is realized."""
    while u.op.name in {"RESHAPE", "AFTER", "ASSIGN"}:
        u = u.src[0]
    return u.op.name not in {"EXPAND", "PERMUTE", "PAD", "SHRINK", "FLIP", "BITCAST", "MULTI"}


def choose(shape: tuple[Any, ...], indices: Any) -> bytes | None:
    """Returns which elements of a tensor an index chooses, None if the index is not followed."""
    if not all(isinstance(size, int) for size in shape) or math.prod(shape) > _LARGEST:
        return None
    # a list of integers is one index, any other list one for each axis
    is_one = isinstance(indices, list) and all(_is_integer(index) for index in indices)
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
        return len(index) > 0 and all(_is_integer(one) or _is_nested(one) for one in index)
    if isinstance(index, slice):
        return all(one is None or _is_integer(one) for one in (index.start, index.stop, index.step))
    return index is None or isinstance(index, EllipsisType) or _is_integer(index)


def _is_nested(index: Any) -> bool:
    return isinstance(index, (list, tuple)) and _is_plain(index)


def _is_integer(index: Any) -> bool:
    return isinstance(index, int) and not isinstance(index, bool)


class GradientWatcher:
    """Collects the gradients that are cut off, until a schedule takes them."""

    def __init__(self) -> None:
        self._cut: list[CutGradient] = []

    def declare(self, changes: Any, tensor_module: ModuleType) -> None:
        """Wraps `Tensor.gradient` if writes are ASSIGNs: in 0.12."""
        from tinygrad.uop import Ops

        if hasattr(Ops, "ASSIGN"):
            names = ("self", "targets", "gradient", "materialize_grads")
            changes.wrap(tensor_module.Tensor, "gradient", self.on_gradient, *names)

    def on_gradient(self, compute: Callable[..., Any], loss: Any, /, *targets: Any, **options: Any) -> Any:
        cut = find_cut(loss.uop, [target.uop for target in targets])
        self._cut += [CutGradient(find_user_line(), tuple(map(str, u.shape)), name_dtype(u.dtype)) for u in cut]
        return compute(loss, *targets, **options)

    def take(self) -> list[CutGradient]:
        """Returns the gradients since the last call."""
        cut, self._cut = self._cut, []
        return cut


def find_cut(root: UOp, targets: list[UOp]) -> list[UOp]:
    """Returns the targets that a value depends on by ASSIGNs alone."""
    nodes = root.toposort(lambda u: u.op.name != "DETACH")
    if not any(u.op.name == "ASSIGN" for u in nodes):
        return []
    reached = find_sources(nodes)
    followed = find_sources(root.toposort(lambda u: u.op.name not in {"DETACH", "ASSIGN"}))
    return [u for u in dict.fromkeys(targets) if u is not root and u in reached and u not in followed]


def find_sources(nodes: dict[UOp, None]) -> set[UOp]:
    return {source for u in nodes for source in u.src}
