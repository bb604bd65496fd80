"""What each node of a graph means, in a form that is the same for all tinygrad releases.

Releases write the same value in different ways: with an EXPAND or by broadcasting, with the reduced axes in the
argument or moved to the front, as an ASSIGN or as a STORE and an AFTER. Here a node that only shows the value of
another node in another shape is a **view** of it. The other nodes are **heads**: they compute something. A head has
only the axes along which its value varies.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from vmapdbg.model.capture import Node, Schedule
from vmapdbg.model.ops import ELEMENTWISE, RESHAPING, SAME_VALUE, name_op
from vmapdbg.model.schedule_index import index_of

LEAVES = frozenset({"PARAM"})
"""Memory that exists before the schedule."""
TYPED = frozenset({"PARAM", "CAST", "BITCAST"})
"""Ops whose dtype does not follow from their sources."""

Size = int | str
Shape = tuple[Size, ...]


@dataclass(frozen=True)
class HeadView:
    """How a node shows the value of a head: the head's axis for each axis of the node, None if the value does not vary
    along it."""

    head: int
    axes: tuple[int | None, ...]


@dataclass(frozen=True)
class Head:
    """A node that computes something. `op` is its name in all releases, `arg` its argument and the positions of its
    sources' axes. `sources` are heads. `constant` is true if the value is one number."""

    id: int
    op: str
    dtype: str
    shape: Shape
    arg: str
    sources: tuple[int, ...]
    constant: bool = False


class Meanings:
    """The heads of a schedule, and for each node the view that shows its value."""

    def __init__(self, schedule: Schedule) -> None:
        self.index = index_of(schedule)
        self.heads: dict[int, Head] = {}
        self.views: dict[int, HeadView] = {}
        # the source of each RESHAPE that is a head
        self._origins: dict[int, int] = {}
        # the heads computed from numbers alone, and the first head of equal ones: a graph may have one for each dtype
        self._numbers: set[int] = set()
        self._same: dict[Head, int] = {}
        # a source has a smaller id than its readers
        for node in sorted(schedule.nodes, key=lambda node: node.id):
            self.views[node.id] = self._read(node)

    def _read(self, node: Node) -> HeadView:
        op = name_op(node.op)
        sources = [source for source in node.src if source in self.views]
        if op == "CONST":
            return self._add_head(node, (False,) * len(_shape_of(node)), (), _read_number(node.arg), constant=True)
        if not sources or op in LEAVES:
            return self._add_head(node, (True,) * len(_shape_of(node)), ())
        if op in SAME_VALUE:
            return self._read_copy(node, sources[0])
        if op in ("STORE", "AFTER") and len(sources) > 1:
            return self._read_store(node, op, sources)
        if op in RESHAPING:
            return self._move(node, op, sources[0])
        if op == "REDUCE":
            return self._reduce(node, sources[0])
        if op == "CAST" and self._is_mere_cast(node, sources[0]):
            return self.views[sources[0]]
        return self._combine(node, op, sources)

    # *** views

    def _move(self, node: Node, op: str, source: int) -> HeadView:
        view = self.views[source]
        if op == "EXPAND":
            # the value does not vary along a new axis, nor along an axis of one element
            return HeadView(view.head, (None,) * (len(_shape_of(node)) - len(view.axes)) + view.axes)
        if op == "PERMUTE":
            return HeadView(view.head, tuple(view.axes[int(number)] for number in re.findall(r"-?\d+", node.arg)))
        if op == "RESHAPE":
            return self._reshape(node, source)
        return self._cut(node, op, source)

    def _reshape(self, node: Node, source: int) -> HeadView:
        """Axes of one element are added or removed without changing the value; any other reshape is a head."""
        view, before, after = self.views[source], self._shape(source), _shape_of(node)
        if all(axis is None for axis in view.axes):
            return HeadView(view.head, (None,) * len(after))
        kept = [axis for axis, size in zip(view.axes, before, strict=True) if size != 1]
        if _drop_ones(before) == _drop_ones(after):
            return HeadView(view.head, _spread(kept, [size != 1 for size in after]))
        head = self.heads[view.head]
        if head.op == "RESHAPE" and view.axes == self.views[head.id].axes:
            # two reshapes are one, and may restore the first shape
            return self._reshape(node, self._origins[head.id])
        made = self._add_head(node, (True,) * len(after), (source,), op="RESHAPE")
        self._origins[made.head] = source
        return made

    def _read_store(self, node: Node, op: str, sources: Sequence[int]) -> HeadView:
        """The stored value is the value, except for a store to a part of a buffer."""
        target, value = sources[0], sources[1]
        if op == "STORE" and not self._is_whole(target):
            return self._combine(node, op, sources)
        if op == "AFTER" and name_op(self.index.op(value)) != "STORE":
            return self._reshape(node, target)
        return self._read_copy(node, value)

    def _read_copy(self, node: Node, source: int) -> HeadView:
        """A copy has the value of its source, but a buffer that holds a constant is not a constant."""
        if node.realized is not None and self.heads[self.views[source].head].constant:
            return self._add_head(node, (True,) * len(_shape_of(node)), (source,), op="STORE")
        return self._reshape(node, source)

    def _is_whole(self, target: int) -> bool:
        head = self.heads[self.views[target].head]
        while head.op == "RESHAPE":
            head = self.heads[head.sources[0]]
        return head.op in LEAVES and _count(self._shape(target)) == _count(head.shape)

    def _is_mere_cast(self, node: Node, source: int) -> bool:
        """Returns whether a CAST keeps the value: of a weak number, of a constant that the dtype can hold, or of a bool
        that is cast back to bool."""
        below, head = self.index.nodes[source], self.heads[self.views[source].head]
        if below.dtype.startswith("weak") or (head.op == "CONST" and _holds(node.dtype, head.arg)):
            return True
        if self.index.nodes[head.id].dtype != "bool":
            return False
        return node.dtype == "bool" or self._is_only_cast_back(node)

    def _is_only_cast_back(self, node: Node) -> bool:
        readers = self.index.readers[node.id]
        return bool(readers) and all(map(self._casts_back, readers))

    def _casts_back(self, reader: Node) -> bool:
        if reader.op in RESHAPING:
            return self._is_only_cast_back(reader)
        return (reader.op, reader.dtype) == ("CAST", "bool")

    # *** heads

    def _cut(self, node: Node, op: str, source: int) -> HeadView:
        """Reads PAD, SHRINK and FLIP: only the axes that change count, and where they begin."""
        before, after = self._shape(source), _shape_of(node)
        begins = _read_begins(node.arg, len(after))
        touched = [old != new or op == "FLIP" for old, new in zip(before, after, strict=True)]
        axes = self.views[source].axes
        varies = [axis is not None for axis in axes]
        if op == "SHRINK" and not any(is_touched for is_touched, it in zip(touched, varies, strict=True) if it):
            return self.views[source]
        if op == "PAD":
            varies = [it or is_touched for it, is_touched in zip(varies, touched, strict=True)]
        arg = [begin if is_touched else "" for begin, is_touched in zip(begins, touched, strict=True)]
        return self._add_head(node, varies, (source,), arg)

    def _reduce(self, node: Node, source: int) -> HeadView:
        """Names the axes as the head of the source has them, so that earlier movement ops do not matter."""
        axes, sizes = self.views[source].axes, self._shape(source)
        # tinygrad 0.12 has no axes if it reduces over an OUTER range; then a capture has no argument
        name, *numbers = re.findall(r"\w+", node.arg) or [""]
        reduced = list(map(int, numbers))
        known = sorted(axis for i in reduced if (axis := axes[i]) is not None)
        repeated = [sizes[i] for i in reduced if axes[i] is None]
        left = [axis for i, axis in enumerate(axes) if i not in reduced]
        arg = [name, known, repeated, [axis for axis in left if axis is not None]]
        varies = [axis is not None for axis in left]
        rank = len(_shape_of(node))
        if rank == len(axes):
            # the reduced axes remain, with one element
            varies = [axis is not None and i not in reduced for i, axis in enumerate(axes)]
        elif rank != len(left):
            # tinygrad 0.13 has no shape for a reduce over an OUTER range
            varies = [True] * rank
        return self._add_head(node, varies, (source,), arg, places=False)

    def _combine(self, node: Node, op: str, sources: Sequence[int]) -> HeadView:
        """Reads an elementwise op, its sources broadcast; the value of any other op varies along all axes."""
        shape = _shape_of(node)
        aligned = [self._align(source, shape) for source in sources]
        if op not in ELEMENTWISE or None in aligned:
            return self._add_head(node, (True,) * len(shape), sources)
        varies = [any(axes[i] is not None for axes in aligned if axes) for i in range(len(shape))]
        constant = all(self.heads[self.views[source].head].constant for source in sources)
        return self._add_head(node, varies, sources, constant=constant)

    def _align(self, source: int, shape: Shape) -> tuple[int | None, ...] | None:
        """Returns the axes of a source broadcast to a shape, None if it cannot be broadcast."""
        axes, sizes = self.views[source].axes, self._shape(source)
        missing = len(shape) - len(axes)
        if missing < 0 or any(a not in (1, b) for a, b in zip(sizes, shape[missing:], strict=True)):
            return None
        return (None,) * missing + axes

    def _add_head(
        self,
        node: Node,
        varies: Sequence[bool],
        sources: Sequence[int],
        arg: object = None,
        *,
        op: str = "",
        constant: bool = False,
        places: bool = True,
    ) -> HeadView:
        """Adds a head and returns its view. `varies` says for each axis whether the value may vary along it; `arg`
        replaces the node's argument."""
        op, shape = op or name_op(node.op), _shape_of(node)
        differs = [it and size != 1 for it, size in zip(varies, shape, strict=True)]
        axes = _spread(range(len(shape)), differs)
        if arg is None and op not in RESHAPING:
            arg = node.arg
        # the argument of a PARAM is a slot, the argument of a BUFFER its size, which the shape has
        parts = [] if op in LEAVES else [arg]
        if places:
            parts += [self._describe_axes(source, shape, axes) for source in sources]
        head = Head(
            id=node.id,
            op=op,
            dtype=node.dtype if op in TYPED else "",
            shape=tuple(size for size, axis in zip(shape, axes, strict=True) if axis is not None),
            arg=repr(parts),
            sources=tuple(self.views[source].head for source in sources),
            constant=constant,
        )
        return HeadView(self._keep(head), axes)

    def _keep(self, head: Head) -> int:
        """Adds a head and returns its id. An equal head computed from numbers alone is not added twice."""
        of_numbers = head.op == "CONST" or (head.sources and all(source in self._numbers for source in head.sources))
        if head.op == "STORE" or not of_numbers:
            self.heads[head.id] = head
            return head.id
        same = self._same.setdefault(replace(head, id=-1), head.id)
        self._numbers.add(same)
        self.heads.setdefault(same, head)
        return same

    def _describe_axes(self, source: int, shape: Shape, axes: Sequence[int | None]) -> object:
        """Returns the source's axis for each axis along which its reader varies."""
        aligned = self._align(source, shape)
        if aligned is None:
            return [axis for axis in self.views[source].axes if axis is not None]
        return [axis for axis, of_reader in zip(aligned, axes, strict=True) if of_reader is not None]

    def _shape(self, node: int) -> Shape:
        return _shape_of(self.index.nodes[node])


def _shape_of(node: Node) -> Shape:
    return node.shape or ()


def _drop_ones(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def _spread(values: Iterable[int | None], places: Iterable[bool]) -> tuple[int | None, ...]:
    """Puts the values into the marked places, in order, and None into the other places."""
    rest = iter(values)
    return tuple(next(rest) if is_marked else None for is_marked in places)


def _count(shape: Shape) -> int | None:
    """Returns the number of elements, None if it is symbolic."""
    sizes = [size for size in shape if isinstance(size, int)]
    if len(sizes) < len(shape):
        return None
    return math.prod(sizes)


def _holds(dtype: str, number: str) -> bool:
    """Returns whether a dtype can hold a constant (the argument of its head) exactly."""
    if dtype == "bool":
        return number in ("['0']", "['1']")
    return dtype.startswith(("float", "double", "half", "bfloat", "weak")) or "." not in number


# *** arguments: a Capture has them as text


def _read_number(arg: str) -> str:
    """Returns a constant without its dtype: `1`, `1.0` and `True` are the same number."""
    if arg in ("True", "False"):
        return str(int(arg == "True"))
    try:
        return repr(float(arg)).removesuffix(".0")
    except ValueError:
        return arg


def _read_begins(arg: str, rank: int) -> list[str]:
    """Returns the begin of each axis of a PAD or SHRINK. `((1, 3), (0, 2))` has pairs of begin and end (or size)."""
    pairs = re.findall(r"\(\s*([^(),]+),[^()]*\)", arg)
    return pairs if len(pairs) == rank else [arg] * rank
