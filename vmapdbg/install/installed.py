"""The tinygrad that Python finds by itself."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from vmapdbg.install.checkout import describe_state
from vmapdbg.install.overlay import find_editable
from vmapdbg.install.tree import Tree, find_version

_GENERATED = "runtime/autogen/"


def find_imported(path: Sequence[str]) -> Tree | None:
    """Returns the tree that `import tinygrad` takes where `sys.path` is `path`, None where there is none. Imports
    nothing."""
    spec = PathFinder.find_spec("tinygrad", list(path))
    # no origin: a folder without an __init__.py, such as that of the overlay
    if spec is None or spec.origin is None:
        folder = find_editable()
        if folder is None:
            return None
    else:
        folder = Path(spec.origin).parent.parent
    return Tree("", folder, find_version(folder), describe_state(folder))


def is_release(tree: Tree, version: str) -> bool:
    """Tells whether a tree was installed from the package of a release: a checkout calls itself by the release before
    it."""
    return (tree.folder / f"tinygrad-{version}.dist-info").is_dir()


def is_editable_release(folder: Path, source: str) -> bool:
    """Tells whether a folder is the checkout that tinygrad is installed from (`pip install -e`), with the code of the
    release whose `hash_source` is `source`."""
    editable = find_editable()
    return editable is not None and editable == folder.resolve() and hash_source(folder) == source


def hash_source(folder: Path) -> str:
    """Returns the hash of the package in a folder: of its Python files, those apart that tinygrad generates."""
    # few have such an install: nobody else waits for this import
    import hashlib

    package = folder / "tinygrad"
    found = hashlib.sha256()
    for file in sorted(package.rglob("*.py"), key=lambda file: file.relative_to(package).as_posix()):
        name = file.relative_to(package).as_posix()
        if not name.startswith(_GENERATED):
            # git on Windows may have changed the ends of lines
            found.update(name.encode() + b"\0" + file.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return found.hexdigest()
