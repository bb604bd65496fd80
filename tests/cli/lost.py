"""A snippet whose buffer loses a range, for tests of lint: `LOST` with a comment on the line of it, `OFF` the patch."""

from __future__ import annotations

LOST = """
from tinygrad import Tensor, UOp, dtypes
from tinygrad.uop.ops import AxisType
keep, batch = UOp.const(dtypes.index, 0), UOp.range(3, -1, AxisType.LOOP)
x = Tensor.empty(3, 4).vmapin((batch, keep))
y = (x.sum() + 1).contiguous().expand(5){comment}
out = (y * 2).vmapout((batch, keep))
"""
OFF = ("--patches", "all,-ambient-ranges")
