"""The copy of the work tree, and pytest in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TypedDict

from tests.mutate.places import REPORT, Place, add_reports
from tests.mutate.plugin import NOTES, ORDER, TEST, read_lines
from vmapdbg.install.system import end_group

ROOT = Path(__file__).parent.parent.parent
EVERY = ("-m", "not browser")
"""Selects slow tests, too."""
_LARGEST = 8 << 30
"""Bytes. A mutant may fill the memory."""
_STEPS = (5, 60)
"""Seconds. The quickest tests run first, in one pytest of so many seconds, because it also loads their files."""


class Note(TypedDict):
    """What is known of a test: its seconds, how it ended, and its fixtures that other tests get too."""

    seconds: float
    outcome: str
    shared: list[str]


@dataclass(frozen=True)
class Tried:
    """The outcome of a mutant: the test that failed (None: it survived), the tests that ran, and the seconds."""

    killer: str | None
    tests: int
    seconds: float


class Copy:
    """A copy of the work tree, with all changes that are not committed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "copy"
        self.scratch = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).exists():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.folder / name, follow_symlinks=False)
        # Python compiles a file again only if its size or its time in seconds changes
        self._times = count(int(time.time()) + 10)

    def write(self, name: str, source: bytes) -> None:
        file = self.folder / name
        file.write_bytes(source)
        moment = next(self._times)
        os.utime(file, (moment, moment))

    def run(self, tests: Sequence[str], limit: float, *options: str, **variables: str) -> tuple[int | None, str]:
        """Returns the exit status of pytest (None: it was stopped after `limit` seconds), and what it printed."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutate.plugin", "-p", "no:cacheprovider"]
        command += ["--hypothesis-seed=0", *options, *tests]
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONHASHSEED": "0", **variables}
        output = self.scratch / "output.txt"
        with output.open("w", encoding="utf-8") as file:
            running = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=file, stderr=file, start_new_session=True
            )
            try:
                status: int | None = running.wait(limit)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                # also the children that it left
                end_group(running)
                running.wait()
        return status, output.read_text(encoding="utf-8", errors="replace")


def limit_memory() -> None:
    """Limits the memory of this process and its children, where the system can."""
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (_LARGEST, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def record(copy: Copy, places: Sequence[Place], tests: Sequence[str], jobs: int) -> tuple[dict[str, Note], list[str]]:
    """Runs all tests once on sources that report the chosen places. Returns what is known of each test, and for each
    report "NUMBER of the place, a tab, test (setup|call|teardown)"."""
    reports = copy.scratch / "reports"
    reports.mkdir()
    sources = {place.file: (copy.folder / place.file).read_bytes() for place in places}
    numbered = list(enumerate(places))
    for name, source in sources.items():
        copy.write(name, add_reports(source, [(number, place) for number, place in numbered if place.file == name]))
    first = "vmapdbg/__init__.py"
    whole = (copy.folder / first).read_bytes()
    copy.write(first, whole + REPORT.format(folder=str(reports), test=TEST).encode())
    notes = copy.scratch / "notes.json"
    status, printed = copy.run(tests, 7200, "-n", str(jobs), **{NOTES: str(notes)})
    if status not in (0, 1):
        raise SystemExit(f"the tests did not run:\n{printed[-3000:]}")
    for name, source in {**sources, first: whole}.items():
        copy.write(name, source)
    lines = {line for file in reports.iterdir() for line in read_lines(file)}
    return read_notes(notes), sorted(lines)


def order_tests(notes: dict[str, Note], reports: Sequence[str]) -> list[str]:
    """Returns the tests that may see a place, the quickest first: each that reached it, then each that shares a fixture
    with such a test or, if the place was reached in a set-up, its file. A test that failed without a mutant is left
    out."""
    phases = dict(line.rsplit(" (", 1) for line in reports if line.endswith(")"))
    reached = {name for name in phases if name in notes}
    files = {name.partition("::")[0] for name in reached if phases[name] != "call)"}
    shared = {fixture for name in reached for fixture in notes[name]["shared"]}
    more = {name for name in notes if name.partition("::")[0] in files or shared & set(notes[name]["shared"])} - reached
    by_seconds = (sorted(names, key=lambda name: (notes[name]["seconds"], name)) for names in (reached, more))
    return [name for names in by_seconds for name in names if notes[name]["outcome"] == "passed"]


def split(tests: Sequence[str], notes: dict[str, Note], most: float) -> Iterator[list[str]]:
    """Yields the tests of each run of pytest; those beyond `most` seconds are left out."""
    run: list[str] = []
    limits = [*(step for step in _STEPS if step < most), most]
    total = 0.0
    for name in tests:
        total += notes[name]["seconds"]
        if limits and total > limits[0] and run:
            yield run
            run = []
            while limits and total > limits[0]:
                limits.pop(0)
        if not limits:
            return
        run.append(name)
    if run:
        yield run


def try_place(copy: Copy, place: Place, tests: Sequence[str], notes: dict[str, Note], most: float) -> Tried:
    """Runs the tests on a mutant until one fails."""
    source = (copy.folder / place.file).read_bytes()
    copy.write(place.file, place.edit.apply(source))
    began, ran, killer = time.monotonic(), 0, None
    try:
        for names in split(tests, notes, most):
            order, ended = copy.scratch / "order.txt", copy.scratch / "ended.json"
            ended.unlink(missing_ok=True)
            order.write_text("\n".join(names), encoding="utf-8")
            files = dict.fromkeys(name.partition("::")[0] for name in names)
            # an endless loop ends the run; a busy machine does not
            limit = 120 + 10 * sum(notes[name]["seconds"] for name in names)
            status, _ = copy.run(list(files), limit, *EVERY, "-x", "-n", "0", **{ORDER: str(order), NOTES: str(ended)})
            ran += len(names)
            killer = name_killer(status, read_notes(ended))
            if killer is not None:
                break
    finally:
        copy.write(place.file, source)
    return Tried(killer, ran, time.monotonic() - began)


def name_killer(status: int | None, notes: dict[str, Note]) -> str | None:
    """Returns the test that failed, or what else ended pytest; None if all tests passed, or no test was found."""
    if status in (0, 5):
        return None
    failed = [name for name, note in notes.items() if note["outcome"] == "failed"]
    return failed[0] if failed else "it did not end" if status is None else f"pytest ended with {status}"


def read_notes(file: Path) -> dict[str, Note]:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
