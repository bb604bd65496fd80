"""What differs between tinygrad releases where this tool looks: one module for each family of releases.

A family is chosen by what the imported tinygrad has, not by its version number, so that a checkout between two releases
gets the one that fits. Names that the tool relies on are looked up: one that is missing switches off the part that
needs it, and `Adapter.missing` has a line about it.
"""

from __future__ import annotations

import functools

from vmapdbg.child.adapters.base import Adapter, CompiledKernel, ScheduledKernel

__all__ = ["Adapter", "CompiledKernel", "ScheduledKernel", "find_adapter"]


@functools.cache
def find_adapter() -> Adapter:
    """Returns the adapter of the tinygrad that is importable. It imports tinygrad's schedule and codegen modules."""
    from tinygrad.uop import Ops, ops

    if hasattr(ops, "ParamArg"):
        from vmapdbg.child.adapters.param_args import ParamArgs

        return ParamArgs()
    if hasattr(Ops, "CALL"):
        from vmapdbg.child.adapters.calls import Calls

        return Calls()
    from vmapdbg.child.adapters.exec_items import ExecItems

    return ExecItems()
