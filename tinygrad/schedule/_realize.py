"""Stages 2 and 3 of the rangeify pass (indexing.py): what is a buffer whatever its ranges are, and which vmap RANGEs a node depends on."""
from __future__ import annotations
from tinygrad.dtype import dtypes
from tinygrad.schedule.indexing import ALWAYS_CONTIGUOUS
from tinygrad.uop.ops import AxisType, GroupOp, Ops, UOp
from tinygrad_overlay import _state
from tinygrad_overlay.schedule._ranges import Ranges
from tinygrad_overlay.schedule._scopes import KEEP

# *** 2. realize: these are buffers whatever their ranges are

ALWAYS_REALIZED = {Ops.COPY, Ops.BUFFER_VIEW, Ops.CONTIGUOUS, Ops.STORE, Ops.ENCDEC}
REALIZES_SOURCES = {Ops.COPY, Ops.MSELECT, Ops.MSTACK, Ops.ENCDEC}

def find_realized(toposort:dict[UOp, None], free_ranges:frozenset[UOp]) -> dict[UOp, tuple[str, UOp]]:
  """Returns node -> (reason, the node that asks for it), for all that is realized by rule."""
  found: dict[UOp, tuple[str, UOp]] = {}
  for x in toposort:
    if x.op in ALWAYS_REALIZED or (x.op is Ops.VMAPOUT and must_realize(x, free_ranges)): found.setdefault(x, ("always", x))
    if x.op in REALIZES_SOURCES:
      for s in x.src:
        if s.base.op not in ALWAYS_CONTIGUOUS: found.setdefault(s, ("source-of", x))
    elif x.op is Ops.SINK:
      for s in x.src:
        if s.base.op not in ALWAYS_CONTIGUOUS: found.setdefault(s.base, ("output", x))
    elif x.op is Ops.ASSIGN:
      if x.src[1].op not in ALWAYS_CONTIGUOUS: found.setdefault(x.src[1], ("assign", x))
      # a kernel that is assigned is a buffer already
      if x.src[1].op is not Ops.KERNEL: found.setdefault(x, ("assign", x))
    elif x.op is Ops.REDUCE and any(r.arg[-1] == AxisType.OUTER for r in x.src[1:]): found.setdefault(x, ("outer-reduce", x))
  return found

def find_free_ranges(consumers:dict[UOp, dict[UOp, None]], scope_ranges:frozenset[UOp]) -> frozenset[UOp]:
  """The vmap RANGEs that may be bound to any index. An OUTER one is a variable of the kernel, and one that a value uses itself stands in its index."""
  if not {"ambient-ranges", "nested-ranges"} <= _state.patches: return frozenset()
  return frozenset(r for r in scope_ranges if r.arg[-1] == AxisType.LOOP and all(c.op in GroupOp.VMap for c in consumers[r]))

def is_kept(x:UOp) -> bool: return x.op is Ops.VMAPOUT and x.arg == KEEP

def must_realize(vmapout:UOp, free_ranges:frozenset[UOp]) -> bool:
  return is_kept(vmapout) or any(a.op is Ops.RANGE and a not in free_ranges for a in vmapout.src[1:])

# *** 3. ambient: which vmap RANGEs a node depends on

def find_ambient_ranges(toposort:dict[UOp, None], scope_ranges:frozenset[UOp]) -> dict[UOp, Ranges]:
  """Returns vmap_map. A node has the union of its sources' ambient ranges, less those that it ends itself.

  Without nested-ranges the first source that has any decides and VMAPOUT has none, which is right for one level only (seed 001).
  Propagation is forward, so that a constant used inside the scope is not marked: it does not vary, its buffer has no batch axis.
  """
  vmap_map: dict[UOp, Ranges] = {}
  if "nested-ranges" not in _state.patches:
    for x in toposort:
      if x.op is Ops.VMAPIN: vmap_map[x] = tuple(a for a in x.src[1:] if a.op is Ops.RANGE)
      elif x.op is not Ops.VMAPOUT and (first:=next((vmap_map[s] for s in x.src if s in vmap_map), None)): vmap_map[x] = first
    return vmap_map
  for x in toposort:
    if x.op is Ops.RANGE or x.dtype.scalar() == dtypes.index: continue
    # UOp.ranges is the union over the sources less what the op ends; a BUFFER or a KERNEL has none. The order is that of the loops.
    if ambient:=tuple(sorted((r for r in x.ranges if r in scope_ranges), key=lambda r: r.arg)): vmap_map[x] = ambient
  return vmap_map
