"""What packs UOps of any release of tinygrad in the form of `vmapdbg.reference`, be it a tensor graph or a kernel: the
walk, arithmetic, constants and dtypes. Runs in the child."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vmapdbg.child.evidence.sizes import Sizes, Unsized
from vmapdbg.child.memory import name_dtype
from vmapdbg.model.ops import ARITHMETIC
from vmapdbg.reference.graph import DEVICES, Graph, Node
from vmapdbg.values.itemsize import ITEMSIZE
from vmapdbg.values.tolerance import is_float

UOp = Any  # this module is imported before the overlay is installed, and must not import tinygrad


class CannotPack(Exception):
    """The reference has no word for something in a graph; the message says for what, as a sentence."""


UNEXPECTED = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What a graph raises that is not what is expected here: the user's program must not fail of it."""

SAME = {"CONTIGUOUS_BACKWARD": "same", "DETACH": "same", "NOOP": "same", "CONTIGUOUS": "copy"}
# numbers that take the dtype of what they are used with; indices, which no kernel computes in less
DTYPES = {"index": "long", "weakint": "long", "weakfloat": "double", "weakbool": "bool"}
_INDICES = {"index", "weakint"}
_WEAK = {"weakfloat", *_INDICES}
REDUCES = {"ADD": "add", "MUL": "mul", "MAX": "max"}


class UOpPacker:
    """Packs what is made of UOps: `_find_sources` says what a UOp is made from, and what is no arithmetic has a method
    `_make_OP`. `variables` has the numbers of variables by their names, where the graph itself does not bind them."""

    def __init__(self, variables: Mapping[str, int] = {}):
        self.graph = Graph()
        self.sizes = Sizes(variables)
        self._slots: dict[UOp, int] = {}
        self._ranges: dict[UOp, int] = {}

    def pack(self, root: UOp) -> int:
        """Adds a UOp with all that it is made from, and returns its position. Raises CannotPack."""
        try:
            return self._pack(root)
        except UNEXPECTED as error:
            raise CannotPack(f"its graph cannot be read: {type(error).__name__}: {error}") from error

    def _pack(self, root: UOp) -> int:
        stack = [root]
        while stack:
            u = stack[-1]
            if u in self._slots:
                stack.pop()
                continue
            missing = [s for s in self._find_sources(u) if s not in self._slots]
            stack += missing
            if not missing:
                self._slots[u] = self._make(u)
        return self._slots[root]

    def find_slot(self, u: UOp) -> int | None:
        """Returns the position of a UOp, None where it is not in the graph."""
        return self._slots.get(u)

    # *** what a UOp is made from

    def _find_sources(self, u: UOp) -> list[UOp]:
        """Returns the UOps whose values go into that of one."""
        raise NotImplementedError

    def _is_number(self, u: UOp) -> bool:
        """Tells whether a UOp is a number that is known now: a variable with its value, sums of such."""
        return name_dtype(u.dtype) in _INDICES and self.sizes.find(u) is not None

    # *** one node

    def _make(self, u: UOp) -> int:
        op, sources = u.op.name, self._find_sources(u)
        src = tuple(self._slots[s] for s in sources)
        if not sources and self._is_number(u):
            return self._add("const", u, (), self.sizes.find(u))
        if op in ARITHMETIC:
            return self._add(ARITHMETIC[op].name, u, self._match_dtypes(u, src))
        if op in SAME:
            return self._add(SAME[op], u, src)
        method = getattr(self, f"_make_{op.lower()}", None)
        if method is None:
            raise CannotPack(f"the reference does not know {op}")
        return method(u, src)

    def _add(self, op: str, u: UOp, src: tuple[int, ...], arg: Any = None, dtype: str | None = None) -> int:
        return self.graph.add(Node(op, dtype or self._name_dtype(u), self._find_shape(u), src, arg))

    def _name_dtype(self, u: UOp) -> str:
        name = _name_scalar(u)
        name = DTYPES.get(name, name)
        if name not in ITEMSIZE:
            raise CannotPack(f"the reference does not know the dtype {name}")
        return name

    def _find_shape(self, u: UOp) -> tuple[int, ...]:
        try:
            return tuple(self.sizes.need(size) for size in u._shape or ())
        except Unsized as error:
            raise CannotPack(str(error)) from None

    def _match_dtypes(self, u: UOp, src: tuple[int, ...]) -> tuple[int, ...]:
        """Has numbers without a dtype of their own cast to that of what they are used with, or to the float that comes
        out: from 0.14 on a mean multiplies by the reciprocal of an integer."""
        own = [s for s in u.src if _name_scalar(s) not in _WEAK and _name_scalar(s) != "bool"]
        if len(own) == len(u.src):
            return src
        floats = [s for s in (u, *u.src) if is_float(self._name_dtype(s))]
        # its own dtype, where it has one, is the first of these
        candidates = [*own, *floats]
        if not candidates:
            return src
        wanted = self._name_dtype(candidates[0])
        weak = [_name_scalar(s) in _WEAK for s in u.src]
        return tuple(self._cast(slot, wanted) if is_weak else slot for slot, is_weak in zip(src, weak, strict=True))

    def _cast(self, slot: int, dtype: str) -> int:
        node = self.graph.nodes[slot]
        if node.dtype == dtype:
            return slot
        return self.graph.add(Node("cast", dtype, node.shape, (slot,)))

    def _make_const(self, u: UOp, src: tuple[int, ...]) -> int:
        dtype = self._name_dtype(u)
        # it has a truth, and no number
        if str(u.arg) == "Invalid":
            raise CannotPack("a value that is not defined (Invalid) is in its graph")
        kinds: dict[str, Callable[[Any], Any]] = {"bool": bool}
        if is_float(dtype):
            kinds[dtype] = float
        try:
            number = kinds.get(dtype, int)(u.arg)
        except (TypeError, ValueError):
            raise CannotPack(f"the reference does not know the constant {u.arg}") from None
        return self._add("const", u, (), number)

    def _make_stack(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._add("stack", u, self._match_dtypes(u, src))

    def _make_vectorize(self, u: UOp, src: tuple[int, ...]) -> int:
        """A shift of one axis, which depends on a step."""
        if len(src) != 1:
            raise CannotPack("the reference does not know VECTORIZE")
        return src[0]

    def _make_cast(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._add("cast", u, src)

    def _make_bitcast(self, u: UOp, src: tuple[int, ...]) -> int:
        return self._add("bitcast", u, src)

    def _make_range(self, u: UOp, src: tuple[int, ...]) -> int:
        name = self._name_range(u)
        return self._add("step", u, (), (name, self.graph.ranges[name]))

    def _add_loop_reduce(self, u: UOp, src: tuple[int, ...]) -> int:
        """Adds a reduce over the RANGEs that stand in the graph behind its value."""
        names = tuple(map(self._name_range, u.src[1:]))
        return self._add("reduce", u, src, (name_reduce(u), (), True, names))

    def _add_close(
        self, value: int, names: tuple[int | None, ...], shape: tuple[int, ...] | None = None, kept: Any = None
    ) -> int:
        """Adds the buffer of a value that is closed over step ranges; see LOOP_OPS for `kept`."""
        if shape is None:
            shape = tuple(1 if name is None else self.graph.ranges[name] for name in names)
        return self.graph.add(Node("close", self.graph.nodes[value].dtype, shape, (value,), (names, kept)))

    def _name_axis(self, r: UOp) -> int | None:
        """Returns the id of a RANGE, None for what is no RANGE: an axis that it does not stand for."""
        return self._name_range(r) if r.op.name == "RANGE" else None

    def find_range(self, name: int) -> UOp | None:
        """Returns the RANGE that a step range is."""
        return next((r for r, known in self._ranges.items() if known == name), None)

    def _name_range(self, r: UOp) -> int:
        """Returns the id of a RANGE: its own, unless another one of another size has it."""
        if is_device(r):
            self._ranges[r], self.graph.ranges[DEVICES] = DEVICES, self.sizes.need(r.src[0])
        if r not in self._ranges:
            name = r.arg[0]
            while name in self.graph.ranges:
                name += 1_000_000
            size = self.sizes.find(r.src[0])
            if size is None:
                raise CannotPack("the size of a scope is not a number")
            self._ranges[r], self.graph.ranges[name] = name, size
        return self._ranges[r]


def is_device(r: UOp) -> bool:
    """Tells whether a RANGE is that of the devices of a sharded tensor, which is one since 0.14."""
    return r.op.name == "RANGE" and r.arg[-1].name == "DEVICE"


def name_reduce(u: UOp) -> str:
    """Returns what the reference calls the op of a reduce: it stands by itself, or first."""
    op = u.arg[0] if isinstance(u.arg, tuple) else u.arg
    return REDUCES[op.name]


def _name_scalar(u: UOp) -> str:
    # 0.14 has no vectors
    scalar = getattr(u.dtype, "scalar", lambda: u.dtype)
    return name_dtype(scalar())
