"""Small programs that schedule and do not run. The line that a planted fault is about ends with `# here`."""

from __future__ import annotations

_SCOPE = """
from tinygrad import Tensor, UOp, dtypes
from tinygrad.uop.ops import AxisType
keep = UOp.const(dtypes.index, 0)
"""

SCOPE = (
    _SCOPE
    + """
x = Tensor.empty(4, 3).vmapin((keep, UOp.range(3, -1, AxisType.LOOP)))
pair = Tensor.stack(x[:2].sum(), x[2:].sum()).contiguous()  # here
out = (pair.reshape(2, 1).expand(2, 5) + Tensor.empty(2, 5)).vmapout((UOp.range(3, -1, AxisType.LOOP), keep, keep))
"""
)

OUTER_SCOPE = SCOPE.replace("AxisType.LOOP)", "AxisType.OUTER)")

NESTED = (
    _SCOPE
    + """
outer, inner = UOp.range(3, -1, AxisType.LOOP), UOp.range(2, -2, AxisType.LOOP)
a, b = Tensor.empty(3, 4).vmapin((outer, keep)), Tensor.empty(2, 4).vmapin((inner, keep))
both = (a * b).contiguous()  # here
out = (both + 1).vmapout((inner, keep)).vmapout((outer, keep, keep))
"""
)

SQUARE_NESTED = NESTED.replace("range(2, -2", "range(3, -2").replace("empty(2, 4)", "empty(3, 4)")

_PLAIN = """
from tinygrad import Tensor
"""

COPY = (
    _PLAIN
    + """
out = (Tensor.empty(5, 7) * 2 + 1).contiguous()  # here
"""
)
PERMUTE = (
    _PLAIN
    + """
x = (Tensor.empty(2, 3, 5) + 1).contiguous()
out = x.permute(1, 2, 0).contiguous()  # here
"""
)
PAD = (
    _PLAIN
    + """
x = (Tensor.empty(5, 7) + 1).contiguous()
out = x.pad(((1, 1), (0, 2))).contiguous()  # here
"""
)
SHRINK = (
    _PLAIN
    + """
x = (Tensor.empty(5, 7) + 1).contiguous()
out = x[2:, 3:].contiguous()  # here
"""
)
FLIP = (
    _PLAIN
    + """
x = (Tensor.empty(5, 7) + 1).contiguous()
out = x.flip(0).contiguous()  # here
"""
)
EXPAND = (
    _PLAIN
    + """
x = Tensor.empty(5, 1).sqrt().contiguous()
out = (x.expand(5, 7) + Tensor.empty(5, 7)).contiguous()  # here
"""
)
RESHAPE = (
    _PLAIN
    + """
x = (Tensor.empty(6, 4) + 1).contiguous()
out = x.permute(1, 0).reshape(3, 8).contiguous()  # here
"""
)
REDUCE = (
    _PLAIN
    + """
out = Tensor.empty(6, 8).sum(1)  # here
"""
)
SQUARE_REDUCE = (
    _PLAIN
    + """
out = Tensor.empty(6, 6).sum(1)  # here
"""
)
SQUARE = (
    _PLAIN
    + """
out = Tensor.empty(6, 6).permute(1, 0).contiguous()  # here
"""
)
TWO = (
    _PLAIN
    + """
first = (Tensor.empty(6, 8) + 1).contiguous()
out = first.sum(1)  # here
"""
)
BROADCAST = (
    _PLAIN
    + """
x = Tensor.empty(64, 64)
out = x * x.sum(1, keepdim=True).exp()  # here
"""
)
MATMUL = (
    _PLAIN
    + """
mid = Tensor.empty(64, 64) @ Tensor.empty(64, 64)
out = mid @ Tensor.empty(64, 64)  # here
"""
)
WIDE = (
    _PLAIN
    + """
out = Tensor.empty(32, 16384).softmax()  # here
"""
)
FEED_FORWARD = (
    _PLAIN
    + """
x, gate, up, down = Tensor.empty(64, 256), Tensor.empty(256, 512), Tensor.empty(256, 512), Tensor.empty(512, 256)
out = ((x @ gate).silu() * (x @ up)) @ down  # here
"""
)
GROUP = (
    _PLAIN
    + """
out = Tensor.empty(16384).sum()  # here
"""
)
TWO_READERS = (
    _PLAIN
    + """
x = Tensor.empty(6, 6) + 1  # here
out = x.permute(1, 0) * x.sum(1, keepdim=True)
"""
)
