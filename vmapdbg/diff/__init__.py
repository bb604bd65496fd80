"""Compares two captures: what the scheduler did differently, and what came of it. Nothing here knows tinygrad."""

from vmapdbg.diff.captures import diff_captures
from vmapdbg.diff.nodes import match_nodes
from vmapdbg.diff.pairs import Pairs, have_same_tinygrad, pair_schedules
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
