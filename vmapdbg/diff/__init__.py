"""Compares two captures: what the scheduler did differently, and what came of it. Nothing here knows tinygrad."""

from vmapdbg.diff.captures import diff_captures
from vmapdbg.diff.nodes import match_nodes
from vmapdbg.diff.result import (
    DIFF_SCHEMA,
    BufferizeChange,
    CaptureDiff,
    KernelChange,
    KernelSide,
    NodeChange,
    PrintedDiff,
    SameNode,
    ScheduleDiff,
    Side,
    Totals,
    ValueDiff,
    VmapChange,
)
from vmapdbg.diff.schedules import match_schedules

__all__ = [
    "DIFF_SCHEMA",
    "BufferizeChange",
    "CaptureDiff",
    "KernelChange",
    "KernelSide",
    "NodeChange",
    "PrintedDiff",
    "SameNode",
    "ScheduleDiff",
    "Side",
    "Totals",
    "ValueDiff",
    "VmapChange",
    "diff_captures",
    "match_nodes",
    "match_schedules",
]
