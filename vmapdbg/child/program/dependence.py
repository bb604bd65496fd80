"""What a value of a linear program is computed from, through registers and LOCAL memory. Runs in the child."""

from __future__ import annotations

from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def find_data(*values: UOp, through_local: bool = True) -> set[UOp]:
    """Returns all that values are computed from. What only orders (the loop around an AFTER) is not followed.

    Without `through_local` what other threads stored to LOCAL memory does not count, only where it is read.
    """
    found: set[UOp] = set()
    todo = list(values)
    while todo:
        u = todo.pop()
        if u in found:
            continue
        found.add(u)
        if u.op is Ops.AFTER:
            todo.append(u.src[0])
            if not through_local and find_memory(u).op is Ops.DEFINE_LOCAL:
                continue
            todo += [store for s in u.src[1:] for store in _stores_of(s)]
        elif u.op not in {Ops.RANGE, Ops.SPECIAL, Ops.DEFINE_VAR}:
            todo += u.src
    return found


def _stores_of(u: UOp) -> list[UOp]:
    while u.op in {Ops.END, Ops.BARRIER} and len(u.src):
        u = u.src[0]
    if u.op is Ops.GROUP:
        return [store for s in u.src for store in _stores_of(s)]
    return [u] if u.op is Ops.STORE else []


def find_memory(pointer: UOp) -> UOp:
    while pointer.op in {Ops.AFTER, Ops.CAST}:
        pointer = pointer.src[0]
    return pointer
