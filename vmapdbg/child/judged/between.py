"""What both ways to look have in common: they stand before a recorder or a collector, as a class that derives from
both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vmapdbg.child.evidence.collector import Collector
from vmapdbg.child.evidence.replays import ReplayWatcher
from vmapdbg.child.evidence.suite_folder import SuiteFolder
from vmapdbg.child.record.recording import Recording
from vmapdbg.child.run_save import find_test


class BetweenCalls(Recording[Any]):
    """Keeps a schedule while the call that asked for it runs, and no longer: the program's tensors are freed."""

    def __init__(self, folder: SuiteFolder) -> None:
        super().__init__()
        self.folder = folder
        self.is_call_running = False

    def schedule_asked(self, key: bytes, cached: bool) -> None:
        super().schedule_asked(key, cached)
        if cached:
            self._end_outside()

    def schedule_created(self, created: Any, buffers: Any, /) -> None:
        super().schedule_created(created, buffers)
        self._end_outside()

    def _end_outside(self) -> None:
        if not self.is_call_running:
            self.folder.note_outside()
            self.forget()


class CallByCall(Collector):
    """Has evidence for one call at a time, and forgets what a TinyJit captured when the next test runs."""

    def __init__(self, folder: SuiteFolder, recorder: BetweenCalls) -> None:
        super().__init__(folder.path, recorder)
        self.folder = self.suite = folder
        self.between = recorder
        self.replays = ReplayByReplay(folder)

    def on_realize(self, realize: Callable[..., Any], tensor: Any, *others: Any, **options: Any) -> Any:
        if self.between.is_call_running:
            return super().on_realize(realize, tensor, *others, **options)
        test = find_test()
        if test != self.suite.test:
            self.close()
        self.suite.begin(test)
        self.between.is_call_running = True
        try:
            return super().on_realize(realize, tensor, *others, **options)
        finally:
            self.between.is_call_running = False
            self.between.forget()

    def close(self) -> None:
        super().close()
        self.replays.captured.clear()
        self.suite.forget()


class ReplayByReplay(ReplayWatcher):
    """Has evidence for one replay at a time."""

    def __init__(self, folder: SuiteFolder) -> None:
        super().__init__(folder)
        self.suite = folder

    def on_replay(self, replay: Callable[..., Any], captured: Any, buffers: list[Any], variables: Any) -> Any:
        self.suite.begin(find_test())
        return super().on_replay(replay, captured, buffers, variables)
