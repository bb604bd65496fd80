"""A tinygrad that somebody changed: release 0.12.0 with VMAPIN and VMAPOUT in its own source.

A line is put before the line of the release that begins with an anchor; a word of the release is replaced by another.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

BEFORE: dict[str, dict[str, str]] = {
    "uop/__init__.py": {
        "class GroupOp": "  VMAPIN = auto(); VMAPOUT = auto()\n",
        "All = set(": "  VMap = {Ops.VMAPIN, Ops.VMAPOUT}",
    },
    "uop/ops.py": {
        "case Ops.KERNEL: return": """
      case Ops.VMAPIN: return tuple(size for size, axis in zip(self.src[0].shape, self.src[1:]) if axis.op is Ops.CONST)
      case Ops.VMAPOUT:
        inside = iter(self.src[0].shape)
        return tuple(axis.src[0].arg if axis.op is Ops.RANGE else next(inside) for axis in self.src[1:])"""
    },
    "uop/spec.py": {
        "# device or unique": """
  (UPat(GroupOp.VMap, name="x"), lambda x: all(axis.op is Ops.RANGE or axis.arg == 0 for axis in x.src[1:])),"""
    },
    "tensor.py": {
        "def contiguous(": """
  def vmapin(self, varg): return self._apply_uop(lambda inner: UOp(Ops.VMAPIN, inner.dtype, (inner, *varg)))
  def vmapout(self, varg): return self._apply_uop(lambda inner: UOp(Ops.VMAPOUT, inner.dtype, (inner, *varg)))"""
    },
    "schedule/indexing.py": {
        "# NOTE: do we need this?": "  if x.op in GroupOp.VMap: return new_srcs[0]",
        "# REDUCE_AXIS creates ranges": """
    if x.op is Ops.VMAPOUT: rngs = tuple(r for axis, r in zip(x.src[1:], rngs) if axis.op is Ops.CONST)
    if x.op is Ops.VMAPIN:
      inside = iter(rngs)
      rngs = tuple(axis if axis.op is Ops.RANGE else next(inside) for axis in x.src[1:])""",
    },
    "schedule/rangeify.py": {
        "sdtype = x.dtype.ptr(size=size": """
  if x.arg.addrspace == AddrSpace.GLOBAL:
    rngs = sorted({*rngs, *(r for r in x.src[0].ranges if r.arg[-1] != AxisType.OUTER)}, key=lambda r: r.arg)"""
    },
}
WORDS = {
    'Ops.ENCDEC}, name="tr"': 'Ops.ENCDEC, Ops.VMAPOUT}, name="tr"',
    "tuple(rctx.new_range(s) for s in x.shape)": """(
        tuple(rctx.new_range(s) for s in x.shape) if x.op is not Ops.VMAPOUT else
        tuple(axis if axis.op is Ops.RANGE else rctx.new_range(s) for axis, s in zip(x.src[1:], x.shape)))""",
}
# without it, a buffer inside a scope forgets the batch
MAP = {
    "# create ranges": "  vmap_map: dict[UOp, tuple[UOp, ...]] = field(default_factory=dict)",
    "# explicit rangeify": """
  for x in tsink_toposort:
    if x.op is Ops.VMAPIN: rctx.vmap_map[x] = tuple(axis for axis in x.src[1:] if axis.op is Ops.RANGE)
    elif x.op is not Ops.VMAPOUT:
      for s in x.src:
        if s in rctx.vmap_map: rctx.vmap_map.setdefault(x, rctx.vmap_map[s])""",
    "if s.op is Ops.STORE:": """
      batch = ctx.vmap_map.get(s, ())
      closed_ranges = batch + closed_ranges
      if x.op is Ops.VMAPOUT: reader = tuple(axis for axis in x.src[1:] if axis.op is Ops.RANGE)
      else: reader = ctx.vmap_map.get(x, ())""",
}
MAP_WORDS = {"new_src.index(*[r": "new_src.index(*(reader if batch else ()), *[r"}


def make_vmap_tree(place: Path, has_map: bool = True) -> Path:
    """Writes the changed tinygrad into a folder, and returns it; without `vmap_map` a buffer in a
    scope forgets the batch."""
    spec = importlib.util.find_spec("tinygrad")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = place / "tinygrad"
    shutil.copytree(spec.submodule_search_locations[0], folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, lines in BEFORE.items():
        words: dict[str, str] = {}
        if name == "schedule/indexing.py":
            lines = {**lines, **(MAP if has_map else {})}
            words = {**WORDS, **(MAP_WORDS if has_map else {})}
        _edit(folder / name, lines, words)
    return place


def _edit(file: Path, lines: dict[str, str], words: dict[str, str]) -> None:
    text = file.read_text(encoding="utf-8")
    for anchor, inserted in lines.items():
        at = [line for line in text.splitlines() if line.lstrip().startswith(anchor)]
        assert len(at) == 1, f"{file}: {len(at)} lines begin with {anchor}"
        text = text.replace(f"\n{at[0]}\n", f"\n{inserted}\n{at[0]}\n")
    for word, other in words.items():
        assert text.count(word) == 1, f"{file}: {word}"
        text = text.replace(word, other)
    file.write_text(text, encoding="utf-8")
