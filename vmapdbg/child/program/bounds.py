"""Bounds of addresses and ranges: what holds for every step, and what is really reached. Runs in the child."""

from __future__ import annotations

from vmapdbg.child.program.expressions import Undecided, highest_of, lowest_of
from vmapdbg.child.program.linear import UOp, Value
from vmapdbg.child.program.linear_reader import read_values
from vmapdbg.child.program.reach import find_reach, split_conditions


def bound_address(address: Value, gate: Value | None) -> tuple[int, int]:
    """Returns bounds that hold where the gate does: those of tinygrad, narrowed by what the gate compares."""
    known: dict[Value, tuple[int, int]] = {}
    for condition in split_conditions(gate):
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
                if value.op == "shl":
                    # by how much it multiplies
                    c, d = 1 << max(c, 0), 1 << min(max(d, 0), 64)
                if value.op == "add":
                    ends = [a + c, b + d]
                elif value.op == "sub":
                    ends = [a - d, b - c]
                else:
                    ends = [a * c, a * d, b * c, b * d]
                # tinygrad's bounds of what it knows, ours where the gate says more
                if any(source in known for source in value.sources):
                    low, high = min(ends), max(ends)
            known[value] = low, high
        return known[value]

    return bound(address)


def read_comparison(condition: Value) -> tuple[Value, int, int] | None:
    """Returns what a condition says of an expression: (expression, lowest, highest)."""
    # tinygrad writes `not x < y` as `(x < y) != True`
    flipped = condition.op == "ne" and condition.sources[1].constant == 1
    if flipped:
        condition = condition.sources[0]
    if condition.op != "lt":
        return None
    left, right = condition.sources
    if right.constant is not None:
        value, edge, is_below = left, int(right.constant), not flipped
    elif left.constant is not None:
        # edge < value; not so is value < edge + 1
        value, edge, is_below = right, int(left.constant) + 1, flipped
    else:
        return None
    if is_below:
        return value, lowest_of(value), edge - 1
    return value, edge, highest_of(value)


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
