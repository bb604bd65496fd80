"""Reads and writes files: captures as JSON, and any output file in one atomic step."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from vmapdbg.model.capture import SCHEMA, Capture
from vmapdbg.model.data import dump_document, from_data, list_fields
from vmapdbg.model.failure import Failure


class StoreError(Failure):
    """A file cannot be read or written."""


def dump_compact(capture: Capture) -> str:
    """Returns the document of a capture on one line, for a program to read: ten times faster to write."""
    return json.dumps(capture, default=list_fields, separators=(",", ":"), allow_nan=False)


def save_capture(capture: Capture, path: Path) -> None:
    """Writes a capture to `path`. Raises StoreError; the file is then as it was before."""
    write_atomically(path, dump_document(capture))


def load_capture(path: Path | str) -> Capture:
    """Reads a capture. Raises StoreError when the file is not there, no capture, or of another schema."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StoreError(f"{path} is no vmapdbg capture: it is not text") from error
    return parse_capture(text, str(path))


def parse_capture(text: str, name: str) -> Capture:
    """Builds a capture from its JSON text; `name` stands in the message of the StoreError it raises."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise StoreError(f"{name} is no vmapdbg capture: {error}") from error
    match data:
        case {"schema": int(schema)}:
            pass
        case _:
            raise StoreError(f"{name} is no vmapdbg capture: it has no schema number")
    if schema != SCHEMA:
        age = "newer" if schema > SCHEMA else "older"
        raise StoreError(f"{name} has schema {schema}, {age} than the {SCHEMA} that this vmapdbg reads")
    try:
        return from_data(data)
    except ValueError as error:
        raise StoreError(f"{name} is no vmapdbg capture: {error}") from error


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes to `path` by way of a file beside it, so that a reader sees the old file or the new one; text is UTF-8.

    Raises StoreError when it cannot; no half-written file stays behind.
    """
    if isinstance(content, str):
        content = content.encode()
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        # a temporary file is its owner's alone: it gets the rights of any new file
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
