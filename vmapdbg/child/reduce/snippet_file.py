"""The lines of a snippet that is being written: what it imports, and the names that it gives. Runs in the child."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


class SnippetFile:
    """Lines of Python. What they use of other modules is noted, so that it can be imported."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._used: set[str] = {"Tensor"}
        self._counts: Counter[str] = Counter()

    def use(self, *names: str) -> None:
        """Notes names that are imported."""
        self._used.update(names)

    def note_names(self, text: str) -> None:
        """Notes the names in a text that are imported."""
        for name in ("dtypes", "UOp", "Ops", "Device", "unpack"):
            if f"{name}." in text or f"{name}(" in text:
                self.use(name)
        for name in ("inf", "nan"):
            if any(f"{before}{name}" in text for before in ("(", "[", " ", "-")):
                self.use(name)

    def assign(self, prefix: str, text: str) -> str:
        """Adds a line that gives a value a name, `t3`, and returns that name."""
        name = f"{prefix}{self._counts[prefix]}"
        self._counts[prefix] += 1
        self.note_names(text)
        self.lines.append(f"{name} = {text}")
        return name

    def write_imports(self) -> str:
        """Returns what stands before the lines."""
        lines = []
        if "unpack" in self._used:
            lines += ["import base64", "import zlib"]
        if constants := sorted(self._used & {"inf", "nan"}):
            lines.append(f"from math import {', '.join(constants)}")
        if lines:
            lines.append("")
        names = sorted(self._used & {"Device", "Tensor", "UOp", "dtypes"})
        lines.append(f"from tinygrad import {', '.join(names)}")
        if "Ops" in self._used or "AxisType" in self._used:
            lines.append(f"from tinygrad.uop.ops import {', '.join(sorted(self._used & {'AxisType', 'Ops'}))}")
        if "unpack" in self._used:
            lines += ["", "", "def unpack(text: bytes) -> bytes:"]
            lines += ["    return zlib.decompress(base64.b85decode(text))", ""]
        return "\n".join(lines) + "\n"


def write_switches(switches: Mapping[str, int | str]) -> str:
    """Returns the lines that set switches of tinygrad, before it is imported; nothing for none."""
    if not switches:
        return ""
    lines = ["import os", "", *(f'os.environ["{name}"] = "{value}"' for name, value in switches.items()), ""]
    return "\n".join(lines) + "\n"
