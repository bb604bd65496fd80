"""A map from objects to what is known about them. Runs in the child."""

from collections.abc import Iterator, MutableMapping
from typing import Any, TypeVar
from weakref import ref

V = TypeVar("V")


class IdentityMap(MutableMapping[Any, V]):
    """Maps objects, by identity, to values. It adds nothing to them, and forgets an object that nothing else holds."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[ref[Any], V]] = {}

    def __getitem__(self, key: Any) -> V:
        return self._known[id(key)][1]

    def __setitem__(self, key: Any, value: V) -> None:
        number, known = id(key), self._known
        # called before another object can have the id
        known[number] = ref(key, lambda _: known.pop(number, None)), value

    def __delitem__(self, key: Any) -> None:
        del self._known[id(key)]

    def __iter__(self) -> Iterator[Any]:
        held = (reference() for reference, _ in list(self._known.values()))
        return (key for key in held if key is not None)

    def __len__(self) -> int:
        return len(self._known)
