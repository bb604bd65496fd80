"""Watches what the snippet realizes on patched tinygrad 0.12.0. Runs in the child."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vmapdbg.child.evidence.collector import Collector
from vmapdbg.child.evidence.overlay_call import OverlayCall
from vmapdbg.child.failures.known_nodes import KnownNodes, read_overlay_nodes


class OverlayCollector(Collector):
    """All that it wraps is there, or it wraps nothing."""

    def make_call(self, asked: Sequence[Any]) -> OverlayCall:
        return OverlayCall(self.folder, asked)

    def read_nodes(self) -> KnownNodes:
        return read_overlay_nodes(self.recorder)
