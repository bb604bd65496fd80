"""What one element of an argument is, and the batch of them. Knows numpy only."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

# the batch: 5 elements at the outer level and 2 in each of them
OUTER, INNER = 5, 2


@dataclass(frozen=True)
class Arg:
    """One argument: the shape of one element, and what its numbers are drawn from."""

    shape: tuple[int, ...]
    draw: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

    def batch(self, name: str) -> np.ndarray:
        """Returns (OUTER, INNER, *shape), another row for each element and the same for each `name`."""
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        return np.asarray(self.draw(rng, (OUTER, INNER, *self.shape)))


@dataclass(frozen=True)
class Op:
    """A function of one element. `moves`: whether it is differentiated by its float arguments."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Arg, ...]
    moves: bool

    def arrays(self) -> list[np.ndarray]:
        return [arg.batch(f"{self.name} {i}") for i, arg in enumerate(self.args)]

    def tangents(self) -> list[np.ndarray]:
        return [floats(*arg.shape).batch(f"{self.name} tangent {i}") for i, arg in enumerate(self.args)]

    def cotangents(self, shape: tuple[int, ...]) -> np.ndarray:
        """For a result of `shape`."""
        return floats(*shape).batch(f"{self.name} cotangent")

    def with_scale(self) -> Op:
        """The function with a second argument: an argument that is not mapped needs a mapped argument next to it."""
        if len(self.args) > 1:
            return self
        return Op(self.name, lambda x, scale: self.fn(x) * scale, (*self.args, positive()), self.moves)


def between(low: float, high: float, *shape: int) -> Arg:
    """Floats, spread evenly: no two are close together, so that no order or rounding is decided by the last bit."""

    def draw(rng: np.random.Generator, whole: tuple[int, ...]) -> np.ndarray:
        count = int(np.prod(whole))
        steps = (rng.permutation(count) + rng.uniform(0.2, 0.8, count)) / count
        return (low + (high - low) * steps).reshape(whole).astype(np.float32)

    return Arg(shape, draw)


def floats(*shape: int) -> Arg:
    return between(-2, 2, *shape)


def positive(*shape: int) -> Arg:
    return between(0.3, 2.5, *shape)


def unit(*shape: int) -> Arg:
    return between(-0.9, 0.9, *shape)


def integers(low: int, high: int, *shape: int) -> Arg:
    """int32 from low to high-1."""
    return Arg(shape, lambda rng, whole: rng.integers(low, high, whole).astype(np.int32))


def bools(*shape: int) -> Arg:
    return Arg(shape, lambda rng, whole: rng.integers(0, 2, whole).astype(np.bool_))


def some_of(values: list[float], *shape: int) -> Arg:
    """Floats out of a few: ties, zeros, infinities."""
    return Arg(shape, lambda rng, whole: rng.choice(np.array(values, dtype=np.float32), whole))


X = floats(2, 3)


def op(name: str, fn: Callable[..., Any], *args: Arg, moves: bool = True) -> Op:
    return Op(name, fn, args or (X,), moves)
