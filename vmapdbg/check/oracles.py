"""The oracles that `vmapdbg check` can compare with, by name."""

from __future__ import annotations

import ast
from pathlib import Path

DEFAULT = "numpy"
_FOLDER = Path(__file__).parent.parent / "child" / "compare"
_PREFIX = "by_"


def _list_oracles() -> dict[str, str]:
    """Reads the description of each oracle off its file: importing it would import tinygrad."""
    files = sorted(_FOLDER.glob(f"{_PREFIX}*.py"))
    found = {file.stem.removeprefix(_PREFIX): _read_description(file) for file in files}
    return {DEFAULT: found.pop(DEFAULT), **found}


def _read_description(file: Path) -> str:
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "DESCRIPTION":
            return str(ast.literal_eval(statement.value))
    raise ValueError(f"{file} has no DESCRIPTION")


ORACLES = _list_oracles()
"""Name -> what it is, as part of a sentence; the default comes first. Each is `vmapdbg/child/compare/by_NAME.py`."""


def name_module(oracle: str) -> str:
    """Returns the module of an oracle, which only a child may import."""
    return f"vmapdbg.child.compare.{_PREFIX}{oracle}"
