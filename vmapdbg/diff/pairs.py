"""Which nodes and kernels of two schedules are the same, for who draws or judges them side by side."""

from __future__ import annotations

from dataclasses import dataclass

from vmapdbg.diff.kernels import compare_kernels
from vmapdbg.diff.neutral import Reading, read_neutrally
from vmapdbg.diff.nodes import have_same_graph, match_nodes
from vmapdbg.model.capture import Schedule, Versions


@dataclass(frozen=True)
class Pairs:
    """For the ids of the nodes of before those of after. `kernels` are the numbers of kernels that are the same, None
    where their keys tell."""

    nodes: dict[int, int]
    kernels: dict[int, int] | None


def have_same_tinygrad(before: Versions, after: Versions) -> bool:
    """Tells whether both sides ran on one tinygrad. A checkout with changes may have had others the other time."""
    one, other = ((side.tinygrad, side.tree, side.commit) for side in (before, after))
    return one == other and not (before.commit or "").endswith("-dirty")


def pair_schedules(before: Schedule, after: Schedule, *, same_tinygrad: bool) -> Pairs:
    """Returns what is the same in two schedules; of two tinygrads what means the same."""
    if same_tinygrad or have_same_graph(before, after):
        return Pairs(match_nodes(before, after), None)
    left, right = read_neutrally(before), read_neutrally(after)
    heads = match_nodes(left.compared, right.compared, loosely=True)
    kernels = compare_kernels(left.compared, right.compared, heads, loosely=True)
    same = {item.before[0].number: item.after[0].number for item in kernels if item.status == "unchanged"}
    return Pairs(_pair_nodes(left, right, heads), same)


def _pair_nodes(left: Reading, right: Reading, heads: dict[int, int]) -> dict[int, int]:
    pairs = dict(heads)
    for one, other in heads.items():
        stored_before, stored_after = left.shown.get(one, one), right.shown.get(other, other)
        if stored_before != one and stored_after != other:
            pairs[stored_before] = stored_after
    # what only writes a value in another way may be written alike all the same
    free_before, free_after = {node.id for node in left.folded}, {node.id for node in right.folded}
    alike = match_nodes(left.schedule, right.schedule).items()
    return pairs | {one: other for one, other in alike if one in free_before and other in free_after}
