"""Small programs that schedule and do not run. The line that a planted fault is about ends with `# here`."""

from __future__ import annotations


def write_plain(*lines: str) -> str:
    return "\n".join(("", "from tinygrad import Tensor", "", *lines, ""))


def write_movement(shape: tuple[int, ...], moved: str) -> str:
    """Writes a program that stores a movement of `x`, a buffer of this shape."""
    return write_plain(f"x = (Tensor.empty{shape} + 1).contiguous()", f"out = {moved}.contiguous()  # here")


def write_scope(*lines: str) -> str:
    """Writes a program with a vmap scope; `keep` is the 0 of an axis that is not mapped."""
    imports = ("from tinygrad import Tensor, UOp, dtypes", "from tinygrad.uop.ops import AxisType")
    return "\n".join(("", *imports, "keep = UOp.const(dtypes.index, 0)", "", *lines, ""))


SCOPE = write_scope(
    "x = Tensor.empty(4, 3).vmapin((keep, UOp.range(3, -1, AxisType.LOOP)))",
    "pair = Tensor.stack(x[:2].sum(), x[2:].sum()).contiguous()  # here",
    "out = (pair.reshape(2, 1).expand(2, 5) + Tensor.empty(2, 5))",
    "out = out.vmapout((UOp.range(3, -1, AxisType.LOOP), keep, keep))",
)

OUTER_SCOPE = SCOPE.replace("AxisType.LOOP)", "AxisType.OUTER)")

NESTED = write_scope(
    "outer, inner = UOp.range(3, -1, AxisType.LOOP), UOp.range(2, -2, AxisType.LOOP)",
    "a, b = Tensor.empty(3, 4).vmapin((outer, keep)), Tensor.empty(2, 4).vmapin((inner, keep))",
    "both = (a * b).contiguous()  # here",
    "out = (both + 1).vmapout((inner, keep)).vmapout((outer, keep, keep))",
)

SQUARE_NESTED = NESTED.replace("range(2, -2", "range(3, -2").replace("empty(2, 4)", "empty(3, 4)")

COPY = write_plain("out = (Tensor.empty(5, 7) * 2 + 1).contiguous()  # here")
PERMUTE = write_movement((2, 3, 5), "x.permute(1, 2, 0)")
PAD = write_movement((5, 7), "x.pad(((1, 1), (0, 2)))")
SHRINK = write_movement((5, 7), "x[2:, 3:]")
FLIP = write_movement((5, 7), "x.flip(0)")
EXPAND = write_plain(
    "x = Tensor.empty(5, 1).sqrt().contiguous()", "out = (x.expand(5, 7) + Tensor.empty(5, 7)).contiguous()  # here"
)
RESHAPE = write_movement((6, 4), "x.permute(1, 0).reshape(3, 8)")
REDUCE = write_plain("out = Tensor.empty(6, 8).sum(1)  # here")
SQUARE_REDUCE = write_plain("out = Tensor.empty(6, 6).sum(1)  # here")
SQUARE = write_plain("out = Tensor.empty(6, 6).permute(1, 0).contiguous()  # here")
TWO = write_plain("first = (Tensor.empty(6, 8) + 1).contiguous()", "out = first.sum(1)  # here")
BROADCAST = write_plain("x = Tensor.empty(64, 64)", "out = x * x.sum(1, keepdim=True).exp()  # here")
MATMUL = write_plain("mid = Tensor.empty(64, 64) @ Tensor.empty(64, 64)", "out = mid @ Tensor.empty(64, 64)  # here")
WIDE = write_plain("out = Tensor.empty(32, 16384).softmax()  # here")
FEED_FORWARD = write_plain(
    "x, gate, up, down = Tensor.empty(64, 256), Tensor.empty(256, 512), Tensor.empty(256, 512), Tensor.empty(512, 256)",
    "out = ((x @ gate).silu() * (x @ up)) @ down  # here",
)
GROUP = write_plain("out = Tensor.empty(16384).sum()  # here")
TWO_READERS = write_plain("x = Tensor.empty(6, 6) + 1  # here", "out = x.permute(1, 0) * x.sum(1, keepdim=True)")
