"""How long `check` will compare, estimated from the graphs before it starts."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import click

from vmapdbg.model.capture import Schedule
from vmapdbg.model.schedule_index import ScheduleIndex, index_of
from vmapdbg.model.wording import format_plural, format_seconds

# how fast numpy computes graphs, for a rough estimate: on the programs of bench/checked it is up to five times off
_ELEMENTS_A_SECOND, _SECONDS_EACH = 3e7, 0.05
_PRODUCTS = 10
"""So many elements of a product that is summed up take as long as one of anything else: a matrix product."""
_FREE = frozenset({"BUFFER", "CONST", "DEVICE", "EXPAND", "FLIP", "PERMUTE", "RESHAPE", "SHRINK"})
"""Nodes that numpy has no work with."""
_LONG = 10.0
"""Seconds of a comparison that is announced."""


def count_work(schedule: Schedule) -> int:
    """Returns how many elements the graph of a schedule has numpy compute, those of a symbolic shape apart."""
    index = index_of(schedule)
    work = 0
    for node in schedule.nodes:
        if node.op in _FREE or node.shape is None or not all(str(size).isdecimal() for size in node.shape):
            continue
        elements = math.prod(map(int, node.shape))
        work += elements // _PRODUCTS if node.op == "MUL" and _is_summed(index, node.id) else elements
    return work


def _is_summed(index: ScheduleIndex, node: int) -> bool:
    readers = index.readers.get(node, ())
    return bool(readers) and all(reader.op == "REDUCE_AXIS" for reader in readers)


def tell_estimate(work: Sequence[int]) -> None:
    """Says on a terminal that a comparison by numpy will take long; `work` is that of each schedule."""
    seconds = sum(work) / _ELEMENTS_A_SECOND + len(work) * _SECONDS_EACH
    if seconds > _LONG and sys.stderr.isatty():
        told = f"{format_plural(len(work), 'schedule')} to compare, roughly {format_seconds(seconds)}"
        click.echo(f"vmapdbg: {told}; Ctrl-C shows what is compared by then", err=True)
