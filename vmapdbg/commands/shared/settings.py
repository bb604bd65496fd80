"""The table `[tool.vmapdbg]`, a project's defaults for options: in the nearest pyproject.toml with such a table, in the
folder of the snippet or above it, as ruff does."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click

from vmapdbg.commands.shared import options
from vmapdbg.install.patches import Patches
from vmapdbg.install.targets import TARGETS
from vmapdbg.model.failure import Failure

_TABLE = "[tool.vmapdbg]"


@dataclass(frozen=True)
class Settings:
    """The values of the table, with the names of the options; None if the table does not have them."""

    target: str | None = None
    patches: Patches | None = None
    timeout: float | None = None
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None

    def choose_codes(self, select: tuple[str, ...] | None = None, ignore: tuple[str, ...] | None = None) -> list[str]:
        """Returns the codes that lint looks for; `select` and `ignore` come from the command line."""
        from vmapdbg.lint import CODES

        ignored = ignore or self.ignore or ()
        return [code for code in select or self.select or CODES if code not in ignored]


@functools.cache
def find_settings(snippet: str) -> Settings:
    """Returns the settings for a snippet, the same each time: the snippet may delete its folder. Raises Failure."""
    for folder in Path(snippet).absolute().parents:
        file = folder / "pyproject.toml"
        if (table := _read_table(file)) is not None:
            return _build(table, file)
    return Settings()


def _read_table(file: Path) -> Any:
    """Returns the table of a file, None if it has none. Raises Failure."""
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
        raise Failure(f"{file}: {error}") from None


def _build(table: Any, file: Path) -> Settings:
    if not isinstance(table, Mapping):
        raise Failure(f"{file}: tool.vmapdbg is a table: {_TABLE}")
    from vmapdbg.lint import CODES

    codes = options.names("code", CODES)
    # a value has the type of its option
    types: dict[str, click.ParamType[Any]] = {
        "target": click.Choice(list(TARGETS)),
        "patches": options.PATCHES,
        "timeout": options.SECONDS,
        "select": codes,
        "ignore": codes,
    }
    given: dict[str, Any] = {}
    for key, value in cast("Mapping[str, Any]", table).items():
        if key not in types:
            raise Failure(f"{file}: unknown key {key!r} in {_TABLE}: choose from {', '.join(types)}")
        if value == [] and types[key] is codes:
            given[key] = ()
            continue
        # a list is what an option takes with commas
        text = ",".join(map(str, cast("list[Any]", value))) if isinstance(value, list) else str(value)
        try:
            given[key] = types[key].convert(text, None, None)
        except click.BadParameter as error:
            raise Failure(f"{file}: {key} in {_TABLE}: {error.message}") from None
    return Settings(**given)
