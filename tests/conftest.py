"""What holds for all tests.

How many random examples a property is tried on: `pytest --hypothesis-profile=thorough` takes ten times as many.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile

import pytest
from hypothesis import settings

# what the tool remembers for a working directory is not kept in the user's own folder
os.environ.setdefault("XDG_STATE_HOME", tempfile.mkdtemp(prefix="vmapdbg-state-"))

# the tests start hundreds of processes: without kept compiled modules each would compile the checkout's modules again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# to look for LLVM and Mesa takes a tenth of a small child, which uses neither: this file is no library
for name in ("LLVM_PATH", "MESA_PATH"):
    os.environ.setdefault(name, __file__)

# a loaded machine is no fault of the code
settings.register_profile("quick", max_examples=20, deadline=None)
settings.register_profile("thorough", max_examples=200, deadline=None)
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", default="1/1", metavar="I/N", help="run part I of N of the chosen tests")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the tests of a shard, every Nth one of those that `-m` and `-k` have left."""
    shard, shards = map(int, str(config.getoption("--shard")).split("/"))
    chosen = items[shard - 1 :: shards]
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen


def pytest_collection_finish() -> None:
    """Has no garbage collection look at the modules and tests again and again: a tenth of the time of many tests."""
    gc.collect()
    gc.freeze()
