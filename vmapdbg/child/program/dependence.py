"""What a value of a linear program is computed from, through registers and LOCAL memory. Runs in the child."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vmapdbg.child.program.linear import Access, Value


@dataclass
class Data:
    """What values are computed from: other values, and what is loaded and stored on the way."""

    values: set[Value] = field(default_factory=set)
    accesses: set[Access] = field(default_factory=set)


def find_data(*values: Value, loaded: Mapping[Value, Access], through_local: bool = True) -> Data:
    """Returns all that values are computed from; `loaded` has the access of each load (LinearProgram.loaded).

    What only orders (the loop around a store) is not followed. Without `through_local` what other threads stored to
    LOCAL memory does not count, only where it is read.
    """
    data = Data()
    todo = list(values)
    while todo:
        value = todo.pop()
        if value in data.values:
            continue
        data.values.add(value)
        todo += value.sources
        if value in loaded:
            for access in follow_stores(loaded[value], through_local):
                data.accesses.add(access)
                todo += access.addressing
                if access.is_store:
                    todo.append(access.value)
    return data


def follow_stores(access: Access, through_local: bool = True) -> list[Access]:
    """Returns an access, the stores that it follows, those that these follow, and so on."""
    found: dict[Access, None] = {}
    todo = [access]
    while todo:
        access = todo.pop()
        if access in found:
            continue
        found[access] = None
        if through_local or access.buffer.space != "local":
            todo += access.follows
    return list(found)
