"""Runs the user's files with other text than on disk, as `tune` tries edits: names, lines and imports stay the same."""

import json
import linecache
import os
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType


def read_snippet(snippet: str, edits: str) -> bytes:
    """Returns the snippet's text. Imports of files in `edits` (`Job.edits`: texts by real path) get that text."""
    texts: dict[str, str] = json.loads(Path(edits).read_text(encoding="utf-8")) if edits else {}

    def read(file: str) -> bytes:
        text = texts.get(os.path.realpath(file))
        if text is None:
            return Path(file).read_bytes()
        # for tracebacks and inspect; without a time it is not compared with the file
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
        return text.encode()

    stock = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        # not stock's: it reads and writes bytecode
        return self.source_to_code(read(path), path) if os.path.realpath(path) in texts else stock(self, fullname)

    if texts:
        SourceFileLoader.get_code = get_code
    return read(snippet)
