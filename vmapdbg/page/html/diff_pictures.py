"""The drawings of a page with two sides: before and after of the schedules that changed most."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from vmapdbg.diff import ScheduleDiff
from vmapdbg.page.html.graph import Row, Side, draw_schedule
from vmapdbg.page.html.nodes import NodeKey, name_node
from vmapdbg.page.html.pictures import Drawing, Picture
from vmapdbg.page.overview import KernelRow, group_kernels
from vmapdbg.page.view import View

_MOST_PAIRS = 3
"""So many pairs of schedules are drawn, those with the largest change of work."""

Rows = Mapping[tuple[str, int], Mapping[int, Row]]
"""For each side and schedule the kernels by their numbers, with the rows of the page that they belong to."""


def draw_pairs(
    comparison: View, groups: Sequence[KernelRow], rows: Rows, name_before: Callable[[NodeKey], str]
) -> list[Drawing]:
    """Returns the drawings of the schedules with the largest changes; `groups` are the changes of kernels, the largest
    first, and `name_before` says what the page calls a node of before."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:

        def draw_side(side: str, index: int | None) -> list[Callable[[], Picture]]:
            """Has a schedule laid out, by a process of its own."""
            if index is None:
                return []
            capture = comparison.before if side == "before" else comparison.after
            schedule = next(schedule for schedule in capture.schedules if schedule.index == index)

            def name_own(node: int) -> str:
                key = index, node
                return name_before(key) if side == "before" else name_node(key)

            drawn = Side(side, rows.get((side, index), {}), name_own)
            return [pool.submit(partial(draw_schedule, capture, schedule, kernels[side], side=drawn)).result]

        kernels = {
            "before": group_kernels(View.of_one(comparison.before)),
            "after": group_kernels(View.of_one(comparison.after)),
        }
        pairs = [[*draw_side("before", item.before), *draw_side("after", item.after)] for item in _choose(groups)]
        return [Drawing(tuple(wait() for wait in pair)) for pair in pairs]


def _choose(groups: Sequence[KernelRow]) -> list[ScheduleDiff]:
    """The schedules with the largest change, one of each kind; where nothing changed those with most work."""
    by_change: dict[tuple[str, ...], ScheduleDiff] = {}
    for group in groups:
        for place in group.places[:1]:
            kernels = place.pair.kernels
            names = tuple(side.kernel.name for change in kernels for side in (*change.before, *change.after))
            by_change.setdefault(names, place.pair)
    return list(by_change.values())[:_MOST_PAIRS]
