"""A tinygrad that is installed from its checkout (`pip install -e`) is the release only at the release's tag."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vmapdbg.install.overlay import TINYGRAD_VERSION, find_editable, installed_folder
from vmapdbg.install.trees import find_imported, find_tree, is_release


def install_editable(site: Path, checkout: Path) -> None:
    """What pip leaves in site-packages: metadata, and a finder that is of no matter here."""
    info = site / f"tinygrad-{TINYGRAD_VERSION}.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: tinygrad\nVersion: {TINYGRAD_VERSION}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    told = {"dir_info": {"editable": True}, "url": checkout.as_uri()}
    (info / "direct_url.json").write_text(json.dumps(told), encoding="utf-8")


def git(folder: Path, *arguments: str) -> None:
    names = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    subprocess.run(["git", "-C", str(folder), *names, *arguments], check=True, capture_output=True)


def make_checkout(folder: Path) -> Path:
    for name, text in {"__init__.py": "", "tensor.py": "X = 1\n"}.items():
        file = folder / "tinygrad" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "release"], ["tag", f"v{TINYGRAD_VERSION}"]):
        git(folder, *arguments)
    return folder


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a space in its path, installed in front of any other tinygrad."""
    made = make_checkout(tmp_path / "my checkout")
    install_editable(tmp_path / "site", made)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    return made


def test_a_checkout_is_found_by_what_pip_noted(checkout: Path) -> None:
    assert find_editable() == checkout.resolve()
    assert installed_folder() == checkout.resolve() / "tinygrad"
    # where the path has a folder of that name that is no package, or nothing
    (checkout.parent / "overlay" / "tinygrad").mkdir(parents=True)
    found = find_imported([str(checkout.parent / "overlay")])
    assert found is not None
    assert found.folder == checkout.resolve()


def is_release_now(checkout: Path) -> bool:
    find_tree.cache_clear()
    return is_release(find_tree(str(checkout)))


def test_its_tag_decides(checkout: Path) -> None:
    assert is_release_now(checkout)
    (checkout / "notes.txt").write_text("not part of git", encoding="utf-8")
    assert is_release_now(checkout)
    (checkout / "tinygrad" / "tensor.py").write_text("X = 2\n", encoding="utf-8")
    assert not is_release_now(checkout)
    git(checkout, "commit", "-qam", "later")
    assert not is_release_now(checkout)


def test_the_release_somewhere_else_is_not_what_is_imported(checkout: Path) -> None:
    assert not is_release_now(make_checkout(checkout.parent / "other"))


@pytest.mark.parametrize(
    "text",
    ["{", "{}", '{"url": "file:///x", "dir_info": {}}', '{"url": "git+https://x", "dir_info": {"editable": true}}'],
)
def test_folders_that_are_not_checkouts(text: str, checkout: Path) -> None:
    (note,) = (checkout.parent / "site").glob("*/direct_url.json")
    note.write_text(text, encoding="utf-8")
    assert find_editable() is None
