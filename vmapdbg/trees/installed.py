"""The tinygrad that Python finds by itself."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from vmapdbg.trees.checkout import describe_state
from vmapdbg.trees.tree import Tree, find_version


def find_imported(path: Sequence[str]) -> Tree | None:
    """Returns the tree that `import tinygrad` takes where `sys.path` is `path`, None where there is none. Imports
    nothing."""
    spec = PathFinder.find_spec("tinygrad", list(path))
    # no origin: a folder without an __init__.py, such as that of the overlay
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent.parent
    return Tree("", folder, find_version(folder), describe_state(folder))


def is_release(tree: Tree, version: str) -> bool:
    """Tells whether a tree was installed from the package of a release: a checkout calls itself by the release before
    it."""
    return (tree.folder / f"tinygrad-{version}.dist-info").is_dir()
