"""Watches what the snippet realizes, so that the oracle can compute it again. Runs in the child.

The snippet runs once. Inputs are read before its kernels run, the buffer of each kernel right after it ran: tinygrad
gives the memory of one buffer to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vmapdbg.child.diagnosis import EndlessRewrite
from vmapdbg.child.evidence.cut_gradients import GradientWatcher
from vmapdbg.child.evidence.folder import EvidenceFolder
from vmapdbg.child.evidence.lost_writes import WriteWatcher
from vmapdbg.child.evidence.realize_call import RealizeCall
from vmapdbg.child.evidence.replays import ReplayWatcher
from vmapdbg.child.record.recorder import Recorder
from vmapdbg.overlay import load_patching


class Collector:
    """Hooks into tinygrad and passes on what happens: to the call of `Tensor.realize` that runs now, and to the replays
    of TinyJit. They write their evidence to a folder."""

    def __init__(self, folder: Path, recorder: Recorder):
        self.folder, self.recorder = EvidenceFolder(folder), recorder
        self.current: RealizeCall | None = None
        self.replays = ReplayWatcher(self.folder)
        self.writes = WriteWatcher()
        self.gradients = GradientWatcher()

    def watch(self, tensor_module: Any) -> None:
        """Wraps what all that looks at values goes through: `Tensor.realize`, the scheduler's entry, ExecItem.lower and
        run; and what TinyJit does. Raises UnknownShape."""
        from tinygrad.engine.realize import ExecItem

        run_parameters = ("self", "_var_vals", "wait", "jit", "do_update_stats")
        with load_patching().Changes("evidence for check") as changes:
            changes.wrap(tensor_module.Tensor, "realize", self.on_realize, "self", "lst", "do_update_stats")
            changes.wrap(tensor_module, "complete_create_schedule_with_vars", self.on_schedule, "big_sink")
            changes.wrap(ExecItem, "lower", self.on_lower, "self")
            changes.wrap(ExecItem, "run", self.on_run, *run_parameters)
            self.replays.declare(changes)
            self.writes.declare(changes, tensor_module)
            self.gradients.declare(changes, tensor_module)

    def on_realize(self, realize: Callable[..., Any], tensor: Any, *others: Any, **options: Any) -> Any:
        asked = [t for t in (tensor, *others) if not t.uop.is_contiguous()]
        if not asked or self.current is not None:
            return realize(tensor, *others, **options)
        self.current = RealizeCall(self.folder, self.recorder, asked)
        try:
            result = realize(tensor, *others, **options)
        except (Exception, EndlessRewrite) as error:
            self.current.fail(error)
            raise
        else:
            self.current.finish()
        finally:
            self.current = None
        return result

    def on_schedule(self, schedule: Callable[..., Any], big_sink: Any) -> Any:
        if self.current is None:
            return schedule(big_sink)
        self.current.start(big_sink)
        self.current.evidence.lost += self.writes.find_lost(big_sink)
        self.current.evidence.cut += self.gradients.take()
        made = schedule(big_sink)
        self.current.scheduled(made[1], made[2])
        self.replays.note_call(self.current)
        return made

    def on_lower(self, lower: Callable[..., Any], item: Any) -> Any:
        if self.current is None:
            return lower(item)
        before, self.current.busy = self.current.busy, item
        result = lower(item)
        self.current.busy = before
        return result

    def on_run(self, run: Callable[..., Any], item: Any, *arguments: Any, **options: Any) -> Any:
        if self.current is None:
            return run(item, *arguments, **options)
        self.current.busy = item
        self.current.runs(item)
        result = run(item, *arguments, **options)
        self.current.busy = None
        self.current.ran(item)
        return result

    def close(self) -> None:
        """Writes what is only known when the snippet is done."""
        self.replays.close()
