"""The tensor core of a WMMA: which elements of its matrices each thread holds, by tinygrad's own description of the
core, and the product. A is M x K, B is K x N; C and D are M x N."""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vmapdbg.child.memory import name_dtype
from vmapdbg.child.program.uops import shape_of
from vmapdbg.reference.graph import Unknown
from vmapdbg.values.numbers import Numbers

UOp = Any
Axes = Sequence[tuple[int, int]]
"""Ranges by number, with their sizes: their steps are the lanes of a vector, the last one changes first."""
Layout = NDArray[np.int64]
"""The indices on N, M and K of the element in each lane of each thread."""


class Core(NamedTuple):
    """What a WMMA says of its core: the sizes N, M and K, the dtype of A and B, the threads of a warp, and how many
    elements of C a thread has (`lanes`). While A, B and C still have ranges in place of lanes, `axes` has these ranges
    of each; later it is None."""

    dims: tuple[int, int, int]
    dtype: str
    threads: int
    lanes: int
    axes: Sequence[Axes] | None

    def multiply(self, a: Numbers, b: Numbers, c: Numbers) -> Numbers:
        """Returns what each thread holds of A * B + C, of what it holds of each: the axes are warps, threads, products
        and lanes. Raises Unknown."""
        parts = [one.swapaxes(1, 2) for one in (a, b, c)]
        of_a, of_b, of_c = _find_layouts(self.dims, self.dtype, self.threads, tuple(one.shape[-1] for one in parts))
        columns, rows, depth = self.dims
        left = np.zeros((*parts[0].shape[:2], rows, depth), c.dtype)
        right = np.zeros((*parts[1].shape[:2], depth, columns), c.dtype)
        left[:, :, of_a[1], of_a[2]] = parts[0]
        right[:, :, of_b[2], of_b[0]] = parts[1]
        with np.errstate(all="ignore"):
            return (parts[2] + (left @ right)[:, :, of_c[1], of_c[0]]).swapaxes(1, 2)


def read_core(wmma: UOp) -> Core:
    # before 0.14 a name comes first, and the dtype of the sum is the fourth
    is_named = isinstance(wmma.arg[0], str)
    dims, dtype, threads, axes = (wmma.arg[i] for i in ((1, 2, 5, 6) if is_named else (0, 1, 3, 4)))
    lanes = shape_of(wmma)[-1] if axes is None else math.prod(size for _, size in axes[2])
    return Core(dims, name_dtype(dtype), threads, lanes, axes)


def show_lanes(sink: UOp) -> UOp:
    """Returns a graph in which each WMMA is a vector: in 0.14 it is a scalar until its ranges become lanes."""
    nodes = list(sink.toposort())
    ranges = {u.arg[0]: u for u in nodes if u.op.name == "RANGE"}
    shown: dict[UOp, UOp] = {}
    for u in nodes:
        if u.op.name == "WMMA" and not isinstance(u.arg[0], str) and u.arg[4] is not None and u.tag is None:
            axes = [(ranges[number], size) for number, size in u.arg[4][2] if size > 1]
            # the tag keeps it apart from the scalar
            shown[u] = u.rtag("vector").index(functools.reduce(lambda lane, axis: lane * axis[1] + axis[0], axes, 0))
    return sink.substitute(shown) if shown else sink


def list_lanes(axes: Axes) -> Iterator[dict[int, int]]:
    """Yields the step of each range for each lane."""
    for steps in itertools.product(*(range(size) for _, size in axes)):
        yield {number: step for (number, _), step in zip(axes, steps, strict=True)}


@functools.cache
def _find_layouts(
    dims: tuple[int, int, int], dtype: str, threads: int, lanes: tuple[int, int, int]
) -> tuple[Layout, Layout, Layout]:
    """Returns how A, B and C are spread over threads and lanes. Raises Unknown."""
    from tinygrad.codegen.opt import tc

    for core in itertools.chain.from_iterable(one for one in vars(tc).values() if isinstance(one, list)):
        known = core.dims, name_dtype(core.dtype_in), core.threads, core.elements_per_thread
        if known == (dims, dtype, threads, lanes):
            names = [f"l{i}" for i in range(len(core.get_local_axes()))]
            names += [f"u{i}" for i in range(len(core.get_upcast_axes()))]
            names += [f"r{i}" for i in range(len(core.get_reduce_axes()))]
            carried = [*(sum(swizzle, ()) for swizzle in core.swizzle), names]
            held = zip(carried, lanes, strict=True)
            a, b, c = (_lay_out(core, dict(zip(names, of, strict=True)), count) for of, count in held)
            return a, b, c
    raise Unknown("tinygrad has no tensor core for its WMMA")


def _lay_out(core: Any, carried: dict[str, str], lanes: int) -> Layout:
    """Returns the layout of a matrix: each bit of a thread and of a lane is that bit of an index that it carries."""
    dims = [*(int(opt[1]) for opt in core.opts), *(2 for _ in core.get_reduce_axes())]
    names = core.base_shape_str()
    bits = lanes.bit_length() - 1
    thread, lane = np.indices((core.threads, lanes))
    found = np.zeros((3, core.threads, lanes), np.int64)
    sources = {f"l{i}": thread >> i & 1 for i in range(len(core.get_local_axes()))}
    # the first axis changes last
    sources |= {name: lane >> i & 1 for i, name in enumerate(core.base_upcast_axes()[:bits][::-1])}
    for name, bit in sources.items():
        place = names.index(carried[name])
        found[dims[place]] += bit << dims[:place].count(dims[place])
    return found
