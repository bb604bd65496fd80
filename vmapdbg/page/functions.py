"""The tree of the user's functions: what each costs with all that it calls."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from vmapdbg.model.capture import Capture, Node
from vmapdbg.model.schedule_index import index_of, kernel_identity
from vmapdbg.page.overview import Cost, rank_cost, sum_kernels

Key = tuple[int | None, str | None]
"""A function, by its index, and a line of it; None: the function with all that it calls."""


class FunctionRow(NamedTuple):
    """A function of the user with all that it calls, or one line of it: its place in the tree of calls, its name, or
    `file:number`, and its cost. A kernel counts once: at the line of its main node. `repeats` is how often all kernels
    of the row repeat, as the kernels of equal layers do."""

    depth: int
    name: str
    cost: Cost
    repeats: int


def count_functions(capture: Capture, least: float = 0) -> list[FunctionRow]:
    """Returns the tree of the user's functions, callers first, the most costly first, without those that have a smaller
    share of the whole than `least`. A function that only calls one other is one row with it."""
    costs: dict[Key, Cost] = {}
    kinds: dict[Key, Counter[str]] = {}

    def list_rows(node: Node | None) -> list[Key]:
        if node is None or node.function is None:
            return []
        keys: list[Key] = [(node.function, node.line)]
        function: int | None = node.function
        while function is not None:
            keys.append((function, None))
            function = capture.functions[function].caller
        return keys

    programs = Counter(kernel.source for kernel in capture.kernels)
    for schedule in capture.schedules:
        index = index_of(schedule)
        for kernel in schedule.kernels:
            for key in list_rows(index.node(kernel.main)):
                costs.setdefault(key, Cost()).add(kernel, programs[kernel.source])
                kinds.setdefault(key, Counter())[kernel_identity(kernel)] += 1
        for made in schedule.bufferizes:
            if made.holds_memory:
                for key in list_rows(index.node(made.node)):
                    costs.setdefault(key, Cost()).held += made.bytes
    repeats = {key: math.gcd(*counts.values()) for key, counts in kinds.items()}
    whole = sum_kernels(capture)
    for key, cost in list(costs.items()):
        share = cost.seconds / whole.seconds if whole.seconds else cost.ops / max(whole.ops, 1)
        if share < least:
            del costs[key]
    return [*_list_called(capture, costs, repeats, None, 0)]


def _list_called(
    capture: Capture, costs: dict[Key, Cost], repeats: dict[Key, int], caller: int | None, depth: int
) -> Iterator[FunctionRow]:
    """Yields the lines of a function and the functions that it calls, with what they call."""
    called: list[tuple[Cost, str, Key]] = []
    for (function, line), cost in costs.items():
        assert function is not None
        if line is not None and function == caller:
            called.append((cost, line, (function, line)))
        elif line is None and capture.functions[function].caller == caller:
            called.append((cost, capture.functions[function].name, (function, None)))
    for cost, name, key in sorted(called, key=lambda item: rank_cost(item[0])):
        below: list[FunctionRow] = []
        if key[1] is None:
            below = [*_list_called(capture, costs, repeats, key[0], depth + 1)]
        if below and below[0].cost.kernels == cost.kernels:
            name = f"{name} > {below[0].name}"
            below = [row._replace(depth=row.depth - 1) for row in below[1:]]
        yield FunctionRow(depth, name, cost, repeats.get(key, 1))
        yield from below
