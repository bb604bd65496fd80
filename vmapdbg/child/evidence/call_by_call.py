"""Watches a whole program for `run --check`: one call of `Tensor.realize` at a time."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from vmapdbg.child.evidence.collector import Collector
from vmapdbg.child.evidence.replays import ReplayWatcher
from vmapdbg.child.evidence.suite_folder import SuiteFolder
from vmapdbg.child.failures.diagnose import explain_stopped
from vmapdbg.child.failures.endless import Endless, EndlessRewrite, Watcher
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.listen.user_lines import find_user_line
from vmapdbg.child.live import listen
from vmapdbg.child.run_save import current_test

FOLDER_VARIABLE = "VMAPDBG_CHECK"


class BetweenCalls(Recorder):
    """Keeps a schedule while the call that asked for it runs, and no longer: the program's tensors are freed."""

    def __init__(self, folder: SuiteFolder) -> None:
        super().__init__()
        self.folder = folder
        self.is_call_running = False

    def schedule_asked(self, key: bytes, cached: bool) -> None:
        super().schedule_asked(key, cached)
        if cached:
            self._end_outside()

    def schedule_created(self, graph: Any, created: Any) -> None:
        super().schedule_created(graph, created)
        self._end_outside()

    def _end_outside(self) -> None:
        if not self.is_call_running:
            self.folder.note_outside()
            self.forget()


def check_this_process() -> None:
    """Passes on what this process realizes to the process that compares it (`vmapdbg.child.compare.checker`), as soon
    as a call returns: workers often end without running exit handlers. The overlay is installed already, if any."""
    folder = SuiteFolder(Path(os.environ[FOLDER_VARIABLE]))
    recorder = BetweenCalls(folder)
    collector = CallByCall(folder, recorder)
    listen(recorder, collector.watch)
    watch_rewrites(folder, recorder)
    atexit.register(collector.close)


def watch_rewrites(folder: SuiteFolder, recorder: BetweenCalls) -> None:
    """Stops a rewrite that never ends, in this thread of this process and of processes that it forks: what runs
    there gets an EndlessRewrite, and a test that hung fails."""

    def note(found: Endless, loop: FrameType) -> None:
        # the call says it, with what it knows of its schedule
        if recorder.is_call_running and recorder.schedules:
            return
        crash = explain_stopped(found, loop)
        folder.note_endless(find_user_line(loop), current_test(), f"EndlessRewrite: {EndlessRewrite()}", crash)

    def start() -> None:
        Watcher(lambda text: None, note).start()

    start()
    os.register_at_fork(after_in_child=start)


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
        test = current_test()
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
        self.suite.begin(current_test())
        return super().on_replay(replay, captured, buffers, variables)
