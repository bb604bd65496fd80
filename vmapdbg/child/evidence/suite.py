"""Watches a whole program for `run --check`: one call of `Tensor.realize` at a time. Its processes pass what they
realize through a folder to a process that compares it:

    making/NAME/   the evidence of one schedule, while it is written
    ready/NAME/    complete evidence: evidence.pickle (with the test), blobs/; the judge removes it
    own/PID/       the contents of buffers that the current call of a process has kept so far
    counts/NAME    what a process counted; the judge does not read it
    over           exists when the program has ended

The folder has a limited size: a process that writes faster than it is compared waits."""

import atexit
import os
import pickle
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from vmapdbg.child.evidence.collector import Collector
from vmapdbg.child.evidence.evidence import ROOM, Evidence, EvidenceFolder
from vmapdbg.child.failures.diagnose import explain_stopped
from vmapdbg.child.failures.endless import Endless, EndlessRewrite, Watcher
from vmapdbg.child.identity import IdentityMap
from vmapdbg.child.listen import hooks
from vmapdbg.child.listen.user_lines import find_user_line
from vmapdbg.child.run_program import PublishedCounts, ScheduleFeed, current_test
from vmapdbg.model.account import OTHER, Left
from vmapdbg.reference.graph import OpGraph

MOST_WAITING = 1 << 29  # the most bytes of evidence in the folder
_POLL = 0.02
_LONGEST_WAIT = 120  # seconds that a process waits for the judge; after that it takes the judge for dead


class SuiteFolder(EvidenceFolder):
    """The evidence of this process. `begin` before each call that keeps something, then `write`."""

    def __init__(self, root: Path):
        self.root = root
        self.test = ""
        self._number = 0
        self._said: IdentityMap[int] = IdentityMap()  # evidence that was written -> how many reasons it had then
        self._begin_process()
        os.register_at_fork(after_in_child=self._begin_process)

    def _begin_process(self) -> None:
        self.token = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        folder = self.root / "own" / self.token
        folder.mkdir(parents=True)
        super().__init__(folder)

    def begin(self, test: str) -> None:
        """Begins a call or a replay of a test: drops what earlier calls have kept."""
        self.test = test
        for blob in (self.path / "blobs").iterdir():
            blob.unlink()
        self.room = ROOM

    def find_test(self) -> str:
        return current_test()

    def is_idle(self) -> bool:
        return not os.listdir(self.root / "ready")

    def write(self, evidence: Evidence) -> None:
        """Passes on the evidence of a schedule. When it is written again, only new reasons are passed on."""
        known = self._said.get(evidence)
        self._said[evidence] = len(evidence.left)
        if known is not None:
            added = evidence.left[known:]
            self.hand_on(Evidence(-1, evidence.line, left=added), self.test)
            return
        blobs = list((self.path / "blobs").iterdir()) if "asked" in evidence.graphs else []
        self.hand_on(evidence, self.test, blobs)

    def write_asked(self, graph: OpGraph) -> None:
        """Does nothing: the judge compares schedules of several processes, and only when they have run."""

    def forget(self) -> None:
        """Forgets what was written: it will not be written again."""
        self._said.clear()

    def hand_on(self, evidence: Evidence, test: str, blobs: Sequence[Path] = ()) -> None:
        """Passes on what is known of a schedule of a test, with buffers; without a schedule, its number is -1."""
        self._number += 1
        making = self.root / "making" / f"{self.token}-{self._number}"
        (making / "blobs").mkdir(parents=True)
        size = 0
        for blob in blobs:
            os.link(blob, making / "blobs" / blob.name)
            size += blob.stat().st_size
        data = pickle.dumps((test, evidence))
        (making / "evidence.pickle").write_bytes(data)
        name = f"{time.time_ns():020}-{size + len(data)}-{self.token}-{self._number}"  # sorted by time
        if self._wait_for_room():
            making.rename(self.root / "ready" / name)
        else:
            shutil.rmtree(making)

    def _wait_for_room(self) -> bool:
        """Waits until there is room for more. Returns False if the judge seems dead."""
        last, since = -1, time.monotonic()
        while True:
            sizes = [int(name.split("-")[1]) for name in os.listdir(self.root / "ready")]
            if sum(sizes) <= MOST_WAITING:
                return True
            if len(sizes) != last:
                last, since = len(sizes), time.monotonic()
            if time.monotonic() - since > _LONGEST_WAIT:
                return False
            time.sleep(_POLL)


class BetweenCalls(ScheduleFeed):
    """Keeps a schedule while the call that asked for it runs, and no longer: the program's tensors are freed."""

    def __init__(self, folder: SuiteFolder) -> None:
        super().__init__()
        self.folder = folder
        self.is_call_running = False

    def end_last(self, is_whole: bool = False) -> None:
        """Notes a schedule that is not compared, and forgets it."""
        if self.is_call_running:
            return
        for schedule in self.schedules[-1:]:
            if is_whole or schedule.cached:
                self.folder.hand_on(Evidence(-1, None, left=[Left("other schedules", 1, OTHER)]), current_test())
        self.forget()


class CallByCall(Collector):
    """Has evidence for one call at a time, and forgets what a TinyJit captured when the next test runs."""

    def __init__(self, folder: SuiteFolder, recorder: BetweenCalls) -> None:
        super().__init__(folder.path, recorder)
        self.folder = self.replays.folder = self.suite = folder
        self.between = recorder

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
        if self.replays.left:
            self.suite.hand_on(Evidence(-1, None, left=list(self.replays.left)), self.suite.test)
            self.replays.left.clear()
        self.replays.forget()
        self.suite.forget()


def check_this_process(root: Path) -> None:
    """Passes on what this process realizes to the judge, through the folder `root`, as soon as a call returns."""
    folder = SuiteFolder(root)
    recorder = BetweenCalls(folder)
    collector = CallByCall(folder, recorder)
    hooks.start(recorder, collector.watch)
    watch_rewrites(folder, recorder)
    atexit.register(collector.close)
    PublishedCounts(recorder.tally, root)


def watch_rewrites(folder: SuiteFolder, recorder: BetweenCalls) -> None:
    """Stops endless rewrites in this thread and in forks by an EndlessRewrite, so that a test that hung fails."""

    def note(found: Endless, loop: FrameType) -> None:
        if recorder.is_call_running and recorder.schedules:
            return  # the call says it, with what it knows of its schedule
        error, crash = f"EndlessRewrite: {EndlessRewrite()}", explain_stopped(found, loop)
        stopped = Evidence(-1, find_user_line(loop), failed=error, crash=crash, is_endless=True)
        folder.hand_on(stopped, current_test())

    def start() -> None:
        Watcher(note).start()

    start()
    os.register_at_fork(after_in_child=start)
