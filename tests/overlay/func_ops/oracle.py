"""What each op gives for a single element on stock tinygrad: the value, the gradient and the tangent.

`python -m func_ops.oracle FILE NAME/LAYOUT...` from the folder tests/overlay: a process with no overlay.

The gradient is `Tensor.gradient`. The tangent is made of it too, and of nothing of ours: for the cotangent c, the sum
of gradient * tangent is linear in c, and its gradient by c is the derivative along the tangent.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .data import INNER, OUTER, Op

# which element each argument gives: (outer, inner) of the first argument, and of the others
Key = tuple[tuple[int, int], tuple[int, int]]
EVERY: list[Key] = [((i, j), (i, j)) for i in range(OUTER) for j in range(INNER)]
# the first argument is not mapped: over the inner level, over any level
FIRST_WHOLE: list[Key] = [((i, 0), (i, j)) for i in range(OUTER) for j in range(INNER)]
FIRST_ALONE: list[Key] = [((0, 0), (i, 0)) for i in range(OUTER)]
LAYOUTS = {"every": EVERY, "first whole": FIRST_WHOLE, "first alone": FIRST_ALONE}


class Expected:
    """The results of one op: for each layout, the stack over its keys."""

    def __init__(self, values: np.ndarray, gradients: list[np.ndarray], tangents: np.ndarray | None):
        self.values, self.gradients, self.tangents = values, gradients, tangents


def evaluate(op: Op, keys: list[Key]) -> Expected:
    results = [results_at(op, key) for key in keys]
    gradients = [np.stack(rows) for rows in zip(*[r[2:] for r in results], strict=True)]
    return Expected(
        np.stack([r[0] for r in results]), gradients, np.stack([r[1] for r in results]) if op.moves else None
    )


def results_at(op: Op, key: Key) -> list[np.ndarray]:
    """The value, the tangent and the gradient by each float argument; the value alone of what is not differentiated."""
    at = [key[0]] + [key[1]] * (len(op.args) - 1)
    if not op.moves:
        return [build(op, at, key)[0].numpy()]
    # a graph for each of them: where one is realized, stock may put its constants in the place of another's
    count = len(build(op, at, key))
    return [build(op, at, key)[i].numpy() for i in range(count)]


def build(op: Op, at: list[tuple[int, int]], key: Key) -> list[Any]:
    from tinygrad import Tensor

    def one(batch: np.ndarray, index: tuple[int, int], dtype: Any = None) -> Tensor:
        return Tensor(np.array(batch[index]), dtype=dtype).realize()

    xs = [one(a, i) for a, i in zip(op.arrays(), at, strict=True)]
    y = op.fn(*xs)
    if not op.moves:
        return [y]
    moving = [(x, one(t, i)) for x, t, i in zip(xs, op.tangents(), at, strict=True) if x.is_floating_point()]
    ct = one(op.cotangents(y.shape), key[1], y.dtype)
    g = y.gradient(*[x for x, _ in moving], gradient=ct, materialize_grads=True)
    total = sum((a * t).sum() for a, (_, t) in zip(g, moving, strict=True))
    (tangent,) = total.gradient(ct, materialize_grads=True)
    return [y, tangent, *g]


def main(file: str, *wanted: str) -> None:
    from tinygrad import Device

    if "tinygrad_overlay" in sys.modules:
        raise SystemExit("the oracle runs without the overlay")
    from .table import OPS

    Device.DEFAULT = "PYTHON"
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    for name, layout in (place.rsplit("/", 1) for place in wanted):
        expected = evaluate(OPS[name] if layout == "every" else OPS[name].with_scale(), LAYOUTS[layout])
        found[f"{name}/{layout}/values"] = expected.values
        for i, g in enumerate(expected.gradients):
            found[f"{name}/{layout}/gradient {i}"] = g
        if expected.tangents is not None:
            found[f"{name}/{layout}/tangents"] = expected.tangents
    with Path(file).open("wb") as out:
        np.savez(out, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
