"""What the model is built from: one run of the pass, whoever recorded it, the overlay or an observer of stock tinygrad.

Nothing here depends on a release of tinygrad.
"""

from __future__ import annotations

import functools
import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vmapdbg.child.program.bounds import find_outside
from vmapdbg.model.capture import Realized, Reason, Unsplit

UOp = Any
Ranges = tuple[UOp, ...]

# the first source of these is a value, what follows says how large it is, or where
_SHAPED = frozenset({"RESHAPE", "EXPAND", "PAD", "SHRINK", "COPY"})
# all sources of these say how large, or where
_PLACES = frozenset({"BUFFER", "PARAM", "BUFFER_VIEW", "CONST"})


@dataclass(frozen=True)
class MadeBuffer:
    """A BUFFERIZE (STAGE) that the pass made for `node`, and what became of it.

    `readers` are the (buffer, INDEX) that were looked at. `left_open` are the ranges that are open after its store.
    """

    node: UOp
    stage: UOp
    ambient: Ranges
    stored: bool
    readers: Iterable[tuple[UOp, UOp]]
    left_open: Ranges
    decided: Reason


@dataclass(frozen=True)
class Launch:
    """A kernel of a schedule, or a copy: its AST, its BUFFER UOps, output first, how often it is launched in a row, and
    the node whose value it writes, None where that is not known.

    `variables` are those that have another value in each of these launches.
    """

    ast: UOp
    buffers: tuple[UOp, ...]
    count: int
    variables: frozenset[str]
    written: UOp | None
    is_compute: bool


class View(ABC):
    """One run of the rangeify pass, with what the model calls its nodes, ranges and lines.

    `graph` are its UOps, sources first. `ids` has the id of each node, `lines` the user's line of a node, `methods` the
    method of Tensor that is called there, `range_map` (ranges in, ranges out, ...) of a node, `ambient` the ambient
    ranges of a node. `scope_ranges` are those that a vmap brought. `held` has the node whose value a BUFFER holds,
    `launches` are in the order of the schedule. Where it `is_brief` a Capture gets of kernels only the names and
    the buffers, and nothing that only `lint` asks for.
    """

    graph: Iterable[UOp]
    ids: dict[UOp, int]
    lines: Mapping[UOp, str]
    methods: Mapping[UOp, str]
    range_map: Mapping[UOp, tuple[Ranges, ...]]
    ambient: Mapping[UOp, Ranges]
    scope_ranges: frozenset[UOp]
    held: Mapping[UOp, UOp]
    launches: Sequence[Launch]

    def __init__(self, is_brief: bool = False) -> None:
        self.is_brief = is_brief
        self._names: dict[UOp, str] = {}
        self._find_outside = functools.cache(find_outside)

    @abstractmethod
    def explain_realized(self, node: UOp) -> Realized | None:
        """Returns why a node is written to a buffer, None for one that is not."""

    def explain_unsplit(self, node: UOp) -> Unsplit | None:
        """Returns why a reduce is not split in two kernels as stock tinygrad would, None for any other node."""
        return None

    def find_indices(self, node: UOp) -> Ranges:
        """Returns what a node that has ranges indexes its first source with."""
        return self.range_map[node][0]

    def find_outside(self, index: UOp, size: int) -> tuple[int, int] | None:
        """Returns the bounds of an index that leaves its axis; None for any other, and where it is not asked for."""
        if self.is_brief:
            return None
        # thousands of nodes share few index expressions
        return self._find_outside(index, size)

    @abstractmethod
    def find_buffers(self) -> Iterable[MadeBuffer]:
        """Yields each BUFFERIZE that the pass made for a node, in the order it made them."""

    def render(self, u: UOp) -> str:
        """tinygrad's `render()`, remembering the parts: thousands of nodes share few index expressions."""
        if u not in self._names:
            renderer = _find_renderer()
            for part in u.toposort(gate=lambda x: x not in self._names):
                self._names[part] = str(renderer.rewrite(part, ctx=self._names))
        return self._names[u]

    def render_all(self, ranges: Iterable[UOp]) -> tuple[str, ...]:
        return tuple(self.render(r) for r in ranges)


@functools.cache
def _find_renderer() -> Any:
    """tinygrad's rules by which an expression is rendered. They moved after 0.12."""
    for name in ("tinygrad.uop.render", "tinygrad.uop.ops"):
        try:
            module: Any = importlib.import_module(name)
        except ImportError:
            continue
        if hasattr(module, "renderer"):
            return module.renderer
    raise AttributeError("this tinygrad has no rules to render an expression with")


def size_of(s: Any) -> int | str:
    """Returns the size of an axis: a number, or a symbolic size as tinygrad renders it."""
    if not hasattr(s, "op"):
        return int(s)
    if s.op.name == "CONST":
        return s.arg
    return s.render()


def sizes_of(sizes: Iterable[Any] | None) -> tuple[int | str, ...] | None:
    """The same of each axis; None where there are no axes to speak of."""
    if sizes is None:
        return None
    return tuple(map(size_of, sizes))


def largest_of(s: Any) -> int:
    """Returns the size of an axis, of a symbolic one its largest."""
    return int(s.vmax) if hasattr(s, "op") else int(s)


def find_values(u: UOp) -> tuple[UOp, ...]:
    """Returns the sources that a UOp computes with: not its sizes, and not the place that a STORE writes to."""
    # an enum finds its name anew each time
    op = u.op.name
    if op in _PLACES:
        return ()
    if op == "STORE":
        return u.src[1:2]
    if op in _SHAPED:
        return u.src[:1]
    return u.src
