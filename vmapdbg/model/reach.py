"""Goes through a graph of any kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def reach(starts: Iterable[T], follow: Callable[[T], Iterable[T]]) -> dict[T, None]:
    """Returns some items, and all items that `follow` gives for any of these, each once. The last item that it gives
    comes first."""
    found: dict[T, None] = {}
    todo = list(starts)
    while todo:
        item = todo.pop()
        if item not in found:
            found[item] = None
            todo += follow(item)
    return found
