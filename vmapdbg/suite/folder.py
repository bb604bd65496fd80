"""The folder of a saved run: where its files are, and how a run takes the place of an earlier one.

    run.json            the run, and which folder its files are in
    run-ID/tests/       what each test scheduled, a file for each process that it ran in
    run-ID/schedules/   graphs and launches, each once
    run-ID/kernels/     kernels, each once

Every file is written whole or not at all. A process that is the first of a run to write puts `run.json` in the place of
the earlier one; from then on the earlier run's files are no part of the folder, and the tool removes them at the end.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vmapdbg.model.data import build_data
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import write_atomically
from vmapdbg.suite.saved import RUN_SCHEMA, SavedRun, dump_record

RUN_FILE = "run.json"
PARTS = ("tests", "schedules", "kernels")
FAILED = "failed"
"""The file by which a process says that it could not save everything."""
_RUN_FOLDER = "run-"
_MOST_SLUG = 60


def new_folder(token: str) -> str:
    """Returns the name of a run's folder; `token` is like no other run's."""
    return _RUN_FOLDER + token


def name_test(test: str) -> str:
    """Returns the beginning of the names of a test's files: safe whatever its id has in it, and like no other's."""
    slug = re.sub(r"[^A-Za-z0-9]+", "_", test.rpartition("::")[2])[:_MOST_SLUG]
    return f"{slug}-{hashlib.sha256(test.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def find_test_digest(file: Path) -> str:
    """Returns the part of a test file's name that only files of the same test have."""
    return "-".join(file.name.split("-")[:2])


def prepare_folder(folder: Path) -> None:
    """Makes the folder of a run that is about to start. Raises Failure where it cannot be written, or holds anything
    that is no saved run: what is not ours is never replaced."""
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
        raise Failure(f"cannot save into {folder}: it holds {example}, which is no saved run; name a new folder")
    if held:
        # one of a newer vmapdbg, or a file of that name which is no run, stays
        read_run_file(folder)


def start_run(folder: Path, run: SavedRun) -> Path:
    """Makes the folder of a run's files, and has `run.json` name it. Each process of the run may do so. Returns it.
    Raises OSError or StoreError."""
    files = folder / run.folder
    if not (files / PARTS[-1]).is_dir():
        for part in PARTS:
            (files / part).mkdir(parents=True, exist_ok=True)
        write_atomically(folder / RUN_FILE, dump_record(run))
    return files


def end_run(folder: Path, run: SavedRun) -> bool:
    """Writes how the run ended, and removes the files of earlier ones. Returns False, and leaves everything as it was,
    where no process of the run saved anything."""
    if not (folder / run.folder).is_dir():
        if not any(folder.iterdir()):
            folder.rmdir()
        return False
    write_atomically(folder / RUN_FILE, dump_record(run))
    for item in folder.glob(f"{_RUN_FOLDER}*"):
        if item.name != run.folder:
            shutil.rmtree(item, ignore_errors=True)
    return True


def read_run_file(folder: Path) -> SavedRun:
    """Returns the run that a folder holds. Raises Failure where it holds none, or one that cannot be read."""
    if not folder.is_dir():
        raise Failure(f"there is no folder {folder}")
    file = folder / RUN_FILE
    if not file.is_file():
        raise Failure(f"{folder} is no saved run: it has no {RUN_FILE} (vmapdbg run --save {folder} PROGRAM makes one)")
    try:
        data = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise Failure(f"{file} cannot be read: {error}") from None
    if not isinstance(data, dict) or data.get("kind") != "saved-run":  # type: ignore[reportUnknownMemberType]
        raise Failure(f"{folder} is no saved run: its {RUN_FILE} is something else")
    schema: Any = data.get("schema")  # type: ignore[reportUnknownMemberType]
    if schema != RUN_SCHEMA:
        raise Failure(f"{folder} has schema {schema} of saved runs, this vmapdbg reads {RUN_SCHEMA}")
    try:
        return build_data(SavedRun, data, RUN_FILE)
    except ValueError as error:
        raise Failure(f"{folder} is no saved run: {error}") from None


def read_record(kind: type[Any], file: Path, tell: Callable[[str], object]) -> Any:
    """Returns the record that a file holds, None after telling why where it is not there or damaged."""
    try:
        return build_data(kind, json.loads(file.read_bytes()), file.name)
    except OSError as error:
        tell(f"{file} cannot be read: {error.strerror}")
    except ValueError as error:
        tell(f"{file} is damaged: {error}")
    return None
