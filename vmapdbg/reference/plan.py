"""Which nodes of a graph are computed for what is asked, and from what each of them is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from vmapdbg.reference.graph import Graph
from vmapdbg.reference.products import find_products
from vmapdbg.reference.views import list_sources
from vmapdbg.reference.windows import find_windows


class Plan:
    """`order` has the nodes to be computed, sources first. `products` and `windows` have those that are computed from
    others than their sources, by position: what stands between is not among the nodes of `order`."""

    def __init__(self, graph: Graph, asked: Sequence[int], known: Collection[int]):
        """`known` are the nodes whose values are there."""
        self.graph = graph
        reached = graph.reach(asked, known)
        self.products = find_products(graph, reached, asked, known)
        self.windows = find_windows(graph, reached, asked, known)
        self.order = self._reach_sources(asked, known)
        made = (*self.products.values(), *self.windows.values())
        assert not {*self.order} & {slot for one in made for slot in one.inside}

    def count_readers(self) -> Counter[int]:
        """Returns how many nodes of the plan read each."""
        return Counter(source for slot in self.order for source in self.list_sources(slot))

    def list_sources(self, slot: int) -> Sequence[int]:
        """Returns the nodes whose values a node is computed from."""
        node = self.graph.nodes[slot]
        if slot in self.products:
            return self.products[slot].sources
        if slot in self.windows:
            return (self.windows[slot].source,)
        if node.op == "after":
            return list_sources(self.graph, slot)
        if node.op == "assign":
            return node.src[1:2]
        if node.op == "store":
            return ()
        return node.src

    def _reach_sources(self, asked: Sequence[int], known: Collection[int]) -> list[int]:
        found: set[int] = set()
        stack = list(asked)
        while stack:
            slot = stack.pop()
            if slot not in found and slot not in known:
                found.add(slot)
                stack += self.list_sources(slot)
        return sorted(found)
