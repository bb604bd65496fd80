"""Which products of a graph are only summed up, and their sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from vmapdbg.reference.graph import Graph, Node
from vmapdbg.reference.sums import add_products
from vmapdbg.values.numbers import Numbers
from vmapdbg.values.tolerance import EPSILON, is_float


@dataclass(frozen=True)
class Product:
    """A product that a sum alone reads. `inside` are the nodes that need not be made, from the source of the reduce
    down to the product, whose sources are `sources`. With `is_choice` it is a choice between a number and zero, which
    is that number times the condition as 0 or 1; `is_turned`: the zero is what is chosen."""

    inside: tuple[int, ...]
    sources: tuple[int, ...]
    is_choice: bool = False
    is_turned: bool = False


def find_products(
    graph: Graph, reached: Sequence[int], asked: Collection[int], known: Collection[int]
) -> dict[int, Product]:
    """Returns the products of the nodes reached, by the position of the reduce that sums each up. What is asked for, or
    known, is not inside of one."""
    readers = Counter(source for slot in reached for source in graph.nodes[slot].src)
    kept = {*asked, *known}
    found: dict[int, Product] = {}
    for slot in reached:
        node = graph.nodes[slot]
        if node.op != "reduce" or node.arg[0] != "add" or node.arg[3] or slot in known:
            continue
        product = _find_product(graph, slot, readers, kept)
        if product is not None:
            found[slot] = product
    return found


def _find_product(graph: Graph, slot: int, readers: Counter[int], kept: Collection[int]) -> Product | None:
    inside: list[int] = []
    below = graph.nodes[slot].src[0]
    while readers[below] == 1 and below not in kept:
        node = graph.nodes[below]
        inside.append(below)
        if node.op == "mul" and node.dtype != "bool":
            return Product(tuple(inside), node.src)
        if node.op == "where":
            return _find_choice(graph, node, tuple(inside))
        if node.op != "permute" and not _only_widens(graph, node):
            return None
        below = node.src[0]
    return None


def _only_widens(graph: Graph, node: Node) -> bool:
    if node.op != "cast" or not is_float(node.dtype):
        return False
    source = graph.nodes[node.src[0]].dtype
    return is_float(source) and EPSILON[node.dtype] <= EPSILON[source]


def _find_choice(graph: Graph, node: Node, inside: tuple[int, ...]) -> Product | None:
    _, one, other = node.src
    if node.dtype == "bool":
        return None
    if _is_zero(graph, other):
        return Product(inside, node.src, is_choice=True)
    if _is_zero(graph, one):
        return Product(inside, node.src, is_choice=True, is_turned=True)
    return None


def _is_zero(graph: Graph, slot: int) -> bool:
    while graph.nodes[slot].op in {"reshape", "expand"}:
        slot = graph.nodes[slot].src[0]
    node = graph.nodes[slot]
    return node.op == "const" and node.arg == 0


def sum_product(graph: Graph, product: Product, reduce: Node, sources: Sequence[Numbers], steps: int) -> Numbers | None:
    """Returns the sum, in double precision where it is of floats; None where the product has to be made. `sources` can
    be broadcast against each other, and have the axes of `steps` step ranges first."""
    one, other = sources[0], sources[-1]
    if product.is_choice:
        other = sources[1]
        if product.is_turned:
            one, other = ~one, sources[2]
        if other.dtype.kind == "f" and not np.isfinite(other).all():
            # zero times an infinity is none
            return None
        one = one.astype(other.dtype)
    _, axes, keep, _ = reduce.arg
    batch = np.broadcast_shapes(one.shape, other.shape)[:steps]
    shape = graph.nodes[product.inside[-1]].shape
    moved = [np.broadcast_to(operand, (*batch, *shape)) for operand in (one, other)]
    for inner in reversed(product.inside[:-1]):
        node = graph.nodes[inner]
        if node.op == "permute":
            order = (*range(steps), *(steps + axis for axis in node.arg))
            moved = [operand.transpose(order) for operand in moved]
    places = tuple(steps + axis for axis in axes)
    total = add_products(moved[0], moved[1], places)
    if total is None or keep:
        return total
    return np.squeeze(total, places)
