"""Watches calls of Tensor whose graphs do not say what was asked for. Runs in the child.

An item assignment, `x[index] = v`, must keep what is outside of the index. The reference computes tinygrad's graph of
it as it is, so numpy reads the index again: integers, slices, `None`, `...`, lists of integers, but no Tensors.

tinygrad 0.12 cuts a gradient off at an ASSIGN: the gradient of what is assigned, or cloned, is zero. What computes that
zero is right; only the graph of the loss shows the fault."""

import math
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Set
from types import EllipsisType, ModuleType
from typing import Any, NamedTuple

from vmapdbg.check.result import CutGradient
from vmapdbg.child.listen.guard import setting
from vmapdbg.child.listen.releases import buffer_under, find_under, list_writes
from vmapdbg.child.listen.user_lines import find_user_line
from vmapdbg.child.memory import name_dtype
from vmapdbg.model.ops import STORES

UOp = Any
Owners = weakref.WeakKeyDictionary[UOp, list[weakref.ref[Any]]]  # BUFFER -> the Tensors that show all of it
_LARGEST = 1 << 22  # item assignments to larger tensors are ignored, in elements


class ChosenPart(NamedTuple):
    """Which elements the index of an item assignment chooses, as the bytes of booleans for a tensor of this shape."""

    chosen: bytes
    shape: tuple[int, ...]


Parts = weakref.WeakKeyDictionary[UOp, ChosenPart]  # the write of an item assignment -> what it may change


class TensorCalls:
    """Collects the item assignments that are not scheduled yet, and the gradients that are cut off."""

    def __init__(self) -> None:
        self._parts: Parts = weakref.WeakKeyDictionary()
        self._cut: list[CutGradient] = []
        self._item: ChosenPart | None = None  # of the item assignment that runs

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
        chosen = choose(tensor.uop.shape, indices) if is_whole(tensor.uop) else None
        with setting(self, "_item", None if chosen is None else ChosenPart(chosen, tuple(tensor.uop.shape))):
            assign(tensor, indices, value)

    def on_assign(self, assign: Callable[..., Any], tensor: Any, value: Any) -> Any:
        result = assign(tensor, value)
        write = last_write(result.uop)
        if self._item is not None and write is not None:
            self._parts[write] = self._item
        return result

    def on_gradient(self, compute: Callable[..., Any], loss: Any, /, *targets: Any, **options: Any) -> Any:
        cut = find_cut(loss.uop, [target.uop for target in targets])
        self._cut += [CutGradient(find_user_line(), tuple(map(str, u.shape)), name_dtype(u.dtype)) for u in cut]
        return compute(loss, *targets, **options)

    def take_parts(self, nodes: Container[UOp]) -> Parts:
        """Returns the item assignments that are in the graph of a schedule with these `nodes`, and forgets them."""
        return weakref.WeakKeyDictionary({u: self._parts.pop(u) for u in list(self._parts) if u in nodes})

    def take_cut(self) -> list[CutGradient]:
        """Returns the gradients that were cut off since the last call."""
        cut, self._cut = self._cut, []
        return cut


def live_tensors(without: Iterable[Any] = ()) -> Iterator[Any]:
    """Yields all live Tensors except some."""
    from tinygrad import tensor

    left_out = set(map(id, without))
    for reference in list(getattr(tensor, "all_tensors", ())):
        found = reference()
        if found is not None and id(found) not in left_out:
            yield found


def find_shown(tensor: Any, ops: Set[str] = frozenset()) -> UOp | None:
    """Returns the BUFFER that a Tensor shows all of, also under `ops`; None for a part, a value, or if it waits."""
    shown = None if tensor is None else find_under(tensor.uop, ops | {"RESHAPE"})
    return shown if shown is not None and shown.op.name == "BUFFER" else None


def find_waiting(tensor: Any) -> UOp | None:
    """Returns the graph of memory after a write that a Tensor waits for, None if it waits for none."""
    shown = find_under(tensor.uop, {"RESHAPE"})
    return shown if shown.op.name in {"ASSIGN", "AFTER"} else None


def list_awaited() -> set[UOp]:
    """Returns the BUFFERs that the graphs of live Tensors write."""
    return {buffer for tensor in live_tensors() for buffer, _ in list_writes(tensor.uop.toposort())}


def list_owners() -> Owners:
    """Returns the live Tensors of each whole BUFFER."""
    found: Owners = weakref.WeakKeyDictionary()
    for tensor in live_tensors():
        memory = find_shown(tensor)
        if memory is not None:
            found.setdefault(memory, []).append(weakref.ref(tensor))
    return found


def list_pending(without: Iterable[Any] = ()) -> Iterator[tuple[Any, UOp, UOp]]:
    """Yields (Tensor, BUFFER, write) for each live Tensor that stands for a write that was not scheduled yet."""
    for tensor in live_tensors(without):
        shown = find_waiting(tensor)
        if shown is not None and (buffer := buffer_under(shown)) is not None:
            yield tensor, buffer, shown


def last_write(u: UOp) -> UOp | None:
    """Returns the last write that a value comes after, None if there is no write."""
    u = find_under(u, {"RESHAPE"})
    if u.op.name == "AFTER":
        u = u.src[-1]
    return u if u.op.name in STORES else None


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


def is_whole(u: UOp) -> bool:
    """Whether a tensor's value is a whole buffer, or will be when it is realized."""
    shown = find_under(u, {"RESHAPE", "AFTER", "ASSIGN"})
    return shown.op.name not in {"EXPAND", "PERMUTE", "PAD", "SHRINK", "FLIP", "BITCAST", "MULTI"}


def choose(shape: tuple[Any, ...], indices: Any) -> bytes | None:
    """Returns which elements of a tensor an index chooses, None if the index is not followed."""
    if not all(isinstance(size, int) for size in shape) or math.prod(shape) > _LARGEST:
        return None
    # a list of integers is one index, any other list has one for each axis
    is_one = isinstance(indices, list) and all(map(_is_integer, indices))
    parts = [indices] if is_one or not isinstance(indices, (list, tuple)) else list(indices)
    if not all(map(_is_plain, parts)):
        return None
    import numpy as np

    chosen = np.zeros(shape, np.bool_)
    try:
        chosen[tuple(np.array(part) if isinstance(part, (list, tuple)) else part for part in parts)] = True
    except IndexError:
        return None  # tinygrad raises its own error
    return chosen.tobytes()


def _is_plain(index: Any) -> bool:
    if isinstance(index, (list, tuple)):
        return len(index) > 0 and all(isinstance(one, (int, list, tuple)) and _is_plain(one) for one in index)
    if isinstance(index, slice):
        return all(one is None or _is_integer(one) for one in (index.start, index.stop, index.step))
    return index is None or isinstance(index, EllipsisType) or _is_integer(index)


def _is_integer(index: Any) -> bool:
    return isinstance(index, int) and not isinstance(index, bool)
