"""Compares two captures: what the scheduler did differently, and the results. Nothing here knows tinygrad."""

from vmapdbg.diff.captures import Pairs, diff_captures, have_same_tinygrad, pair_schedules
from vmapdbg.diff.nodes import match_nodes, match_schedules
from vmapdbg.diff.result import (
    BufferizeChange,
    CaptureDiff,
    KernelChange,
    KernelSide,
    NodeChange,
    ScheduleDiff,
    Side,
    Totals,
    ValueDiff,
)

__all__ = [
    "BufferizeChange",
    "CaptureDiff",
    "KernelChange",
    "KernelSide",
    "NodeChange",
    "Pairs",
    "ScheduleDiff",
    "Side",
    "Totals",
    "ValueDiff",
    "diff_captures",
    "have_same_tinygrad",
    "match_nodes",
    "match_schedules",
    "pair_schedules",
]
