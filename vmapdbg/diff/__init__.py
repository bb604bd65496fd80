"""Compares two captures: what the scheduler did differently, and what came of it. Nothing here knows tinygrad."""

from vmapdbg.diff.captures import diff_captures
from vmapdbg.diff.nodes import match_nodes
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
from vmapdbg.diff.schedules import match_schedules

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
    "match_nodes",
    "match_schedules",
]
