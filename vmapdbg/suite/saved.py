"""A saved run: the files of its folder, how a run writes them, and how they are read again.

    run.json            the run, and the name of the folder with its files
    run-ID/tests/       what each test scheduled, a file for each process that it ran in
    run-ID/schedules/   a capture of each different schedule

Every file is written whole or not at all. The first process of a run that writes replaces `run.json`. Then the files of
the earlier run no longer belong to the folder, and the tool removes them at the end.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from vmapdbg.model.capture import SCHEMA, Capture, Kernel, Node, Realized, Schedule, Versions
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import StoreError, build_data, dump_compact, load_capture, write_atomically

RUN_SCHEMA: Literal[2] = 2
"""Version of the files of a saved run."""
RUN_FILE = "run.json"
PARTS = ("tests", "schedules")
FAILED = "failed"
"""A process creates a file of this name if it cannot save everything."""
_RUN_FOLDER = "run-"
_MOST_SLUG = 60
# tinygrad numbers the kernels of a process that have the same name
_NUMBER = re.compile(r"n\d+$")


@dataclass(frozen=True)
class SavedRun:
    """A run. `folder` is the folder of its files. `status` is the exit code of `program` (128 + the signal that killed
    it), None while it runs and if it was stopped together with the tool."""

    schema: Literal[2]
    kind: Literal["saved-run"]
    folder: str
    versions: Versions
    target: str
    patches: dict[str, bool]
    program: tuple[str, ...]
    status: int | None = None


@dataclass(frozen=True)
class AskedSchedule:
    """A schedule that was asked for at a line, `count` times in a row. `schedule` is the name of its file."""

    schedule: str
    line: str | None
    count: int = 1


@dataclass(frozen=True)
class SavedTest:
    """A part of what one test scheduled in one process, in order.

    `began` (nanoseconds since 1970) orders the parts of a test. `failed` has an error for each schedule that could not
    be rendered.
    """

    test: str
    began: int
    schedules: tuple[AskedSchedule, ...]
    failed: tuple[str, ...] = ()


# *** writing


def new_folder(token: str) -> str:
    """Returns the name of a run's folder; `token` must be unique."""
    return _RUN_FOLDER + token


def name_test(test: str) -> str:
    """Returns a unique beginning for the names of a test's files, safe whatever its id contains."""
    slug = re.sub(r"[^A-Za-z0-9]+", "_", test.rpartition("::")[2])[:_MOST_SLUG]
    return f"{slug}-{hashlib.sha256(test.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def name_of_file(file: Path) -> str:
    """Returns the beginning of a file's name that `name_test` made."""
    return "-".join(file.name.split("-")[:2])


def prepare_folder(folder: Path) -> None:
    """Creates the folder of a run. Raises Failure if it cannot be written, or holds anything but a saved run: files of
    the user are never replaced."""
    if folder.exists() and not folder.is_dir():
        raise Failure(f"cannot save into {folder}: it is a file")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = [item.name for item in folder.iterdir()]
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Failure(f"cannot save into {folder}: {error.strerror}") from None
    foreign = [name for name in held if name != RUN_FILE and not name.startswith(_RUN_FOLDER)]
    if foreign or (held and RUN_FILE not in held):
        example = (foreign or held)[0]
        raise Failure(f"cannot save into {folder}: it holds {example}, which is not a saved run; name a new folder")
    if held:
        # refuses a run of another schema, and a foreign run.json
        read_run_file(folder)


def start_run(folder: Path, run: SavedRun) -> Path:
    """Creates and returns the folder of a run's files, and names it in `run.json`. Each process of the run calls this.
    Raises OSError or StoreError."""
    files = folder / run.folder
    if not (files / PARTS[-1]).is_dir():
        for part in PARTS:
            (files / part).mkdir(parents=True, exist_ok=True)
        write_atomically(folder / RUN_FILE, dump_compact(run))
    return files


def end_run(folder: Path, run: SavedRun) -> bool:
    """Writes how the run ended and removes earlier runs. Changes nothing and returns False if it saved nothing."""
    if not (folder / run.folder).is_dir():
        if not any(folder.iterdir()):
            folder.rmdir()
        return False
    write_atomically(folder / RUN_FILE, dump_compact(run))
    for item in folder.glob(f"{_RUN_FOLDER}*"):
        if item.name != run.folder:
            shutil.rmtree(item, ignore_errors=True)
    return True


def strip_schedule(schedule: Schedule) -> Schedule:
    """Returns a schedule without what depends on the rest of the process, and without what comparing two runs does not
    need: ranges, buffers that are decided about, accesses."""
    return replace(
        schedule,
        index=0,
        line=None,
        cached=False,
        not_in_key={},
        nodes=tuple(map(_strip_node, schedule.nodes)),
        ranges=(),
        vmap_map=(),
        bufferizes=(),
        kernels=tuple(map(_strip_kernel, schedule.kernels)),
    )


def _strip_node(node: Node) -> Node:
    realized = node.realized
    if realized is not None:
        # the rule without its operands
        rule = next((reason.rule for reason in realized.reasons), realized.reason)
        realized = Realized((), realized.reason, rule)
    return Node(node.id, node.op, node.dtype, node.shape, node.src, None, None, (), realized, node.line, node.arg)


def _strip_kernel(kernel: Kernel) -> Kernel:
    name = _NUMBER.sub("", kernel.name)
    source = re.sub(rf"\b{re.escape(kernel.name)}\b", name, kernel.source)
    return replace(kernel, name=name, source=source, accesses=None, resets=(), wrong_times=())


def save_schedule(files: Path, capture: Capture, written: set[str]) -> str:
    """Writes the stripped schedule of a capture unless it is `written`. Returns its file's name. Raises StoreError."""
    stripped = strip_schedule(capture.schedules[0])
    name = hashlib.sha256(dump_compact(stripped).encode()).hexdigest()[:24]
    if name not in written:
        written.add(name)
        write_atomically(files / "schedules" / f"{name}.json", dump_compact(replace(capture, schedules=(stripped,))))
    return name


# *** reading


@dataclass
class LoadedRun:
    """A saved run. `parts` are the files of each test, in the order in which they were begun. `unread` names tests that
    have an unreadable file, `damaged` has a line for each such file."""

    folder: Path
    run: SavedRun
    parts: dict[str, list[SavedTest]] = field(default_factory=dict[str, list[SavedTest]])
    unread: set[str] = field(default_factory=set[str])
    damaged: list[str] = field(default_factory=list[str])
    _schedules: dict[str, Schedule | None] = field(default_factory=dict[str, Schedule | None])

    def asked_by(self, test: str) -> list[AskedSchedule]:
        """Returns the schedules that a test asked for, process by process."""
        return [asked for part in self.parts.get(test, ()) for asked in part.schedules]

    def list_schedules(self, test: str) -> list[tuple[str, Schedule]]:
        """Returns the schedules of a test in order, each with the name of its file and as often as it was asked for."""
        found: list[tuple[str, Schedule]] = []
        for asked in self.asked_by(test):
            schedule = self.schedule(asked.schedule)
            assert schedule is not None, "a test that is not whole is left out"
            for _ in range(asked.count):
                found.append((asked.schedule, replace(schedule, index=len(found), line=asked.line)))
        return found

    def schedule(self, name: str) -> Schedule | None:
        """Returns a schedule as it was saved, without a line; None if its file is damaged."""
        if name not in self._schedules:
            self._schedules[name] = None
            file = self.folder / self.run.folder / "schedules" / f"{name}.json"
            try:
                (self._schedules[name],) = load_capture(file).schedules
            except (StoreError, ValueError) as error:
                self.damaged.append(f"{file} is damaged: {error}")
        return self._schedules[name]

    def is_whole(self, test: str) -> bool:
        """Returns whether all that a test scheduled can be read."""
        if name_test(test) in self.unread:
            return False
        return all(self.schedule(asked.schedule) is not None for asked in self.asked_by(test))

    def make_capture(self, schedules: tuple[Schedule, ...]) -> Capture:
        """Returns a capture of this run with these schedules."""
        program = " ".join(self.run.program)
        return Capture(SCHEMA, self.run.versions, program, self.run.target, self.run.patches, None, schedules, ())


def load_run(folder: Path) -> LoadedRun:
    """Reads the tests of a saved run. Raises Failure if there is none. Damaged files are listed."""
    loaded = LoadedRun(folder, read_run_file(folder))
    for file in sorted((folder / loaded.run.folder / "tests").glob("*.json")):
        if file.name.startswith("."):
            # a process was killed while it wrote this file
            continue
        test = _read_test(file, loaded.damaged.append)
        if test is None:
            loaded.unread.add(name_of_file(file))
        else:
            loaded.parts.setdefault(test.test, []).append(test)
    for parts in loaded.parts.values():
        parts.sort(key=lambda part: part.began)
    return loaded


def _read_test(file: Path, report: Callable[[str], None]) -> SavedTest | None:
    try:
        return build_data(SavedTest, json.loads(file.read_bytes()), file.name)
    except OSError as error:
        report(f"{file} cannot be read: {error.strerror}")
    except ValueError as error:
        report(f"{file} is damaged: {error}")
    return None


def read_run_file(folder: Path) -> SavedRun:
    """Returns the run that a folder holds. Raises Failure if it holds none, or if it cannot be read."""
    if not folder.is_dir():
        raise Failure(f"there is no folder {folder}")
    file = folder / RUN_FILE
    if not file.is_file():
        raise Failure(
            f"{folder} is not a saved run: it has no {RUN_FILE} (vmapdbg run --save {folder} PROGRAM makes one)"
        )
    try:
        data = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise Failure(f"{file} cannot be read: {error}") from None
    if not isinstance(data, dict) or data.get("kind") != "saved-run":  # type: ignore[reportUnknownMemberType]
        raise Failure(f"{folder} is not a saved run: its {RUN_FILE} is something else")
    schema: Any = data.get("schema")  # type: ignore[reportUnknownMemberType]
    if schema != RUN_SCHEMA:
        raise Failure(f"{folder} has schema {schema} of saved runs, this vmapdbg reads {RUN_SCHEMA}")
    try:
        return build_data(SavedRun, data, RUN_FILE)
    except ValueError as error:
        raise Failure(f"{folder} is not a saved run: {error}") from None
