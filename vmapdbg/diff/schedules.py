"""Which schedule of the one run is which of the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from vmapdbg.diff.nodes import HashConsing, number_values
from vmapdbg.diff.pairing import match_by_levels, match_in_order, share
from vmapdbg.model.capture import Schedule

# Below this share of common nodes two schedules are not the same one, changed.
_LEAST_ALIKE = 0.3
# Nor below this share of nodes of a kind, whatever they are computed from.
_LEAST_OF_A_KIND = 0.5
# That two schedules of two edits are asked for at the same line counts as so large a share.
_SAME_LINE = 0.25
# How far two changed schedules may stand from each other: a run can make thousands.
_WINDOW = 64


def match_schedules(
    before: Sequence[Schedule], after: Sequence[Schedule], same_lines: Mapping[str, str] | None = None
) -> list[tuple[int | None, int | None]]:
    """Pairs positions in `before` and `after` by what the schedules compute: the same graph first, then the most
    nodes in common, then the most nodes of a kind, then the order. A schedule without a partner stands with None.
    `same_lines` has for lines of before those of after.

    The result is in the order of `after`; what only `before` has follows what stood before it there.
    """
    cons = HashConsing()
    counts = [[_count_values(item, cons) for item in side] for side in (before, after)]
    graphs = [{i: cons(*sorted(count.items())) for i, count in enumerate(side)} for side in counts]
    matched = match_by_levels([graphs[0]], [graphs[1]])
    lines = same_lines or {}

    def is_same_line(i: int, j: int) -> bool:
        # of one program the lines say nothing that the graphs do not
        line = before[i].line
        return bool(lines) and line is not None and lines.get(line, line) == after[j].line

    matched |= _match_alike(counts[0], counts[1], matched, _LEAST_ALIKE, is_same_line)
    # an edit near the inputs changes what nearly every node computes
    kinds = [[_count_kinds(item, cons) for item in side] for side in (before, after)]
    matched |= _match_alike(kinds[0], kinds[1], matched, _LEAST_OF_A_KIND, is_same_line)
    matched |= _match_empty(before, after, matched, lines)
    return _order_pairs(len(before), len(after), matched)


def _count_values(schedule: Schedule, cons: HashConsing) -> Counter[int]:
    return Counter(number_values(schedule.nodes, cons).values())


def _count_kinds(schedule: Schedule, cons: HashConsing) -> Counter[int]:
    return Counter(cons("kind", node.op, node.dtype, node.shape, node.arg) for node in schedule.nodes)


def _match_alike(
    before: Sequence[Counter[int]],
    after: Sequence[Counter[int]],
    matched: dict[int, int],
    least: float,
    is_same_line: Callable[[int, int], bool],
) -> dict[int, int]:
    taken = set(matched.values())
    rest_before = [i for i in range(len(before)) if i not in matched]
    rest_after = [i for i in range(len(after)) if i not in taken]
    scored: list[tuple[float, int, int, int]] = []
    for row, i in enumerate(rest_before):
        first = max(row - _WINDOW, 0)
        for other, j in enumerate(rest_after[first : row + _WINDOW], first):
            alike = share((before[i] & after[j]).total(), before[i].total() + after[j].total())
            if alike >= least:
                scored.append((-alike - _SAME_LINE * is_same_line(i, j), abs(row - other), i, j))
    return match_in_order((i, j) for _, _, i, j in sorted(scored))


def _match_empty(
    before: Sequence[Schedule], after: Sequence[Schedule], matched: dict[int, int], same_lines: Mapping[str, str]
) -> dict[int, int]:
    """A schedule that was refused before the pass saw it has no nodes: the line it was asked for at decides."""
    taken = set(matched.values())
    rest_before = [(i, item) for i, item in enumerate(before) if i not in matched and item.line is not None]
    rest_after = [(j, item) for j, item in enumerate(after) if j not in taken]
    return match_in_order(
        (i, j)
        for i, one in rest_before
        for j, other in rest_after
        if same_lines.get(one.line or "", one.line) == other.line and not (one.nodes and other.nodes)
    )


def _order_pairs(before: int, after: int, matched: dict[int, int]) -> list[tuple[int | None, int | None]]:
    partner = {j: i for i, j in matched.items()}
    pairs: list[tuple[int | None, int | None]] = []
    waiting = [i for i in range(before) if i not in matched]
    for j in range(after):
        i = partner.get(j)
        while i is not None and waiting and waiting[0] < i:
            pairs.append((waiting.pop(0), None))
        pairs.append((i, j))
    return [*pairs, *((i, None) for i in waiting)]
