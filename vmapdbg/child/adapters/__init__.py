"""What differs between tinygrad releases where this tool looks.

Each part is chosen by what the imported tinygrad has, not by its version number, so that a checkout between two
releases gets those that fit. Names that the tool relies on are looked up: one that is missing switches off the part
that needs it, and `Adapter.missing` has a line about it.
"""

from __future__ import annotations

import functools

from vmapdbg.child.adapters.adapter import Adapter
from vmapdbg.child.adapters.lowering import CompiledKernel
from vmapdbg.child.adapters.schedules import ScheduledKernel

__all__ = ["Adapter", "CompiledKernel", "ScheduledKernel", "find_adapter"]


@functools.cache
def find_adapter() -> Adapter:
    """Returns the adapter of the tinygrad that is importable. It imports tinygrad's ops."""
    return Adapter()
