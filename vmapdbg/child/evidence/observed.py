"""Watches what the snippet realizes on a tinygrad that is observed, of any release, so that the numpy reference can
compute it again. Runs in the child.

`Tensor.realize` is looked at, before and after: the graph and its inputs, and then what the tensors hold; and between
the two each launch of its schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from vmapdbg.child.adapters.launches import Step, watch_launches, watch_schedules
from vmapdbg.child.adapters.replays import watch_captures
from vmapdbg.child.diagnosis import EndlessRewrite, diagnose
from vmapdbg.child.diagnosis.known_nodes import read_observed_nodes
from vmapdbg.child.evidence.cut_gradients import GradientWatcher
from vmapdbg.child.evidence.folder import EvidenceFolder
from vmapdbg.child.evidence.lost_writes import WriteWatcher
from vmapdbg.child.evidence.observed_call import ObservedCall
from vmapdbg.child.evidence.replays import ReplayWatcher
from vmapdbg.child.record.observe import ObservingRecorder
from vmapdbg.model.wording import first_line
from vmapdbg.overlay import load_patching

UOp = Any


class ObservedCollector:
    """Writes the evidence of each call of `Tensor.realize` that makes a schedule to a folder."""

    def __init__(self, folder: Path, recorder: ObservingRecorder):
        self.folder, self.recorder = EvidenceFolder(folder), recorder
        self._call: ObservedCall | None = None
        self.replays = ReplayWatcher(self.folder)
        self.writes = WriteWatcher()
        self.gradients = GradientWatcher()

    @property
    def is_busy(self) -> bool:
        """Whether a call runs."""
        return self._call is not None

    def watch(self, tensor_module: ModuleType) -> None:
        """Wraps `Tensor.realize`, what it has scheduled and run, and what TinyJit does. Raises UnknownShape where the
        first is not what it should be."""
        with load_patching().Changes("evidence for check") as changes:
            changes.wrap(tensor_module.Tensor, "realize", self.on_realize, "self", "lst", "do_update_stats")
            self.writes.declare(changes, tensor_module)
            self.gradients.declare(changes, tensor_module)
        try:
            with load_patching().Changes("evidence for check") as changes:
                watch_schedules(changes, tensor_module, self.on_schedule)
                watch_launches(changes, tensor_module, self)
        except ImportError as unknown:
            self.recorder.lost.append(f"the buffers between kernels: {unknown}")
        try:
            with load_patching().Changes("evidence for check") as changes:
                self.replays.declare(changes)
                watch_captures(changes, self.on_capture)
        except ImportError as unknown:
            self.recorder.lost.append(f"replays by TinyJit: {unknown}")

    def close(self) -> None:
        """Writes what is only known when the snippet is done."""
        self.replays.close()

    def on_realize(self, realize: Callable[..., Any], tensor: Any, *others: Any, **options: Any) -> Any:
        asked = [t for t in (tensor, *others) if not _is_settled(t)]
        if not asked or self._call is not None:
            return realize(tensor, *others, **options)
        self._call = call = ObservedCall(self.folder, asked)
        before = len(self.recorder.schedules)
        try:
            call.start()
            call.evidence.lost += self.writes.find_lost(call.roots[0].sink(*call.roots[1:]))
            call.evidence.cut += self.gradients.take()
            result = realize(tensor, *others, **options)
        except (Exception, EndlessRewrite) as error:
            call.evidence.failed = f"{type(error).__name__}: {first_line(error)}"
            call.evidence.crash = diagnose(error, read_observed_nodes(self.recorder))
            raise
        else:
            call.finish([schedule.passed for schedule in self.recorder.schedules[before:]])
        finally:
            self._call = None
            if len(self.recorder.schedules) > before:
                call.evidence.schedule = len(self.recorder.schedules) - 1
                call.evidence.line = self.recorder.schedules[-1].line
                call.write()
        return result

    def on_schedule(self, schedule: Callable[..., Any], asked: Any) -> Any:
        if self._call is not None:
            self._call.scheduled = asked
            self._call.launches.holds = self.replays.note_call(self._call)
        return schedule(asked)

    def on_capture(self, keep: Callable[..., Any], tiny: Any, linear: UOp, variables: Any) -> Any:
        if self._call is not None:
            self._call.captured = linear
        return keep(tiny, linear, variables)

    # *** launches

    def begins(self, steps: Sequence[Step]) -> None:
        if self._call is not None and self._call.is_kept:
            self._call.launches.begins(steps)

    def before(self, index: int, buffers: Sequence[Any]) -> None:
        if self._call is not None and self._call.is_kept:
            self._call.launches.before(index, buffers)

    def after(self, index: int, buffers: Sequence[Any]) -> None:
        if self._call is not None and self._call.is_kept:
            self._call.launches.after(index, buffers)


def _is_settled(tensor: Any) -> bool:
    """Tells whether tinygrad has nothing to realize for a tensor, as it does."""
    u = tensor.uop
    if getattr(u, "is_virtual", False) or u.device is None:
        return True
    ask = getattr(u, "has_buffer_identity", None) or u.is_contiguous
    return ask()
