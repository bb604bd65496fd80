"""Bounds of addresses and ranges: what holds for every step, and what is really reached. Runs in the child."""

from __future__ import annotations

from vmapdbg.child.program.expressions import Undecided, highest_of, lowest_of
from vmapdbg.child.program.linear import UOp, Value
from vmapdbg.child.program.linear_reader import read_values
from vmapdbg.child.program.reach import find_reach, split_conditions


def bound_address(address: Value, gate: Value | None) -> tuple[int, int]:
    """Returns bounds that hold where the gate does: those of tinygrad, narrowed by what the gate compares."""
    known: dict[Value, tuple[int, int]] = {}
    for condition in split_conditions(gate) if gate is not None else ():
        compared = read_comparison(condition)
        if compared is not None:
            value, low, high = compared
            before = known.get(value, (lowest_of(value), highest_of(value)))
            known[value] = max(before[0], low), min(before[1], high)

    def bound(value: Value) -> tuple[int, int]:
        if value not in known:
            low, high = lowest_of(value), highest_of(value)
            if value.op in {"add", "mul", "shl", "sub"}:
                (a, b), (c, d) = bound(value.sources[0]), bound(value.sources[1])
                if value.op == "add":
                    ends = [a + c, b + d]
                elif value.op == "sub":
                    ends = [a - d, b - c]
                else:
                    c, d = (c, d) if value.op == "mul" else (1 << max(c, 0), 1 << min(max(d, 0), 64))
                    ends = [a * c, a * d, b * c, b * d]
                # tinygrad's bounds of what it knows, ours where the gate says more
                if any(source in known for source in value.sources):
                    low, high = min(ends), max(ends)
            known[value] = low, high
        return known[value]

    return bound(address)


def read_comparison(condition: Value) -> tuple[Value, int, int] | None:
    """Returns what a condition says of an expression: (expression, lowest, highest)."""
    flipped = condition.op == "ne" and condition.sources[1].constant == 1
    test = condition.sources[0] if flipped else condition
    if test.op != "lt":
        return None
    left, right = test.sources
    if right.constant is not None:
        edge = int(right.constant)
        return (left, edge, highest_of(left)) if flipped else (left, lowest_of(left), edge - 1)
    if left.constant is not None:
        edge = int(left.constant)
        return (right, lowest_of(right), edge) if flipped else (right, edge + 1, highest_of(right))
    return None


def find_outside(index: UOp, size: int) -> tuple[int, int] | None:
    """Returns the bounds of the range (a UOp of the scheduler) that indexes an axis of `size` elements, where a step of
    it leaves the axis.

    None where no step does, or where that is not known. tinygrad wraps such an index around when it flattens the
    axes, so that the address in the kernel stays in the buffer, and reads something else.
    """
    low, high = index.vmin, index.vmax
    if isinstance(low, int) and isinstance(high, int) and low >= 0 and high < size:
        return None
    (address, valid), loops = read_values(index.get_idx(), index.get_valid())
    if any(loop.symbolic for loop in loops):
        return None
    try:
        reach = find_reach(address, valid, {loop: loop.trips for loop in loops}, 1)
    except Undecided:
        return None
    if not reach.steps or (reach.lowest >= 0 and reach.highest < size):
        return None
    return reach.lowest, reach.highest
