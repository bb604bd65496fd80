"""A saved run: the files of its folder, how a run writes them, and how they are read again.

    run.json            the run, and the name of the folder with its files
    run-ID/tests/       what each test asked for, a file for each process that it ran in: a line for each schedule
    run-ID/schedules/   a capture of each different schedule

The first process of a run that writes replaces `run.json`; the tool removes the files of the earlier run at the end."""

import hashlib
import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from vmapdbg.model.capture import SCHEMA, Capture, Kernel, Node, Realized, Schedule, Versions
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import StoreError, build_data, dump_compact, load_capture, write_atomically

RUN_SCHEMA: Literal[3] = 3  # version of the files of a saved run
RUN_FILE = "run.json"
FAILED = "failed"  # a process creates a file of this name if it cannot save everything
RUN_FOLDER = "run-"  # the beginning of the name of a run's folder
_MOST_SLUG = 60
_NUMBER = re.compile(r"n\d+$")  # tinygrad numbers the kernels of a process that have the same name


@dataclass(frozen=True)
class SavedRun:
    """A run. `folder` is the folder of its files. `status` is the exit code of `program` (128 + the signal that killed
    it), None while it runs and if it was stopped together with the tool."""

    schema: Literal[3]
    kind: Literal["saved-run"]
    folder: str
    versions: Versions
    target: str
    patches: dict[str, bool]
    program: tuple[str, ...]
    status: int | None = None


@dataclass(frozen=True)
class AskedSchedule:
    """A schedule that a test asked for at a line. `schedule` names its file; "" if not rendered, `failed` says why."""

    test: str
    schedule: str
    line: str | None
    failed: str = ""


# *** writing


def name_test(test: str) -> str:
    """Returns a unique beginning for the names of a test's files, safe whatever its id contains."""
    slug = re.sub(r"[^A-Za-z0-9]+", "_", test.rpartition("::")[2])[:_MOST_SLUG]
    return f"{slug}-{hashlib.sha256(test.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def prepare_folder(folder: Path) -> None:
    """Creates the folder of a run. Raises Failure if it cannot be written, or has other files: old runs are removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = [item.name for item in folder.iterdir()]
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise Failure(f"cannot save into {folder}: {error.strerror}") from None
    foreign = [name for name in held if name != RUN_FILE and not name.startswith(RUN_FOLDER)]
    if foreign or (held and RUN_FILE not in held):
        example = (foreign or held)[0]
        raise Failure(f"cannot save into {folder}: it holds {example}, which is not a saved run; name a new folder")
    if held:
        # refuses a run of another schema, and a foreign run.json
        read_run_file(folder)


def start_run(folder: Path, run: SavedRun) -> Path:
    """Creates a run's folder, names it in `run.json` and returns it, in each process. Raises OSError, StoreError."""
    files = folder / run.folder
    if not (files / "schedules").is_dir():
        for part in ("tests", "schedules"):
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
    for item in folder.glob(f"{RUN_FOLDER}*"):
        if item.name != run.folder:
            shutil.rmtree(item, ignore_errors=True)
    return True


def strip_schedule(schedule: Schedule) -> Schedule:
    """Returns a schedule without what depends on the process, or what no comparison needs (ranges, accesses, ...)."""
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
    return replace(
        kernel, name=name, source=source, accesses=None, resets=(), races=(), races_unknown=None, wrong_times=()
    )


def save_schedule(files: Path, capture: Capture) -> str:
    """Writes a capture's stripped schedule once for all processes, and returns its file's name. Raises StoreError."""
    stripped = strip_schedule(capture.schedules[0])
    name = hashlib.sha256(dump_compact(stripped).encode()).hexdigest()[:24]
    file = files / "schedules" / f"{name}.json"
    if not file.exists():
        write_atomically(file, dump_compact(replace(capture, schedules=(stripped,))))
    return name


# *** reading


@dataclass
class LoadedRun:
    """A saved run. `tests` has what each test asked for, in order. `unread` names tests with an unreadable file;
    `damaged` has a line for each such file."""

    folder: Path
    run: SavedRun
    tests: dict[str, list[AskedSchedule]] = field(default_factory=dict[str, list[AskedSchedule]])
    unread: set[str] = field(default_factory=set[str])
    damaged: list[str] = field(default_factory=list[str])
    _schedules: dict[str, Schedule | None] = field(default_factory=dict[str, Schedule | None])

    def count_asked(self, test: str) -> Counter[str]:
        """Returns how often a test asked for the schedule of each file."""
        return Counter(asked.schedule for asked in self.tests[test] if asked.schedule)

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
        return name_test(test) not in self.unread and None not in map(self.schedule, self.count_asked(test))

    def make_capture(self, test: str, left_out: Mapping[str, int] | None = None) -> Capture:
        """Returns the schedules of a test, in order, as often as asked for. `left_out` counts those to leave out."""
        left = Counter(left_out)
        schedules: list[Schedule] = []
        for asked in self.tests[test]:
            if left[asked.schedule]:
                left[asked.schedule] -= 1
            elif schedule := asked.schedule and self.schedule(asked.schedule):
                schedules.append(replace(schedule, index=len(schedules), line=asked.line))
        run = self.run
        return Capture(SCHEMA, run.versions, test, run.target, run.patches, None, tuple(schedules), ())


def load_run(folder: Path) -> LoadedRun:
    """Reads the tests of a saved run. Raises Failure if there is none. Damaged files are listed."""
    loaded = LoadedRun(folder, read_run_file(folder))
    for file in sorted((folder / loaded.run.folder / "tests").iterdir()):
        try:
            for line in file.read_bytes().splitlines():
                asked = build_data(AskedSchedule, json.loads(line))
                loaded.tests.setdefault(asked.test, []).append(asked)
        except (OSError, ValueError) as error:
            loaded.damaged.append(f"{file} is damaged: {error}")
            # what `name_test` made, without the process
            loaded.unread.add("-".join(file.name.split("-")[:2]))
    return loaded


def read_run_file(folder: Path) -> SavedRun:
    """Returns the run that a folder holds. Raises Failure if it holds none, or if it cannot be read."""
    file = folder / RUN_FILE
    if not file.exists():
        hint = f"vmapdbg run --save {folder} PROGRAM makes one"
        raise Failure(f"{folder} is not a saved run: it has no {RUN_FILE} ({hint})")
    try:
        return build_data(SavedRun, json.loads(file.read_bytes()))
    except (OSError, ValueError) as error:
        raise Failure(f"{folder} is not a saved run that this vmapdbg reads: {error}") from None
