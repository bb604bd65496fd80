"""The tree of the user's functions: what each costs with all that it calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from vmapdbg.model.capture import Capture, Node
from vmapdbg.model.schedule_index import index_of
from vmapdbg.page.overview import Cost, rank_cost, sum_kernels


class FunctionRow(NamedTuple):
    """A function of the user with all that it calls, or one line of it: its place in the tree of calls, its name, or
    `file:number`, and its cost. A kernel counts once: at the line of its main node."""

    depth: int
    name: str
    cost: Cost


def count_functions(capture: Capture, least: float = 0) -> list[FunctionRow]:
    """Returns the tree of the user's functions, callers first, the most costly first, without those that have a smaller
    share of the whole than `least`. A function that only calls one other is one row with it."""
    costs: dict[tuple[int | None, str | None], Cost] = {}

    def list_rows(node: Node | None) -> list[Cost]:
        if node is None or node.function is None:
            return []
        keys: list[tuple[int | None, str | None]] = [(node.function, node.line)]
        function: int | None = node.function
        while function is not None:
            keys.append((function, None))
            function = capture.functions[function].caller
        return [costs.setdefault(key, Cost()) for key in keys]

    programs = Counter(kernel.source for kernel in capture.kernels)
    for schedule in capture.schedules:
        index = index_of(schedule)
        for kernel in schedule.kernels:
            for cost in list_rows(index.node(kernel.main)):
                cost.add(kernel, programs[kernel.source])
        for made in schedule.bufferizes:
            if made.outcome == "kept" and made.addrspace == "GLOBAL":
                for cost in list_rows(index.node(made.node)):
                    cost.held += made.bytes
    return [*_list_called(capture, costs, None, 0, least)]


def _list_called(
    capture: Capture, costs: dict[tuple[int | None, str | None], Cost], caller: int | None, depth: int, least: float
) -> Iterator[FunctionRow]:
    """Yields the lines of a function and the functions that it calls, with what they call."""
    whole = sum_kernels(capture)
    called: list[tuple[Cost, str, int | None]] = []
    for (function, line), cost in costs.items():
        assert function is not None
        if line is not None and function == caller:
            called.append((cost, line, None))
        elif line is None and capture.functions[function].caller == caller:
            called.append((cost, capture.functions[function].name, function))
    for cost, name, function in sorted(called, key=lambda item: rank_cost(item[0])):
        share = cost.seconds / whole.seconds if whole.seconds else cost.ops / max(whole.ops, 1)
        if share < least:
            continue
        below: list[FunctionRow] = []
        if function is not None:
            below = [*_list_called(capture, costs, function, depth + 1, least)]
        if below and below[0].cost.kernels == cost.kernels:
            name = f"{name} > {below[0].name}"
            below = [row._replace(depth=row.depth - 1) for row in below[1:]]
        yield FunctionRow(depth, name, cost)
        yield from below
