"""The table `[tool.vmapdbg]` of a pyproject.toml: a project's defaults for options.

As ruff does, the tool reads the nearest pyproject.toml with such a table: in the folder of the snippet or above it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, cast

from vmapdbg.install.patches import Patches, parse_patches
from vmapdbg.install.targets import TARGETS
from vmapdbg.model.failure import Failure

_TABLE = "[tool.vmapdbg]"


class SettingsError(Failure):
    """A pyproject.toml cannot be read, or its table has an unknown key or a wrong value."""


# *** values: each function returns the meaning of a value of the table, or raises ValueError


def _read_name(noun: str, known: Collection[str], value: Any) -> str:
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"unknown {noun} {value!r}: choose from {', '.join(known)}")
    return value


def _read_patches(value: Any) -> Patches:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string such as 'all,-close-ranges'")
    return parse_patches(value)


def _read_codes(value: Any) -> tuple[str, ...]:
    from vmapdbg.lint import CODES

    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list of codes such as ['VD104']")
    return tuple(_read_name("code", CODES, code) for code in cast("list[Any]", value))


def _read_seconds(value: Any) -> float:
    # in Python a bool is an int
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{value!r} is not a number of seconds over 0")
    return float(value)


def _read_count(least: int, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{value!r} is not a whole number from {least} on")
    return value


# *** the table


@dataclass(frozen=True)
class Settings:
    """The values of the table, with the names of the options; None if the table does not have them. `read` is the
    function for a value."""

    target: str | None = field(default=None, metadata={"read": partial(_read_name, "target", TARGETS)})
    patches: Patches | None = field(default=None, metadata={"read": _read_patches})
    timeout: float | None = field(default=None, metadata={"read": _read_seconds})
    select: tuple[str, ...] | None = field(default=None, metadata={"read": _read_codes})
    ignore: tuple[str, ...] | None = field(default=None, metadata={"read": _read_codes})
    runs: int | None = field(default=None, metadata={"read": partial(_read_count, 2)})
    seconds: float | None = field(default=None, metadata={"read": _read_seconds})

    def choose_codes(self, select: tuple[str, ...] | None = None, ignore: tuple[str, ...] | None = None) -> list[str]:
        """Returns the codes that lint looks for; `select` and `ignore` come from the command line."""
        from vmapdbg.lint import CODES

        selected = select or self.select or CODES
        ignored = ignore or self.ignore or ()
        return [code for code in selected if code not in ignored]


def find_settings(snippet: str) -> Settings:
    """Returns the settings for a snippet. Raises SettingsError."""
    return _find_for(Path(snippet).absolute().parent)


@functools.cache
def _find_for(folder: Path) -> Settings:
    for place in (folder, *folder.parents):
        file = place / "pyproject.toml"
        table = _read_table(file)
        if table is not None:
            return _build(table, file)
    return Settings()


def _read_table(file: Path) -> Any:
    """Returns the table of a file, None if it has none. Raises SettingsError."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    # most files have no such table, and parsing them takes longer than this test
    if "vmapdbg" not in text:
        return None
    import tomllib

    try:
        return tomllib.loads(text).get("tool", {}).get("vmapdbg")
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: {error}") from None


def _build(table: Any, file: Path) -> Settings:
    if not isinstance(table, Mapping):
        raise SettingsError(f"{file}: tool.vmapdbg is a table: {_TABLE}")
    readers: dict[str, Callable[[Any], Any]] = {known.name: known.metadata["read"] for known in fields(Settings)}
    given: dict[str, Any] = {}
    for key, value in cast("Mapping[str, Any]", table).items():
        if key not in readers:
            raise SettingsError(f"{file}: unknown key {key!r} in {_TABLE}: choose from {', '.join(readers)}")
        try:
            given[key] = readers[key](value)
        except ValueError as error:
            raise SettingsError(f"{file}: {key} in {_TABLE}: {error}") from None
    return Settings(**given)
