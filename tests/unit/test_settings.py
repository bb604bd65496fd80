"""`[tool.vmapdbg]` of a pyproject.toml: found as ruff finds its own, each mistake in it one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from vmapdbg.commands.shared.settings import Settings, find_settings
from vmapdbg.install.patches import parse_patches
from vmapdbg.model.failure import Failure

ALL_KEYS = """
[tool.vmapdbg]
target = "metal"
patches = "all,-close-ranges"
timeout = 600
select = ["VD101", "VD104"]
ignore = ["VD104"]
"""


def write(folder: Path, text: str) -> str:
    """Writes a pyproject.toml, and returns the name of a snippet next to it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return str(folder / "a.py")


def test_every_key(tmp_path: Path) -> None:
    settings = find_settings(write(tmp_path, ALL_KEYS))
    assert settings == Settings(
        target="metal",
        patches=parse_patches("all,-close-ranges"),
        timeout=600.0,
        select=("VD101", "VD104"),
        ignore=("VD104",),
    )
    assert settings.choose_codes() == ["VD101"]
    assert settings.choose_codes(("VD105",)) == ["VD105"]
    assert settings.choose_codes(None, ("VD101",)) == ["VD104"]


def test_the_nearest_table_counts(tmp_path: Path) -> None:
    """One without the table is stepped over, as ruff does; two are not mixed."""
    write(tmp_path, ALL_KEYS)
    write(tmp_path / "a", "[project]\nname = 'x'\n[tool.ruff]\nline-length = 100\n")
    snippet = str(tmp_path / "a" / "b" / "a.py")
    assert find_settings(snippet).target == "metal"
    write(tmp_path / "a" / "b", "[tool.vmapdbg]\nignore = []\n")
    other = str(tmp_path / "a" / "b" / "c" / "a.py")
    assert find_settings(other) == Settings(ignore=())


def test_nothing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_settings(str(tmp_path / "no" / "such" / "a.py")) == Settings()
    monkeypatch.chdir(tmp_path)
    assert find_settings("-c") == Settings()
    write(tmp_path / "b", "# vmapdbg is not set up here\n")
    assert find_settings(str(tmp_path / "b" / "a.py")) == Settings()


WRONG = [
    ("tagret = 'metal'", "unknown key 'tagret' in [tool.vmapdbg]: choose from target, patches, timeout, select"),
    ("target = 'abacus'", "target in [tool.vmapdbg]: 'abacus' is not one of 'c', 'metal'"),
    ("target = 3", "target in [tool.vmapdbg]: '3' is not one of 'c'"),
    ("patches = 'all,-soup'", "patches in [tool.vmapdbg]: unknown patch '-soup'"),
    ("timeout = 'long'", "timeout in [tool.vmapdbg]: 'long' is not a number of seconds over 0"),
    ("timeout = 0", "timeout in [tool.vmapdbg]: '0' is not a number of seconds over 0"),
    ("timeout = nan", "timeout in [tool.vmapdbg]: 'nan' is not a number of seconds over 0"),
    ("timeout = true", "timeout in [tool.vmapdbg]: 'True' is not a number of seconds over 0"),
    ("ignore = ['VD999']", "ignore in [tool.vmapdbg]: unknown code 'VD999': choose from VD101"),
    ("select = [101]", "select in [tool.vmapdbg]: unknown code '101'"),
    ("select = ''", "select in [tool.vmapdbg]: unknown code ''"),
    ("select = ['VD101', '']", "select in [tool.vmapdbg]: unknown code ''"),
    ("target = []", "target in [tool.vmapdbg]: '' is not one of 'c'"),
    ("target = ", "Invalid value (at line 2"),
]


@pytest.mark.parametrize(("line", "words"), WRONG, ids=[line for line, _ in WRONG])
def test_a_mistake_is_one_line_that_says_where(line: str, words: str, tmp_path: Path) -> None:
    snippet = write(tmp_path, f"[tool.vmapdbg]\n{line}\n")
    with pytest.raises(Failure) as raised:
        find_settings(snippet)
    assert str(raised.value).startswith(f"{tmp_path / 'pyproject.toml'}: {words}")
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 2


def test_a_table_that_is_none(tmp_path: Path) -> None:
    snippet = write(tmp_path, "[tool]\nvmapdbg = 3\n")
    with pytest.raises(Failure, match=r"tool\.vmapdbg is a table"):
        find_settings(snippet)
