"""One fixture a release; a lane of its own: `pytest tests/releases`, as no other run collects it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from release_trees import RELEASES, find_tree


@pytest.fixture(scope="session", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def tree(release: str) -> Path:
    return find_tree(release)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Runs only if this folder is named: it needs the package index, and takes minutes."""
    named = [Path(str(argument).split("::")[0]).resolve() for argument in config.args]
    here = Path(__file__).parent
    if any(path == here or here in path.parents for path in named):
        return None
    return True if here == collection_path.parent or here == collection_path else None
