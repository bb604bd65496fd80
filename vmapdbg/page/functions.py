"""The tree of the user's functions: what each costs with all that it calls."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vmapdbg.model.capture import Capture, Node
from vmapdbg.model.schedule_index import ScheduleIndex, index_of
from vmapdbg.model.vocabulary import Sort
from vmapdbg.page.overview import Cost, sum_costs, sum_kernels

Key = tuple[int, str | None]
"""A function, by its index, and a line of it; None: the function with all that it calls."""


class FunctionRow(NamedTuple):
    """A user's function with all that it calls, or a line of it (`file:number`). A kernel counts at its main node."""

    name: str
    cost: Cost
    below: "list[FunctionRow]"

    def walk(self, depth: int = 0) -> "Iterator[tuple[int, FunctionRow]]":
        """Yields the row and all rows below it, with their depths."""
        yield depth, self
        for row in self.below:
            yield from row.walk(depth + 1)


def path_of(capture: Capture, node: Node) -> tuple[Key, ...]:
    """Returns the functions of a node from the outermost on, then its line; nothing if its function is unknown."""
    function = node.function
    path: list[Key] = [] if function is None else [(function, node.line)]
    while function is not None:
        path.append((function, None))
        function = capture.functions[function].caller
    return tuple(reversed(path))


def count_functions(capture: Capture, least: float = 0, sort: Sort | None = None) -> list[FunctionRow]:
    """Returns the tree of the user's functions, without those whose share is below `least`. A function that only calls
    another one has no row of its own."""

    def list_keys(index: ScheduleIndex, node_id: int | None) -> Sequence[Key]:
        node = index.node(node_id)
        return () if node is None else path_of(capture, node)

    costs = sum_costs(capture, lambda index, kernel: list_keys(index, kernel.main))
    for schedule in capture.schedules:
        for made in schedule.bufferizes:
            if made.holds_memory:
                for key in list_keys(index_of(schedule), made.node):
                    costs.setdefault(key, Cost()).held += made.bytes
    whole = sum_kernels(capture)
    called: dict[int | None, list[tuple[Key, Cost]]] = defaultdict(list)
    for (function, line), cost in costs.items():
        share = cost.seconds / whole.seconds if whole.seconds else cost.ops / max(whole.ops, 1)
        if share >= least:
            above = capture.functions[function].caller if line is None else function
            called[above].append(((function, line), cost))

    def list_called(caller: int | None) -> list[FunctionRow]:
        """Returns the lines of a function and the functions that it calls, with what they call."""
        rows: list[FunctionRow] = []
        for (function, line), cost in called[caller]:
            name, below = line, list[FunctionRow]()
            if name is None:
                name, below = capture.functions[function].name, list_called(function)
            whole = next((row for row in below if row.cost.kernels == cost.kernels), None)
            if whole is not None:
                name = f"{name} > {whole.name}"
                below = [*whole.below, *(row for row in below if row is not whole)]
            rows.append(FunctionRow(name, cost, below))
        return sorted(rows, key=lambda row: row.cost.rank_by(sort, row.name))

    return list_called(None)
