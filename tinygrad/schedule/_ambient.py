"""Ambient ranges: the vmap RANGEs that a node depends on, and what each of them is bound to (patches ambient-ranges, nested-ranges; seeds 000, 001).

Stage 3 of the rangeify pass (indexing.py) finds them, forward: `find_ambient_ranges`. Stage 4, the backward walk, binds them: `BatchLoops`.
"""
from __future__ import annotations
from tinygrad.dtype import dtypes
from tinygrad.uop.ops import AxisType, GroupOp, Ops, UOp
from tinygrad_overlay import _state
from tinygrad_overlay.schedule._ranges import NodeRanges, Ranges, VmapContext
from tinygrad_overlay.uop.ops import range_size

BINDING_PATCHES = {"ambient-ranges", "nested-ranges"}

def find_free_ranges(consumers:dict[UOp, dict[UOp, None]], scope_ranges:frozenset[UOp]) -> frozenset[UOp]:
  """The vmap RANGEs that may be bound to any index. An OUTER one is a variable of the kernel, and one that a value uses itself stands in its
  index."""
  if not BINDING_PATCHES <= _state.patches: return frozenset()
  return frozenset(r for r in scope_ranges if r.arg[-1] == AxisType.LOOP and all(c.op in GroupOp.VMap for c in consumers[r]))

def find_ambient_ranges(toposort:dict[UOp, None], scope_ranges:frozenset[UOp]) -> dict[UOp, Ranges]:
  """Returns vmap_map. A node has the union of its sources' ambient ranges, less those that it ends itself.

  Propagation is forward, so that a constant used inside the scope is not marked: it does not vary, its buffer has no batch axis.
  """
  if "nested-ranges" not in _state.patches: return find_first_ambient(toposort)
  vmap_map: dict[UOp, Ranges] = {}
  for x in toposort:
    if x.op is Ops.RANGE or x.dtype.scalar() == dtypes.index: continue
    # UOp.ranges is the union over the sources less what the op ends; a BUFFER or a KERNEL has none. The order is that of the loops.
    if ambient:=tuple(sorted((r for r in x.ranges if r in scope_ranges), key=lambda r: r.arg)): vmap_map[x] = ambient
  return vmap_map

def find_first_ambient(toposort:dict[UOp, None]) -> dict[UOp, Ranges]:
  """vmap_map without nested-ranges: the first source that has any decides and VMAPOUT has none, which is right for one level only (seed 001)."""
  vmap_map: dict[UOp, Ranges] = {}
  for x in toposort:
    if x.op is Ops.VMAPIN: vmap_map[x] = tuple(a for a in x.src[1:] if a.op is Ops.RANGE)
    elif x.op is not Ops.VMAPOUT and (first:=next((vmap_map[s] for s in x.src if s in vmap_map), None)): vmap_map[x] = first
  return vmap_map

class BatchLoops:
  """The loops over the batches of the scopes. Each GLOBAL buffer inside a scope has a loop of its own over the batch, as over its other axes.

  `loops` is invariant 4 of the walk: loop -> the vmap RANGE that it stands for. Two loops over one RANGE differ until all is decided, so that their
  readers are seen to differ; then each is the RANGE again (`name_all`), since no kernel has both.
  """
  def __init__(self, ctx:VmapContext, toposort:dict[UOp, None], free_ranges:frozenset[UOp]):
    self.ctx, self.free_ranges = ctx, free_ranges
    self.are_bound = BINDING_PATCHES <= _state.patches
    self.loops: dict[UOp, UOp] = {}
    # the vmap RANGEs in whose scope there is a reduce
    self.reduced = {r for x in toposort if x.op in {Ops.REDUCE_AXIS, Ops.REDUCE} for r in ctx.vmap_map.get(x, ())}

  def ambient_of(self, x:UOp) -> Ranges: return self.ctx.vmap_map.get(x, ()) if self.are_bound else ()

  def new_loop(self, r:UOp) -> UOp:
    if r not in self.free_ranges: return r
    self.loops[loop:=self.ctx.new_range(range_size(r))] = r
    return loop

  def new_loops(self, x:UOp) -> dict[UOp, UOp]:
    """What the ambient ranges of x are bound to where it is a GLOBAL buffer."""
    return {r:self.new_loop(r) for r in self.ambient_of(x)}

  def axes_of(self, vmapout:UOp) -> Ranges:
    """The ranges of a VMAPOUT that is realized: its batch axes bring theirs along, the others are new.

    Loops are in the order of their ids: the loop over a batch axis that comes after others needs a new id to be inside theirs, as its store is; but a
    step that has reduces is around the others' loops.
    """
    varg = vmapout.src[1:]
    leading = next((i for i,a in enumerate(varg) if a.op is not Ops.RANGE), len(varg))
    outside = {i:self.new_loop(a) for i,a in enumerate(varg) if a.op is Ops.RANGE and (i < leading or a in self.reduced or a not in self.free_ranges)}
    return tuple(outside[i] if i in outside else self.ctx.new_range(s) for i,s in enumerate(vmapout.shape))

  def name(self, u:UOp) -> UOp: return u.substitute(self.loops) if any(r in self.loops for r in u.ranges) else u

  def name_all(self) -> None:
    """Puts the RANGEs in the place of their loops, in all of range_map."""
    if not self.loops: return
    for x,(ins,outs,ambient) in self.ctx.range_map.items():
      named = {r:self.name(bound) for r,bound in ambient.items()}
      self.ctx.range_map[x] = NodeRanges(tuple(map(self.name, ins)), tuple(map(self.name, outs)), named)
    _state.observer.loops_bound(self.loops)
