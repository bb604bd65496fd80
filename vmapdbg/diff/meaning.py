"""What each node of a graph means, in a form that is the same for all tinygrad releases.

Releases write a value in different ways: with an EXPAND or by broadcasting, with the reduced axes in the argument or
moved to the front, as an ASSIGN or as a STORE and an AFTER. Here a node that only shows another node's value in another
shape is a **view** of it. The other nodes are **heads**: they compute. A head has only axes along which it varies."""

import math
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from vmapdbg.model.capture import Node, Schedule
from vmapdbg.model.ops import ELEMENTWISE, RESHAPING, SAME_VALUE, name_op
from vmapdbg.model.schedule_index import index_of

_LEAVES = frozenset({"PARAM"})  # memory that exists before the schedule
_TYPED = frozenset({"PARAM", "CAST", "BITCAST"})  # the dtype does not follow from the sources

Shape = tuple[int | str, ...]


@dataclass(frozen=True)
class HeadView:
    """A node that shows the value of a head. `axes` has the head's axis for each of its axes, or None."""

    head: int
    axes: tuple[int | None, ...]


class Meanings:
    """The heads of a schedule, and for each node the view that shows its value. A head is a node with other fields:
    `op` is its name in all releases, `arg` its argument and the positions of its sources' axes, `shape` the axes along
    which its value varies. Its sources are heads."""

    def __init__(self, schedule: Schedule) -> None:
        self.index = index_of(schedule)
        self.heads: dict[int, Node] = {}
        self.views: dict[int, HeadView] = {}
        self.constants: set[int] = set()  # heads whose value is one number
        self._origins: dict[int, int] = {}  # the source of each RESHAPE that is a head
        # the heads computed from numbers alone, and the first head of equal ones: a graph may have one for each dtype
        self._numbers: set[int] = set()
        self._same: dict[Hashable, int] = {}
        # a source has a smaller id than its readers
        for node in sorted(schedule.nodes, key=lambda node: node.id):
            self.views[node.id] = self._read(node)

    def _read(self, node: Node) -> HeadView:
        op = name_op(node.op)
        sources = [source for source in node.src if source in self.views]
        if op == "CONST":
            return self._add_head(node, (), [False] * len(_shape_of(node)), _read_number(node.arg), constant=True)
        if not sources or op in _LEAVES:
            return self._add_head(node, ())
        if op in SAME_VALUE:
            return self._read_copy(node, sources[0])
        if op in ("STORE", "AFTER") and len(sources) > 1:
            return self._read_store(node, op, sources)
        view = self.views[sources[0]]
        if op == "EXPAND":
            # the value does not vary along a new axis, nor along an axis of one element
            return HeadView(view.head, (None,) * (len(_shape_of(node)) - len(view.axes)) + view.axes)
        if op == "PERMUTE":
            return HeadView(view.head, tuple(view.axes[int(number)] for number in re.findall(r"-?\d+", node.arg)))
        if op == "RESHAPE":
            return self._reshape(node, sources[0])
        if op in RESHAPING:
            return self._cut(node, op, sources[0])
        if op == "REDUCE":
            return self._reduce(node, sources[0])
        if op == "CAST" and self._is_mere_cast(node, sources[0]):
            return view
        return self._combine(node, op, sources)

    # *** views

    def _reshape(self, node: Node, source: int) -> HeadView:
        """Axes of one element are added or removed without changing the value; any other reshape is a head."""
        view, before, after = self.views[source], self._shape(source), _shape_of(node)
        if all(axis is None for axis in view.axes):
            return HeadView(view.head, (None,) * len(after))
        kept = [axis for axis, size in zip(view.axes, before, strict=True) if size != 1]
        if [size for size in before if size != 1] == [size for size in after if size != 1]:
            return HeadView(view.head, _spread(kept, [size != 1 for size in after]))
        head = self.heads[view.head]
        if head.op == "RESHAPE" and view.axes == self.views[head.id].axes:
            # two reshapes are one, and may restore the first shape
            return self._reshape(node, self._origins[head.id])
        made = self._add_head(node, (source,), op="RESHAPE")
        self._origins[made.head] = source
        return made

    def _read_store(self, node: Node, op: str, sources: Sequence[int]) -> HeadView:
        """The stored value is the value, except for a store to a part of a buffer."""
        target, value = sources[0], sources[1]
        if op == "STORE":
            buffer = self.heads[self.views[target].head]
            while buffer.op == "RESHAPE":
                buffer = self.heads[buffer.src[0]]
            if buffer.op not in _LEAVES or _count(self._shape(target)) != _count(_shape_of(buffer)):
                return self._combine(node, op, sources)
        elif name_op(self.index.op(value)) != "STORE":
            return self._reshape(node, target)
        return self._read_copy(node, value)

    def _read_copy(self, node: Node, source: int) -> HeadView:
        """A copy has the value of its source, but a buffer that holds a constant is not a constant."""
        if node.realized is not None and self._is_constant(source):
            return self._add_head(node, (source,), op="STORE")
        return self._reshape(node, source)

    def _is_constant(self, node_id: int) -> bool:
        return self.views[node_id].head in self.constants

    def _is_mere_cast(self, node: Node, source: int) -> bool:
        """Whether a CAST keeps the value: of a weak number, a constant that fits, or a bool that is cast back."""
        head = self.heads[self.views[source].head]
        if self.index.nodes[source].dtype.startswith("weak") or (head.op == "CONST" and _holds(node.dtype, head.arg)):
            return True
        return self.index.nodes[head.id].dtype == "bool" and self._is_cast_back(node)

    def _is_cast_back(self, node: Node) -> bool:
        """Returns whether a node is a cast to bool, or a cast or movement op that only such casts read."""
        if node.op == "CAST" and node.dtype == "bool":
            return True
        readers = self.index.readers[node.id]
        return bool(readers) and all(
            (reader.op == "CAST" and reader.dtype == "bool") or (reader.op in RESHAPING and self._is_cast_back(reader))
            for reader in readers
        )

    # *** heads

    def _cut(self, node: Node, op: str, source: int) -> HeadView:
        """Reads PAD, SHRINK and FLIP: only the axes that change count, and where they begin."""
        before, after, axes = self._shape(source), _shape_of(node), self.views[source].axes
        # `((1, 3), (0, 2))` has pairs of begin and end (or size)
        begins = re.findall(r"\(\s*([^(),]+),[^()]*\)", node.arg)
        if len(begins) != len(after):
            begins = [node.arg] * len(after)
        is_cut = [old != new or op == "FLIP" for old, new in zip(before, after, strict=True)]
        varies = [axis is not None or (cut and op == "PAD") for axis, cut in zip(axes, is_cut, strict=True)]
        arg = [begin if cut else "" for begin, cut in zip(begins, is_cut, strict=True)]
        return self._add_head(node, (source,), varies, arg)

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
        # tinygrad 0.13 has no shape for a reduce over an OUTER range
        varies = None
        rank = len(_shape_of(node))
        if rank == len(axes):
            # the reduced axes remain, with one element
            varies = [axis is not None and i not in reduced for i, axis in enumerate(axes)]
        elif rank == len(left):
            varies = [axis is not None for axis in left]
        return self._add_head(node, (source,), varies, arg, places=False)

    def _combine(self, node: Node, op: str, sources: Sequence[int]) -> HeadView:
        """Reads an elementwise op, its sources broadcast; the value of any other op varies along all axes."""
        shape = _shape_of(node)
        aligned = [self._align(source, shape) for source in sources]
        if op not in ELEMENTWISE or None in aligned:
            return self._add_head(node, sources)
        varies = [any(axes[i] is not None for axes in aligned if axes) for i in range(len(shape))]
        return self._add_head(node, sources, varies, constant=all(map(self._is_constant, sources)))

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
        sources: Sequence[int],
        varies: Sequence[bool] | None = None,
        arg: object = None,
        *,
        op: str = "",
        constant: bool = False,
        places: bool = True,
    ) -> HeadView:
        """Adds a head and returns its view. `varies` says for each axis whether the value may vary along it (None:
        along all). `arg` replaces the node's argument. With `places`, positions of sources' axes are compared."""
        op, shape = op or name_op(node.op), _shape_of(node)
        varies = varies or [True] * len(shape)
        axes = _spread(range(len(shape)), [it and size != 1 for it, size in zip(varies, shape, strict=True)])
        if arg is None and op not in RESHAPING:
            arg = node.arg
        # the argument of a PARAM is a slot, the argument of a BUFFER its size, which the shape has
        parts: list[object] = [] if op in _LEAVES else [arg]
        for source in sources:
            # the source's axis for each axis along which its reader varies
            aligned = self._align(source, shape)
            if places and aligned is None:
                parts.append([axis for axis in self.views[source].axes if axis is not None])
            elif places and aligned is not None:
                parts.append([axis for axis, mine in zip(aligned, axes, strict=True) if mine is not None])
        head = replace(
            node,
            op=op,
            dtype=node.dtype if op in _TYPED else "",
            shape=tuple(size for size, axis in zip(shape, axes, strict=True) if axis is not None),
            arg=repr(parts),
            src=tuple(self.views[source].head for source in sources),
        )
        head_id = self._find_same(head, constant)
        self.heads.setdefault(head_id, head)
        if constant:
            self.constants.add(head_id)
        return HeadView(head_id, axes)

    def _find_same(self, head: Node, constant: bool) -> int:
        """Returns the id of the first equal head if the head is computed from numbers alone, else its own id."""
        of_numbers = head.op == "CONST" or (head.src and all(source in self._numbers for source in head.src))
        if head.op == "STORE" or not of_numbers:
            return head.id
        same = self._same.setdefault((head.op, head.dtype, head.shape, head.arg, head.src, constant), head.id)
        self._numbers.add(same)
        return same

    def _shape(self, node: int) -> Shape:
        return _shape_of(self.index.nodes[node])


def _shape_of(node: Node) -> Shape:
    return node.shape or ()


def _spread(values: Iterable[int | None], places: Iterable[bool]) -> tuple[int | None, ...]:
    """Puts the values into the marked places, in order, and None into the other places."""
    rest = iter(values)
    return tuple(next(rest) if is_marked else None for is_marked in places)


def _count(shape: Shape) -> tuple[int, list[str]]:
    """Returns the number of elements: the product of the known sizes, and the symbolic sizes."""
    return math.prod(size for size in shape if isinstance(size, int)), [s for s in shape if isinstance(s, str)]


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
