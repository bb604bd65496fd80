"""Watches what the snippet realizes on a tinygrad that is observed, of any release. Runs in the child."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from vmapdbg.child.evidence.collector import Collector
from vmapdbg.child.evidence.observed_call import ObservedCall
from vmapdbg.child.failures.known_nodes import KnownNodes, read_nodes
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.install.overlay import load_patching


class ObservedCollector(Collector):
    """Goes without the launches, and without the replays, where tinygrad has another shape there."""

    def __init__(self, folder: Path, recorder: Recorder):
        super().__init__(folder, recorder)
        self.observing = recorder

    def watch(self, tensor_module: ModuleType) -> None:
        """Wraps what can be wrapped. Raises UnknownShape where `Tensor.realize` is not what it should be."""
        with load_patching().Changes("evidence for check") as changes:
            self.declare_calls(changes, tensor_module)
        self._try("the buffers between kernels", lambda changes: self.declare_launches(changes, tensor_module))
        self._try("replays by TinyJit", self.declare_replays)

    def _try(self, part: str, declare: Callable[[Any], None]) -> None:
        try:
            with load_patching().Changes("evidence for check") as changes:
                declare(changes)
        except ImportError as unknown:
            self.observing.leave_out(part, unknown)

    def make_call(self, asked: Sequence[Any]) -> ObservedCall:
        return ObservedCall(self.folder, asked)

    def read_nodes(self) -> KnownNodes:
        return read_nodes(self.recorder)
