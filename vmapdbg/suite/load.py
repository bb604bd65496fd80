"""Reads a saved run. What is damaged is said, and the tests that it belongs to are left out; the rest is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vmapdbg.model.capture import SCHEMA, Capture, Schedule
from vmapdbg.suite.folder import find_test_digest, read_record, read_run_file
from vmapdbg.suite.saved import AskedSchedule, SavedKernel, SavedRun, SavedSchedule, SavedTest, grow_schedule


@dataclass
class LoadedRun:
    """A saved run. `parts` are the files of each test, in the order they were begun. `unread` are digests of tests with
    a file that could not be read, `damaged` has a line for each such file."""

    folder: Path
    run: SavedRun
    parts: dict[str, list[SavedTest]] = field(default_factory=dict[str, list[SavedTest]])
    digests: dict[str, str] = field(default_factory=dict[str, str])
    unread: set[str] = field(default_factory=set[str])
    damaged: list[str] = field(default_factory=list[str])
    _kernels: dict[str, SavedKernel | None] = field(default_factory=dict[str, SavedKernel | None])
    _schedules: dict[str, Schedule | None] = field(default_factory=dict[str, Schedule | None])

    def find_asked(self, test: str) -> list[AskedSchedule]:
        """Returns what a test asked for; several processes one after another."""
        return [asked for part in self.parts.get(test, ()) for asked in part.schedules]

    def find_failed(self, test: str) -> list[str]:
        """Returns why schedules of a test could not be rendered."""
        return [failed for part in self.parts.get(test, ()) for failed in part.failed]

    def schedule(self, name: str) -> Schedule | None:
        """Returns a schedule without its place in a test, None where it, or a kernel of it, cannot be read."""
        if name not in self._schedules:
            self._schedules[name] = self._read_schedule(name)
        return self._schedules[name]

    def _read_schedule(self, name: str) -> Schedule | None:
        saved: SavedSchedule | None = self._read(SavedSchedule, "schedules", name)
        if saved is None:
            return None
        kernels: dict[str, SavedKernel] = {}
        for launch in saved.kernels:
            if launch.kernel not in self._kernels:
                self._kernels[launch.kernel] = self._read(SavedKernel, "kernels", launch.kernel)
            kernel = self._kernels[launch.kernel]
            if kernel is None:
                return None
            kernels[launch.kernel] = kernel
        return grow_schedule(saved, kernels, self.run.target, 0, None)

    def _read(self, kind: type, part: str, name: str) -> Any:
        file = self.folder / self.run.folder / part / f"{name}.json"
        return read_record(kind, file, self.damaged.append)

    def is_whole(self, test: str) -> bool:
        """Tells whether all that a test scheduled can be read."""
        if self.digests.get(test) in self.unread:
            return False
        return all(self.schedule(asked.schedule) is not None for asked in self.find_asked(test))

    def make_capture(self, schedules: tuple[Schedule, ...]) -> Capture:
        """Returns a capture of this run with these schedules."""
        program = " ".join(self.run.program)
        return Capture(SCHEMA, self.run.versions, program, self.run.target, self.run.patches, None, schedules, ())


def load_run(folder: Path) -> LoadedRun:
    """Reads which tests a saved run has. Raises Failure where the folder holds none."""
    loaded = LoadedRun(folder, read_run_file(folder))
    for file in sorted(find_test_files(folder, loaded.run)):
        test: SavedTest | None = read_record(SavedTest, file, loaded.damaged.append)
        if test is None:
            loaded.unread.add(find_test_digest(file))
            continue
        loaded.parts.setdefault(test.test, []).append(test)
        loaded.digests[test.test] = find_test_digest(file)
    for parts in loaded.parts.values():
        parts.sort(key=lambda part: part.began)
    return loaded


def find_test_files(folder: Path, run: SavedRun) -> Iterator[Path]:
    """Yields the files of a run's tests; what a killed process was about to write has another name."""
    for file in (folder / run.folder / "tests").glob("*.json"):
        if not file.name.startswith("."):
            yield file
