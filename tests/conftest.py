"""What holds for all tests.

How many random examples a property is tried on: `pytest --hypothesis-profile=thorough` takes ten times as many.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile

from hypothesis import settings

pytest_plugins = ("vmapdbg_shard",)

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


def pytest_collection_finish() -> None:
    """Has no garbage collection look at the modules and tests again and again: a tenth of the time of many tests."""
    gc.collect()
    gc.freeze()
