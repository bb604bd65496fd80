"""What each node of a graph means, however the tinygrad that made it writes that down.

Releases write one value in different ways: with an EXPAND or by broadcasting, with the reduced axes in the argument or
moved to the front, as an ASSIGN or as a STORE and what comes AFTER it. Here a node that only shows another one's value
in another way is a **view** of it, and what is left are **heads**: nodes that compute something. A head has the axes
along which its value differs, and no others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from vmapdbg.diff.arguments import read_begins, read_number, read_numbers, read_words
from vmapdbg.diff.ops import ELEMENTWISE, LEAVES, MOVEMENT, SAME_VALUE, TYPED, name_op
from vmapdbg.model.capture import Node, Schedule
from vmapdbg.model.schedule_index import index_of

Size = int | str
Shape = tuple[Size, ...]


@dataclass(frozen=True)
class View:
    """How a node shows the value of a head: for each axis of the node that of the head, None where the value is the
    same all along the axis."""

    head: int
    axes: tuple[int | None, ...]


@dataclass(frozen=True)
class Head:
    """A node that computes something. `op` is its name in the neutral form, `arg` what else makes the value: its own
    argument, and how the axes of the sources lie. `sources` are heads. `constant` is a value that is one number."""

    id: int
    op: str
    dtype: str
    shape: Shape
    arg: str
    sources: tuple[int, ...]
    constant: bool = False


class Meanings:
    """The heads of a schedule, and the view that each of its nodes is."""

    def __init__(self, schedule: Schedule) -> None:
        self.index = index_of(schedule)
        self.heads: dict[int, Head] = {}
        self.views: dict[int, View] = {}
        # what a reshape was made of, by its head
        self._origins: dict[int, int] = {}
        # the heads that are made of numbers alone, and which one computes what: a graph may have one for each dtype
        self._numbers: set[int] = set()
        self._same: dict[Head, int] = {}
        # a source has a smaller id than what reads it
        for node in sorted(schedule.nodes, key=lambda node: node.id):
            self.views[node.id] = self._read(node)

    def _read(self, node: Node) -> View:
        op = name_op(node.op)
        sources = [source for source in node.src if source in self.views]
        if op == "CONST":
            return self._add_head(node, (False,) * len(_shape_of(node)), (), read_number(node.arg), constant=True)
        if not sources or op in LEAVES:
            return self._add_head(node, (True,) * len(_shape_of(node)), ())
        if op in SAME_VALUE:
            return self._read_copy(node, sources[0])
        if op in ("STORE", "AFTER") and len(sources) > 1:
            return self._read_store(node, op, sources)
        if op in MOVEMENT:
            return self._move(node, op, sources[0])
        if op == "REDUCE":
            return self._reduce(node, sources[0])
        if op == "CAST" and self._is_mere_cast(node, sources[0]):
            return self.views[sources[0]]
        return self._combine(node, op, sources)

    # *** what shows a value that is there

    def _move(self, node: Node, op: str, source: int) -> View:
        view = self.views[source]
        if op == "EXPAND":
            # an axis that the source does not have is the same all along, as one is that it has with one element
            return View(view.head, (None,) * (len(_shape_of(node)) - len(view.axes)) + view.axes)
        if op == "PERMUTE":
            return View(view.head, tuple(view.axes[i] for i in read_numbers(node.arg)))
        if op == "RESHAPE":
            return self._reshape(node, source)
        return self._cut(node, op, source)

    def _reshape(self, node: Node, source: int) -> View:
        """Axes of one element come and go without a change of the value; any other reshape is a head."""
        view, before, after = self.views[source], self._shape(source), _shape_of(node)
        if all(axis is None for axis in view.axes):
            return View(view.head, (None,) * len(after))
        kept = [axis for axis, size in zip(view.axes, before, strict=True) if size != 1]
        if _drop_ones(before) == _drop_ones(after):
            return View(view.head, _spread(kept, [size != 1 for size in after]))
        head = self.heads[view.head]
        if head.op == "RESHAPE" and view.axes == self.views[head.id].axes:
            # two reshapes are one, and may lead back
            return self._reshape(node, self._origins[head.id])
        made = self._add_head(node, (True,) * len(after), (source,), op="RESHAPE")
        self._origins[made.head] = source
        return made

    def _read_store(self, node: Node, op: str, sources: Sequence[int]) -> View:
        """What is stored is the value; only a store to a part of a buffer makes another one of it."""
        target, value = sources[0], sources[1]
        if op == "STORE" and not self._is_whole(target):
            return self._combine(node, op, sources)
        if op == "AFTER" and name_op(self.index.op(value)) != "STORE":
            return self._reshape(node, target)
        return self._read_copy(node, value)

    def _read_copy(self, node: Node, source: int) -> View:
        """A copy has the value of what it copies; but a buffer that a constant is written to is no constant."""
        if node.realized is not None and self.heads[self.views[source].head].constant:
            return self._add_head(node, (True,) * len(_shape_of(node)), (source,), op="STORE")
        return self._reshape(node, source)

    def _is_whole(self, target: int) -> bool:
        head = self.heads[self.views[target].head]
        while head.op == "RESHAPE":
            head = self.heads[head.sources[0]]
        return head.op in LEAVES and _count(self._shape(target)) == _count(head.shape)

    def _is_mere_cast(self, node: Node, source: int) -> bool:
        """Tells whether a CAST leaves a value as it is: a constant that its dtype has, what had no dtype of its own, or
        a truth value that is a number only on its way to a truth value."""
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
        if reader.op in MOVEMENT:
            return self._is_only_cast_back(reader)
        return (reader.op, reader.dtype) == ("CAST", "bool")

    # *** what computes a value

    def _cut(self, node: Node, op: str, source: int) -> View:
        """PAD, SHRINK and FLIP: only the axes that they touch count, and where on them they begin."""
        before, after = self._shape(source), _shape_of(node)
        begins = read_begins(node.arg, len(after))
        touched = [old != new or op == "FLIP" for old, new in zip(before, after, strict=True)]
        own = self.views[source].axes
        varies = [axis is not None for axis in own]
        if op == "PAD":
            varies = [it or is_touched for it, is_touched in zip(varies, touched, strict=True)]
        what = [begin if is_touched else "" for begin, is_touched in zip(begins, touched, strict=True)]
        if op == "SHRINK" and not any(t and axis is not None for t, axis in zip(touched, own, strict=True)):
            return self.views[source]
        return self._add_head(node, varies, (source,), what)

    def _reduce(self, node: Node, source: int) -> View:
        """The axes of the source are named as its head has them, so that nothing is left of how they were moved."""
        own, sizes = self.views[source].axes, self._shape(source)
        # tinygrad 0.12 has no axes where it reduces over an OUTER range, and then a capture has no argument
        name, *axes = read_words(node.arg) or [""]
        reduced = [int(axis) for axis in axes]
        known = sorted(axis for i in reduced if (axis := own[i]) is not None)
        repeated = [sizes[i] for i in reduced if own[i] is None]
        left = [axis for i, axis in enumerate(own) if i not in reduced]
        what = [name, known, repeated, [axis for axis in left if axis is not None]]
        varies = [axis is not None for axis in left]
        rank = len(_shape_of(node))
        if rank == len(own):
            # the reduced axes stay, with one element
            varies = [axis is not None and i not in reduced for i, axis in enumerate(own)]
        elif rank != len(left):
            # tinygrad 0.13 has no shape for a reduce over an OUTER range
            varies = [True] * rank
        return self._add_head(node, varies, (source,), what, places=False)

    def _combine(self, node: Node, op: str, sources: Sequence[int]) -> View:
        """An op of each element, its sources broadcast; any other op varies along all of its axes."""
        shape = _shape_of(node)
        aligned = [self._align(source, shape) for source in sources]
        if op not in ELEMENTWISE or None in aligned:
            return self._add_head(node, (True,) * len(shape), sources)
        varies = [any(axes[i] is not None for axes in aligned if axes) for i in range(len(shape))]
        constant = all(self.heads[self.views[source].head].constant for source in sources)
        return self._add_head(node, varies, sources, constant=constant)

    def _align(self, source: int, shape: Shape) -> tuple[int | None, ...] | None:
        """Returns the view of a source as a node of a shape broadcasts it, None where it cannot be broadcast."""
        own, sizes = self.views[source].axes, self._shape(source)
        missing = len(shape) - len(own)
        if missing < 0 or any(a not in (1, b) for a, b in zip(sizes, shape[missing:], strict=True)):
            return None
        return (None,) * missing + own

    def _add_head(
        self,
        node: Node,
        varies: Sequence[bool],
        sources: Sequence[int],
        what: object = None,
        *,
        op: str = "",
        constant: bool = False,
        places: bool = True,
    ) -> View:
        """Adds a head and returns its own view. `varies` tells for each axis whether the value may differ along it;
        `what` stands in the place of the node's argument."""
        op, shape = op or name_op(node.op), _shape_of(node)
        differs = [it and size != 1 for it, size in zip(varies, shape, strict=True)]
        axes = _spread(range(len(shape)), differs)
        if what is None and op not in MOVEMENT:
            what = node.arg
        # PARAM: which slot, BUFFER: how many elements; the shape has that
        arg = [] if op in LEAVES else [what]
        if places:
            arg += [self._describe_place(source, shape, axes) for source in sources]
        head = Head(
            id=node.id,
            op=op,
            dtype=node.dtype if op in TYPED else "",
            shape=tuple(size for size, axis in zip(shape, axes, strict=True) if axis is not None),
            arg=repr(arg),
            sources=tuple(self.views[source].head for source in sources),
            constant=constant,
        )
        return View(self._keep(head), axes)

    def _keep(self, head: Head) -> int:
        """Adds a head, or finds the one that computes the same from nothing but numbers."""
        of_numbers = head.op == "CONST" or (head.sources and all(source in self._numbers for source in head.sources))
        if head.op == "STORE" or not of_numbers:
            self.heads[head.id] = head
            return head.id
        same = self._same.setdefault(replace(head, id=-1), head.id)
        self._numbers.add(same)
        self.heads.setdefault(same, head)
        return same

    def _describe_place(self, source: int, shape: Shape, axes: Sequence[int | None]) -> object:
        """Returns how the axes of a source lie on those of its reader: in order, where they can be told."""
        aligned = self._align(source, shape)
        if aligned is None:
            return [axis for axis in self.views[source].axes if axis is not None]
        return [mine for mine, own in zip(aligned, axes, strict=True) if own is not None]

    def _shape(self, node: int) -> Shape:
        return _shape_of(self.index.nodes[node])


def _shape_of(node: Node) -> Shape:
    return node.shape or ()


def _drop_ones(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def _spread(values: Iterable[int | None], places: Iterable[bool]) -> tuple[int | None, ...]:
    """Puts values into the places that are marked, one after the other, and None into the others."""
    rest = iter(values)
    return tuple(next(rest) if is_marked else None for is_marked in places)


def _count(shape: Shape) -> int | None:
    """Returns the number of elements, None where it is symbolic."""
    sizes = [size for size in shape if isinstance(size, int)]
    if len(sizes) < len(shape):
        return None
    return math.prod(sizes)


def _holds(dtype: str, number: str) -> bool:
    """Tells whether a dtype has a constant, as the argument of its head, without a change."""
    if dtype == "bool":
        return number in ("['0']", "['1']")
    return dtype.startswith(("float", "double", "half", "bfloat", "weak")) or "." not in number
