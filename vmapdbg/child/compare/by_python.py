"""The oracle that runs a graph on tinygrad's PYTHON device, which compiles nothing: what differs from it alone is the
fault of code generation or of a compiler."""

from __future__ import annotations

from vmapdbg.child.compare.by_stock import StockRunner
from vmapdbg.child.compare.unroll import UnrolledOracle

DESCRIPTION = "the PYTHON device"


class PythonRunner(StockRunner):
    device = "PYTHON"


ORACLE = UnrolledOracle(PythonRunner)
