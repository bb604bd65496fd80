"""Groups what is equal: the layers of a network, the same change in many places."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

_T = TypeVar("_T")


def group_equal(items: Iterable[_T], identity: Callable[[_T], Hashable]) -> list[list[_T]]:
    """Returns the items in groups: those with the same `identity` together, groups and members in their first order."""
    groups: dict[Hashable, list[_T]] = {}
    for item in items:
        groups.setdefault(identity(item), []).append(item)
    return list(groups.values())
