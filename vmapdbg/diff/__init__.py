"""Compares two captures: what the scheduler did differently, and the results. Nothing here knows tinygrad."""

from vmapdbg.diff.captures import diff_captures, diff_schedules, have_same_tinygrad
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
    "ScheduleDiff",
    "Side",
    "Totals",
    "ValueDiff",
    "diff_captures",
    "diff_schedules",
    "have_same_tinygrad",
    "match_nodes",
    "match_schedules",
]
