"""Installs the overlay, all patches on, before a test of this folder imports tinygrad.

pytest loads this file in each xdist worker. Only the tests of this folder import tinygrad in the process of the tests.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
from devices import choose_device

from vmapdbg.install.overlay import install
from vmapdbg.install.patches import format_patches, parse_patches

sys.path.insert(0, str(Path(__file__).parent))  # `scopes`, which importlib mode would not find
install(format_patches(parse_patches("all")))

from tinygrad import Device  # noqa: E402
from tinygrad.codegen.opt.postrange import Scheduler  # noqa: E402
from tinygrad_overlay import _state  # noqa: E402

# a test decides by itself, with the limits that it sets
_state.process.keeps_decisions = False

# tinygrad and its patterns stay, and a test makes many small objects: to walk them all at every 700 new ones takes a
# seventh of the time
gc.set_threshold(50_000)

if "DEV" not in os.environ:
    # not through the environment: the children of other tests must not see it
    Device.DEFAULT = choose_device()


@pytest.fixture(autouse=True)
def number_kernels_from_the_start() -> None:
    """A kernel has the same name, whatever ran before: tinygrad's cache then has its compiled source."""
    Scheduler.kernel_cnt.clear()
