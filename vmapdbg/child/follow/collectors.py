"""Has the passes of each call of `Tensor.realize` kept, with what the call reads. Runs in the child."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from vmapdbg.child.evidence.observed import ObservedCollector
from vmapdbg.child.evidence.realize_call import RealizeCall
from vmapdbg.child.follow.records import Watched
from vmapdbg.child.follow.watch import PassWatcher
from vmapdbg.child.listen.launches import watch_schedules
from vmapdbg.child.listen.recorder import ObservingRecorder
from vmapdbg.install.overlay import load_patching

UOp = Any
_SHARDED = frozenset({"MULTI", "UNSHARD", "MSTACK", "MSELECT", "ALLREDUCE"})


@dataclass
class FollowedCall:
    """One call of `Tensor.realize` that was scheduled: `call` is its evidence, `scheduled` the graph that the scheduler
    was given, and `seen` what became of it: no passes where the schedule came from tinygrad's cache. `origin` has what
    the rewrites made, with the node that it stands for, where tinygrad is observed."""

    call: RealizeCall
    scheduled: UOp = None
    seen: Watched = field(default_factory=Watched)
    origin: Mapping[UOp, UOp] = field(default_factory=dict)

    @property
    def is_sharded(self) -> bool:
        """Whether its graph has values on several devices at once."""
        return any(u.op.name in _SHARDED for u in self.scheduled.toposort())

    @property
    def schedule(self) -> int:
        return self.call.evidence.schedule


class FollowingCollector(ObservedCollector):
    """Collects evidence, and the passes of each schedule."""

    def __init__(self, folder: Path, recorder: ObservingRecorder):
        super().__init__(folder, recorder)
        self.recorder: ObservingRecorder = recorder
        self.followed: list[FollowedCall] = []
        self.watcher = PassWatcher()

    def watch(self, tensor_module: ModuleType) -> None:
        super().watch(tensor_module)
        self.watcher.watch()
        # where launches cannot be watched, schedules still can
        with load_patching().Changes("passes of the scheduler") as changes:
            watch_schedules(changes, tensor_module, self.note_schedule)

    def on_realize(self, realize: Callable[..., Any], tensor: Any, *others: Any, **options: Any) -> Any:
        if self.call is not None:
            return realize(tensor, *others, **options)
        before = len(self.followed)
        self.watcher.start()
        try:
            return super().on_realize(realize, tensor, *others, **options)
        finally:
            seen = self.watcher.stop()
            for one in self.followed[before:]:
                one.seen, one.origin = seen, self.recorder.origin

    def note_schedule(self, schedule: Callable[..., Any], asked: UOp) -> Any:
        if self.call is not None:
            self.followed.append(FollowedCall(self.call, asked))
        return schedule(asked)
