"""Has tinygrad's functions and PatternMatchers call one of ours in their place."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def put_around(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replaces a function of a module or a method of a class by `around`, which gets it and its arguments."""
    stock = vars(owner)[name]

    @functools.wraps(stock)
    def watched(*args: Any, **kwargs: Any) -> Any:
        return around(stock, *args, **kwargs)

    setattr(owner, name, watched)


class WatchedMatcher:
    """A PatternMatcher; for its `rewrite`, `around` is called with the stock method and the arguments."""

    def __init__(self, stock: Any, around: Callable[..., Any]):
        self._stock, self._around = stock, around

    def rewrite(self, *arguments: Any, **options: Any) -> Any:
        return self._around(self._stock.rewrite, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stock, name)
