"""What stands for a PatternMatcher of tinygrad whose rules are looked at as they are applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class WatchedMatcher:
    """A PatternMatcher; for its `rewrite`, `around` is called with the stock method and the arguments."""

    def __init__(self, stock: Any, around: Callable[..., Any]):
        self._stock, self._around = stock, around

    def rewrite(self, *arguments: Any, **options: Any) -> Any:
        return self._around(self._stock.rewrite, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stock, name)
