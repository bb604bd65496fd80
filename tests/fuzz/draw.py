"""Where the choices of a random program come from."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol


class Draw(Protocol):
    def integer(self, low: int, high: int) -> int: ...
    def choice(self, items: Sequence[Any]) -> Any: ...
    def chance(self, percent: int) -> bool: ...


class SeededDraw:
    """Choices from a seed: the same ones each time."""

    def __init__(self, seed: Any):
        self.random = random.Random(repr(seed))

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def choice(self, items: Sequence[Any]) -> Any:
        return self.random.choice(items)

    def chance(self, percent: int) -> bool:
        return self.random.random() * 100 < percent
