"""`vmapdbg run --check` on the side of the program's processes: hands on what each `Tensor.realize` reads and
writes, to a process that judges it by the numpy reference (`vmapdbg.child.oracle.judge`).

`vmapdbg.commands.run_check` is the tool's side. The program stays as it is, but for the time that it takes: evidence is
handed on as soon as a call returns, because workers often end without running exit handlers.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vmapdbg.child.evidence.collector import Collector
from vmapdbg.child.evidence.observed import ObservedCollector
from vmapdbg.child.evidence.suite_folder import SuiteFolder
from vmapdbg.child.live import observe_with
from vmapdbg.child.record.lines import set_internal_folders
from vmapdbg.child.record.observe import ObservingRecorder, start
from vmapdbg.child.record.recorder import Recorder
from vmapdbg.child.run_save import find_test
from vmapdbg.overlay import overlay_dir

FOLDER_VARIABLE = "VMAPDBG_CHECK"


def check_this_process(observes: bool) -> None:
    """Has what this process realizes judged. The overlay is installed already, unless tinygrad is observed as it is."""
    folder = SuiteFolder(Path(os.environ[FOLDER_VARIABLE]))
    if observes:
        check_observed(folder)
    else:
        check_overlay(folder)


def check_overlay(folder: SuiteFolder) -> None:
    recorder = BetweenCalls(folder)
    collector = recorder.collector = PatchedCollector(folder, recorder)
    recorder.watch = collector.watch
    atexit.register(collector.close)
    observe_with(recorder)


def check_observed(folder: SuiteFolder) -> None:
    # `Tensor.realize` is wrapped with a helper of the overlay's
    set_internal_folders(str(overlay_dir()))
    recorder = ObservedBetweenCalls(folder)
    collector = recorder.collector = StockCollector(folder, recorder)
    atexit.register(collector.close)
    start(collector.watch, recorder)


class BetweenCalls(Recorder):
    """Keeps a schedule while the call that asked for it runs, and no longer: the program's tensors are freed."""

    def __init__(self, folder: SuiteFolder) -> None:
        super().__init__()
        self.folder = folder
        self.collector: PatchedCollector | None = None

    def schedule_asked(self, key: bytes, cached: bool) -> None:
        super().schedule_asked(key, cached)
        if cached:
            self._end_outside()

    def schedule_created(self, items: list[Any], buffers: Any) -> None:
        super().schedule_created(items, buffers)
        self._end_outside()

    def _end_outside(self) -> None:
        if self.collector is not None and self.collector.current is None:
            self.folder.note_outside()
            self.forget()


class ObservedBetweenCalls(ObservingRecorder):
    """The same where tinygrad is observed."""

    def __init__(self, folder: SuiteFolder) -> None:
        super().__init__()
        self.folder = folder
        self.collector: StockCollector | None = None

    def schedule_asked(self, key: bytes, cached: bool) -> None:
        super().schedule_asked(key, cached)
        if cached:
            self._end_outside()

    def schedule_created(self, graph: Any, created: Any) -> None:
        super().schedule_created(graph, created)
        self._end_outside()

    def _end_outside(self) -> None:
        if self.collector is not None and not self.collector.is_busy:
            self.folder.note_outside()
            self.forget()


class PatchedCollector(Collector):
    """Has evidence for one call at a time, and forgets the calls that a TinyJit captured when the next test runs."""

    def __init__(self, folder: SuiteFolder, recorder: Recorder):
        super().__init__(folder.path, recorder)
        self.folder = self.suite = folder
        self.replays.folder = folder

    def on_realize(self, realize: Callable[..., Any], tensor: Any, *others: Any, **options: Any) -> Any:
        if self.current is not None:
            return realize(tensor, *others, **options)
        test = find_test()
        if test != self.suite.test:
            self.close()
        self.suite.begin(test)
        try:
            return super().on_realize(realize, tensor, *others, **options)
        finally:
            self.recorder.forget()

    def close(self) -> None:
        super().close()
        self.replays.captured.clear()
        self.suite.forget()


class StockCollector(ObservedCollector):
    """The same where tinygrad is observed."""

    def __init__(self, folder: SuiteFolder, recorder: ObservingRecorder):
        super().__init__(folder.path, recorder)
        self.folder = self.suite = folder
        self.replays.folder = folder

    def on_realize(self, realize: Callable[..., Any], tensor: Any, *others: Any, **options: Any) -> Any:
        if self.is_busy:
            return realize(tensor, *others, **options)
        test = find_test()
        if test != self.suite.test:
            self.close()
        self.suite.begin(test)
        try:
            return super().on_realize(realize, tensor, *others, **options)
        finally:
            self.recorder.forget()

    def close(self) -> None:
        super().close()
        self.replays.captured.clear()
        self.suite.forget()
