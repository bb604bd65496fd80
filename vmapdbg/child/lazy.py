"""What a snippet left lazy when it ended: runs in the child."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def schedule_lazy(values: Sequence[Any], realize: bool) -> None:
    """Schedules, and does not run unless `realize`, the Tensors that no other one of them is made from."""
    from tinygrad.tensor import Tensor

    from vmapdbg.child.adapters import find_adapter

    adapter = find_adapter()
    tensors = list(dict.fromkeys(find_tensors(values, Tensor)))
    lazy = [t for t in tensors if not adapter.is_settled(t) and not t.uop.ranges]
    inner = {u for t in lazy for u in t.uop.base.toposort() if u is not t.uop.base}
    ends = [t for t in lazy if t.uop.base not in inner]
    if ends and realize:
        ends[0].realize(*ends[1:])
    elif ends:
        adapter.schedule(ends)


def find_tensors(values: Sequence[Any], kind: type) -> list[Any]:
    """Returns the Tensors among some values, and those in lists, tuples and dicts of them."""
    found = []
    for value in values:
        if isinstance(value, kind):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += find_tensors(value, kind)
        elif type(value) is dict:
            found += find_tensors(list(value.values()), kind)
    return found
