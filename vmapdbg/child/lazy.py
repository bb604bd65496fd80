"""What a snippet left lazy when it ended: runs in the child."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vmapdbg.child.listen.releases import is_computed, schedule_tensors


def schedule_lazy(values: Sequence[Any], realize: bool) -> None:
    """Schedules, and does not run unless `realize`, the Tensors that no other one of them is made from."""
    from tinygrad.tensor import Tensor

    tensors = list(dict.fromkeys(find_tensors(values, Tensor)))
    lazy = [t for t in tensors if not is_computed(t) and not t.uop.ranges]
    inner = {u for t in lazy for u in t.uop.base.toposort() if u is not t.uop.base}
    ends = [t for t in lazy if t.uop.base not in inner]
    if ends and realize:
        ends[0].realize(*ends[1:])
    elif ends:
        schedule_tensors(ends)


def find_tensors(values: Sequence[Any], kind: type) -> list[Any]:
    """Returns the Tensors among some values, and those in lists, tuples and dicts of them, each container once."""
    found = []
    # a container may contain itself
    opened = set()
    waiting = list(reversed(values))
    while waiting:
        value = waiting.pop()
        if isinstance(value, kind):
            found.append(value)
        elif id(value) not in opened:
            opened.add(id(value))
            waiting += reversed(list_inner(value))
    return found


def list_inner(value: Any) -> list[Any]:
    """Returns what is in a list, a tuple or a dict, nothing for anything else."""
    if type(value) is dict:
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple)) else []
