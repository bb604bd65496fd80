"""A tinygrad that is installed from its checkout (`pip install -e`) is the release only with the release's code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from vmapdbg.install import trees
from vmapdbg.install.overlay import TINYGRAD_SOURCE, TINYGRAD_VERSION, find_editable, installed_folder
from vmapdbg.install.trees import Tree, find_imported, hash_source, is_release


def install_editable(site: Path, checkout: Path) -> None:
    """What pip leaves in site-packages: metadata, and a finder that is of no matter here."""
    info = site / f"tinygrad-{TINYGRAD_VERSION}.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: tinygrad\nVersion: {TINYGRAD_VERSION}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    told = {"dir_info": {"editable": True}, "url": checkout.as_uri()}
    (info / "direct_url.json").write_text(json.dumps(told), encoding="utf-8")


def make_checkout(folder: Path) -> Path:
    for name, text in {"__init__.py": "", "tensor.py": "X = 1\n", "runtime/autogen/big.py": "Y = 1\n"}.items():
        file = folder / "tinygrad" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a space in its path, installed in front of any other tinygrad."""
    made = make_checkout(tmp_path / "my checkout")
    install_editable(tmp_path / "site", made)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    return made


def test_the_installed_release_has_the_hash_that_is_known() -> None:
    folder = installed_folder().parent
    assert (folder / f"tinygrad-{TINYGRAD_VERSION}.dist-info").is_dir()
    assert hash_source(folder) == TINYGRAD_SOURCE


def test_a_checkout_is_found_by_what_pip_noted(checkout: Path) -> None:
    assert find_editable() == checkout.resolve()
    assert installed_folder() == checkout.resolve() / "tinygrad"
    # where the path has a folder of that name that is no package, or nothing
    (checkout.parent / "overlay" / "tinygrad").mkdir(parents=True)
    found = find_imported([str(checkout.parent / "overlay")])
    assert found is not None
    assert found.folder == checkout.resolve()


def test_its_code_decides(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "TINYGRAD_SOURCE", hash_source(checkout))
    tree = Tree(checkout, TINYGRAD_VERSION)
    assert is_release(tree)
    (checkout / "tinygrad" / "tensor.py").write_bytes(b"X = 1\r\n")
    (checkout / "tinygrad" / "runtime" / "autogen" / "big.py").write_text("Y = 2\n", encoding="utf-8")
    assert is_release(tree)
    (checkout / "tinygrad" / "tensor.py").write_text("X = 2\n", encoding="utf-8")
    assert not is_release(tree)
    # the same code somewhere else is not what is imported
    other = make_checkout(checkout.parent / "other")
    assert hash_source(other) != hash_source(checkout)
    monkeypatch.setattr(trees, "TINYGRAD_SOURCE", hash_source(other))
    assert not is_release(Tree(other, TINYGRAD_VERSION))


@pytest.mark.parametrize(
    "text",
    ["{", "{}", '{"url": "file:///x", "dir_info": {}}', '{"url": "git+https://x", "dir_info": {"editable": true}}'],
)
def test_what_is_no_checkout(text: str, checkout: Path) -> None:
    (note,) = (checkout.parent / "site").glob("*/direct_url.json")
    note.write_text(text, encoding="utf-8")
    assert find_editable() is None
