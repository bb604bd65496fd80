"""The choices of a random program: from a seed, or repeated from a list. A shorter list gives a smaller program."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

P = TypeVar("P")


class Draw:
    """Makes choices, and keeps them in `made`, each as a number from 0 on."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def next(self, count: int) -> int:
        """Returns the next choice: an integer below `count`."""
        raise NotImplementedError

    def integer(self, low: int, high: int) -> int:
        self.made.append(self.next(high - low + 1))
        return low + self.made[-1]

    def choice(self, items: Sequence[Any]) -> Any:
        return items[self.integer(0, len(items) - 1)]

    def chance(self, percent: int) -> bool:
        raise NotImplementedError


class SeededDraw(Draw):
    """Makes the same choices for the same seed."""

    def __init__(self, seed: Any):
        super().__init__()
        self.random = random.Random(repr(seed))

    def next(self, count: int) -> int:
        return self.random.randrange(count)

    def chance(self, percent: int) -> bool:
        self.made.append(int(self.random.random() * 100 < percent))
        return self.made[-1] == 1


class RepeatedDraw(Draw):
    """Repeats choices. A choice that is too large becomes the largest possible, and a missing choice becomes 0."""

    def __init__(self, choices: Sequence[int]):
        super().__init__()
        self.choices = iter(choices)

    def next(self, count: int) -> int:
        return min(next(self.choices, 0), count - 1)

    def chance(self, percent: int) -> bool:
        return self.integer(0, 1) == 1


def shrink(
    draw: Draw, generate: Callable[[Draw], P], fails: Callable[[P], bool], refused: type[Exception], seconds: float
) -> P:
    """Returns the smallest program for which `fails` holds that is found in this time. `draw` made the choices of the
    first program; `generate` raises `refused` if choices give no program."""
    end = time.monotonic() + seconds
    choices = draw.made
    program = generate(RepeatedDraw(choices))
    tried = {repr(program)}
    progress = True
    while progress:
        progress = False
        for candidate in _simplify(choices):
            if time.monotonic() > end:
                return program
            repeated = RepeatedDraw(candidate)
            try:
                smaller = generate(repeated)
            except refused:
                continue
            if _size_of(repeated.made) >= _size_of(choices) or repr(smaller) in tried:
                continue
            tried.add(repr(smaller))
            if fails(smaller):
                choices, program, progress = repeated.made, smaller, True
                break
    return program


def _size_of(choices: list[int]) -> tuple[int, list[int]]:
    return len(choices), choices


def _simplify(choices: list[int]) -> Iterator[list[int]]:
    """Yields simpler choices: with a part left out, or with one choice smaller."""
    for length in (64, 48, 32, 24, *range(16, 0, -1)):
        for start in range(len(choices) - length, -1, -1):
            yield choices[:start] + choices[start + length :]
    for at, choice in enumerate(choices):
        for smaller in sorted({0, choice // 2, choice - 1} - {choice, -1}):
            yield [*choices[:at], smaller, *choices[at + 1 :]]
