"""What a comparison of values costs: `python -m bench.compare [--elements N] [--runs N]`.

Arrays of 1,000,000 floats that are wrong in several ways: the time of a comparison with its search for a pattern (at
most 0.5 s), and that time over the one of numpy's own `allclose` on the same arrays, which only says whether they
differ. Medians; the two take turns in one run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from vmapdbg.check.compare import compare
from vmapdbg.values.numbers import Array

Floats = NDArray[np.float32]

TERMS = 1000


def make_wrong(right: Floats) -> Iterator[tuple[str, Floats]]:
    """Yields arrays of the same shape that differ, each with what is wrong with it."""
    chance = np.random.default_rng(1)
    yield "no pattern", right + chance.standard_normal(right.shape, np.float32)
    one = right.copy()
    one.flat[one.size // 3] += 1
    yield "one element", one
    yield "a lost range", np.broadcast_to(right[-1:], right.shape).copy()
    yield "scaled", right * np.float32(3)
    rounded = right * np.float32(1 + 2**-22)
    yield "rounding alone", rounded


def make_shapes(elements: int) -> list[tuple[int, ...]]:
    """Returns shapes of about so many elements: of one axis, and of many, each of which is searched."""
    shapes = []
    for axes in (1, 2, 3, 6):
        shapes.append((round(elements ** (1 / axes)),) * axes)
    return shapes


def measure(task: Callable[[], object]) -> float:
    started = time.perf_counter()
    task()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    for shape in make_shapes(options.elements):
        right = np.random.default_rng(0).standard_normal(shape, np.float32)
        for name, wrong in make_wrong(right):
            got, expected = (Array(side.tobytes(), "float", shape) for side in (wrong, right))
            ours, theirs = [], []
            for _ in range(options.runs):
                ours.append(measure(lambda got=got, expected=expected: compare(got, expected, TERMS)))
                theirs.append(measure(lambda wrong=wrong, right=right: np.allclose(wrong, right)))
            seconds, plain = statistics.median(ours), statistics.median(theirs)
            sizes = "x".join(map(str, shape))
            print(f"{sizes:<20} {name:<15} {seconds:6.3f} s, {seconds / plain:5.1f} times allclose")


if __name__ == "__main__":
    main()
