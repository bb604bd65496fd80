"""Reads and writes files: captures and other JSON documents as dataclasses, and any output file in one atomic step."""

import json
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from vmapdbg.model.capture import SCHEMA, Capture
from vmapdbg.model.failure import Failure

SCHEMAS = Path(__file__).parents[1] / "schemas"  # the folder of the shipped JSON Schemas

# *** plain data


def list_fields(value: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass: the `default` of `json.dumps`, for model objects in any data."""
    # not fields(): it makes a tuple for each of thousands of values
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def dump_document(document: Any) -> str:
    """Returns one JSON document of the contract, newline at the end. The same data gives the same bytes."""
    return json.dumps(document, default=list_fields, indent=1, allow_nan=False) + "\n"


def dump_compact(document: Any) -> str:
    """Returns the JSON of a document on one line: ten times faster to write than `dump_document`."""
    return json.dumps(document, default=list_fields, separators=(",", ":"), allow_nan=False)


T = TypeVar("T")
_ONE_AT_A_TIME = threading.Lock()


def build_data(kind: type[T], data: Any) -> T:
    """Builds a value of any dataclass of the contract from plain JSON data.

    Raises ValueError with the path of the first field that is missing or has the wrong type. Unknown keys are ignored,
    so that a file of a later minor version still loads."""
    # imported here because the child has only the packages of the user's interpreter
    import msgspec

    # msgspec crashes if two threads look at a class for the first time
    with _ONE_AT_A_TIME:
        return msgspec.convert(data, kind)


# *** files


class StoreError(Failure):
    """A file cannot be read or written."""


def check_output(path: Path, snippet: str | None = None, endings: Sequence[str] = ()) -> None:
    """Raises StoreError if a file cannot be written, is the snippet, or has none of the `endings` (".html")."""
    if endings and path.suffix.lower() not in endings:
        choice = "one of " if len(endings) > 1 else ""
        raise StoreError(f"{path}: the ending must be {choice}{', '.join(endings)}")
    if str(path) == "-":
        raise StoreError("cannot write -: a file has another name, and stdout is for what the command prints")
    try:
        if path.is_dir():
            raise StoreError(f"cannot write {path}: it is a folder")
        if not path.absolute().parent.is_dir():
            raise StoreError(f"cannot write {path}: there is no folder {path.parent}")
        if snippet is not None and path.exists() and Path(snippet).exists() and path.samefile(snippet):
            raise StoreError(f"cannot write {path}: it is the snippet")
    except OSError as error:
        # a name that is too long, for example
        raise StoreError(f"cannot write {path}: {error.strerror}") from error


def load_capture(path: Path | str) -> Capture:
    """Reads a capture. Raises StoreError if the file is missing, is no capture, or has another schema."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StoreError(f"{path} is not a vmapdbg capture: it is not text") from error
    return parse_capture(text, str(path))


def parse_capture(text: str, name: str) -> Capture:
    """Builds a capture from its JSON text; `name` is for the message of the StoreError that it raises."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise StoreError(f"{name} is not a vmapdbg capture: {error}") from error
    except RecursionError:
        raise StoreError(f"{name} is not a vmapdbg capture: it is nested too deeply") from None
    return build_capture(data, name)


def build_capture(data: Any, name: str) -> Capture:
    """Builds a capture from plain data, as JSON has it; the message of its StoreError has `name`."""
    schema = data.get("schema") if isinstance(data, dict) else None
    if not isinstance(schema, int):
        raise StoreError(f"{name} is not a vmapdbg capture: it has no schema number")
    if schema != SCHEMA:
        age = "newer" if schema > SCHEMA else "older"
        raise StoreError(f"{name} has schema {schema}, {age} than the {SCHEMA} that this vmapdbg reads")
    try:
        capture = build_data(Capture, data)
        check_ids(capture)
        return capture
    except ValueError as error:
        raise StoreError(f"{name} is not a vmapdbg capture: {error}") from error


def check_ids(capture: Capture) -> None:
    """Raises ValueError if a schedule has an unknown node or another index, or a finding has an unknown schedule."""
    for number, finding in enumerate(capture.findings):
        if finding.schedule is not None and not 0 <= finding.schedule < len(capture.schedules):
            raise ValueError(f"capture.findings.{number}.schedule: there is no schedule {finding.schedule}")
    for position, schedule in enumerate(capture.schedules):
        if schedule.index != position:
            raise ValueError(f"capture.schedules.{position}.index: expected {position}, not {schedule.index}")
        named = {
            "nodes.src": {source for node in schedule.nodes for source in node.src},
            "vmap_map.node": {entry.node for entry in schedule.vmap_map},
            "bufferizes.node": {made.node for made in schedule.bufferizes},
            "kernels.nodes": {node for kernel in schedule.kernels for node in kernel.nodes},
            "kernels.outputs": {node for kernel in schedule.kernels for node in kernel.outputs},
        }
        known = {node.id for node in schedule.nodes}
        for field, ids in named.items():
            for unknown in ids - known:
                raise ValueError(f"capture.schedules.{position}.{field}: there is no node {unknown}")


def write_output(path: Path, content: str | bytes) -> None:
    """Writes to a file that the user names: a plain file atomically, a link's target, a device or a FIFO directly.
    Raises StoreError."""
    target = path.resolve() if path.is_symlink() else path
    if not target.exists() or target.is_file():
        write_atomically(target, content)
        return
    try:
        with target.open("wb", buffering=0) as file:
            file.write(content if isinstance(content, bytes) else content.encode())
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes to a temporary file next to `path` and renames it: a reader sees no part of it. Raises StoreError."""
    if isinstance(content, str):
        content = content.encode()
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        # mkstemp allows only the owner to read: use the rights of any new file
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        raise StoreError(f"cannot write {path}: {error.strerror}") from error


def append_line(path: Path, record: object) -> None:
    """Adds a dataclass to a file as a line of JSON. Raises OSError."""
    with path.open("a", encoding="utf-8") as file:
        file.write(dump_compact(record) + "\n")


def read_lines(text: str) -> Iterator[Any]:
    """Yields JSON documents, one a line, without an incomplete last line: its process may have been killed."""
    for line in text[: text.rfind("\n") + 1].splitlines():
        yield json.loads(line)
