"""Bounds of addresses and ranges: what holds for every step, and what is really reached. Runs in the child."""

from __future__ import annotations

from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

from vmapdbg.child.program.expressions import Undecided
from vmapdbg.child.program.reach import find_reach, split_conditions


def bound_address(address: UOp, gate: UOp | None) -> tuple[int, int]:
    """Returns bounds that hold where the gate does: those of tinygrad, narrowed by what the gate compares."""
    known: dict[UOp, tuple[int, int]] = {}
    for condition in split_conditions(gate) if gate is not None else ():
        compared = read_comparison(condition)
        if compared is not None:
            u, low, high = compared
            before = known.get(u, (int(u.vmin), int(u.vmax)))
            known[u] = max(before[0], low), min(before[1], high)

    def bound(u: UOp) -> tuple[int, int]:
        if u not in known:
            low, high = int(u.vmin), int(u.vmax)
            if u.op in {Ops.ADD, Ops.MUL, Ops.SHL, Ops.SUB}:
                (a, b), (c, d) = bound(u.src[0]), bound(u.src[1])
                if u.op is Ops.ADD:
                    ends = [a + c, b + d]
                elif u.op is Ops.SUB:
                    ends = [a - d, b - c]
                else:
                    c, d = (c, d) if u.op is Ops.MUL else (1 << max(c, 0), 1 << min(max(d, 0), 64))
                    ends = [a * c, a * d, b * c, b * d]
                # tinygrad's bounds of what it knows, ours where the gate says more
                low, high = (min(ends), max(ends)) if _uses_any(u, known) else (low, high)
            known[u] = low, high
        return known[u]

    return bound(address)


def _uses_any(u: UOp, known: dict[UOp, tuple[int, int]]) -> bool:
    return any(s in known for s in u.src)


def read_comparison(condition: UOp) -> tuple[UOp, int, int] | None:
    """Returns what a condition says of an expression: (expression, lowest, highest)."""
    flipped = condition.op is Ops.CMPNE and condition.src[1].op is Ops.CONST and condition.src[1].arg == 1
    test = condition.src[0] if flipped else condition
    if test.op is not Ops.CMPLT:
        return None
    left, right = test.src
    if right.op is Ops.CONST:
        edge = int(right.arg)
        return (left, edge, int(left.vmax)) if flipped else (left, int(left.vmin), edge - 1)
    if left.op is Ops.CONST:
        edge = int(left.arg)
        return (right, int(right.vmin), edge) if flipped else (right, edge + 1, int(right.vmax))
    return None


def find_outside(index: UOp, size: int) -> tuple[int, int] | None:
    """Returns the bounds of the range that indexes an axis of `size` elements, where a step of it leaves the axis.

    None where no step does, or where that is not known. tinygrad wraps such an index around when it flattens the
    axes, so that the address in the kernel stays in the buffer, and reads something else.
    """
    low, high = index.vmin, index.vmax
    if isinstance(low, int) and isinstance(high, int) and low >= 0 and high < size:
        return None
    address, valid = index.get_idx(), index.get_valid()
    loops = [u for u in UOp.sink(address, valid).toposort() if u.op is Ops.RANGE]
    if any(loop.src[0].op is not Ops.CONST for loop in loops):
        return None
    try:
        reach = find_reach(address, valid, {loop: int(loop.vmax) + 1 for loop in loops}, 1)
    except Undecided:
        return None
    if not reach.steps or (reach.lowest >= 0 and reach.highest < size):
        return None
    return reach.lowest, reach.highest
