"""The results of each op for a single element on stock tinygrad: the value, the gradient and the tangent.

`python -m func_ops.oracle FILE NAME/LAYOUT/KIND...` from the folder tests/overlay: a process with no overlay.

The gradient is `Tensor.gradient`. The tangent is computed from it, without our code: for the cotangent c, the sum of
gradient * tangent is linear in c, and its gradient by c is the derivative along the tangent.
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
OF_OUTER: list[Key] = [((i, 0), (i, 0)) for i in range(OUTER)]
# the first argument is not mapped: over the inner level, over any level
FIRST_WHOLE: list[Key] = [((i, 0), (i, j)) for i in range(OUTER) for j in range(INNER)]
FIRST_ALONE: list[Key] = [((0, 0), (i, 0)) for i in range(OUTER)]
LAYOUTS = {"every": EVERY, "of outer": OF_OUTER, "first whole": FIRST_WHOLE, "first alone": FIRST_ALONE}


def evaluate(op: Op, keys: list[Key], kind: str) -> list[np.ndarray]:
    """Returns the stacks over the keys: the values, the tangents, or the gradients by each float argument."""
    rows = []
    for key in keys:
        # a graph for each of them: when one is realized, stock may use its constants for another
        first, *others = build(op, key, kind)
        rows.append([first.numpy(), *[build(op, key, kind)[i].numpy() for i in range(1, 1 + len(others))]])
    return [np.stack(row) for row in zip(*rows, strict=True)]


def build(op: Op, key: Key, kind: str) -> list[Any]:
    from tinygrad import Tensor

    def one(batch: np.ndarray, index: tuple[int, int], dtype: Any = None) -> Tensor:
        return Tensor(np.array(batch[index]), dtype=dtype).realize()

    at = [key[0]] + [key[1]] * (len(op.args) - 1)
    xs = [one(a, i) for a, i in zip(op.arrays(), at, strict=True)]
    y = op.fn(*xs)
    if kind == "values":
        return [y]
    moving = [(x, t, i) for x, t, i in zip(xs, op.tangents(), at, strict=True) if x.is_floating_point()]
    ct = one(op.cotangents(y.shape), key[1], y.dtype)
    g = y.gradient(*[x for x, _, _ in moving], gradient=ct, materialize_grads=True)
    if kind == "gradients":
        return g
    total = sum((a * one(t, i)).sum() for a, (_, t, i) in zip(g, moving, strict=True))
    return list(total.gradient(ct, materialize_grads=True))


def main(file: str, *wanted: str) -> None:
    from tinygrad import Device

    if "tinygrad_overlay" in sys.modules:
        raise SystemExit("the oracle runs without the overlay")
    from .table import OPS

    Device.DEFAULT = "PYTHON"
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    for name, layout, kind in (place.rsplit("/", 2) for place in wanted):
        op = OPS[name] if layout in {"every", "of outer"} else OPS[name].with_scale()
        for i, stack in enumerate(evaluate(op, LAYOUTS[layout], kind)):
            found[f"{name}/{layout}/{kind} {i}"] = stack
    with Path(file).open("wb") as out:
        np.savez(out, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
