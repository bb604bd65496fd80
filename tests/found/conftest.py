"""A lane of its own, `pytest tests/found`: it wants the releases, and takes minutes."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    named = [Path(str(argument).split("::")[0]).resolve() for argument in config.args]
    here = Path(__file__).parent
    return None if any(path == here or here in path.parents for path in named) else True
