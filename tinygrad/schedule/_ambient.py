"""Ambient ranges: the vmap RANGEs that a node depends on, and what each of them is bound to (patches ambient-ranges, nested-ranges).

Stage 3 of the rangeify pass (indexing.py) finds them, forward: `find_ambient_ranges`. Stage 4, the backward walk, binds them: `BatchLoops`."""
from __future__ import annotations
from tinygrad.dtype import dtypes
from tinygrad.uop.ops import AxisType, GroupOp, Ops, UOp
from tinygrad_overlay import _state
from tinygrad_overlay.schedule._pass import NodeRanges, Ranges, VmapContext
from tinygrad_overlay.uop.ops import range_size

BINDING_PATCHES = {"ambient-ranges", "nested-ranges"}

def find_free_ranges(consumers:dict[UOp, dict[UOp, None]], scope_ranges:frozenset[UOp]) -> frozenset[UOp]:
  """Returns the vmap RANGEs that can be bound to any index: not OUTER ones, which are variables of the kernel, and not RANGEs used as values."""
  if not BINDING_PATCHES <= _state.patches: return frozenset()
  return frozenset(r for r in scope_ranges if r.arg[-1] == AxisType.LOOP and all(c.op in GroupOp.VMap for c in consumers[r]))

def find_ambient_ranges(toposort:dict[UOp, None], scope_ranges:frozenset[UOp]) -> dict[UOp, Ranges]:
  """Returns vmap_map. A node has the union of its sources' ambient ranges, without the ranges that it ends. Propagation is forward: a constant used
  inside the scope has no ambient range, because it does not vary and its buffer has no batch axis."""
  if "nested-ranges" not in _state.patches: return find_first_ambient(toposort)
  vmap_map: dict[UOp, Ranges] = {}
  for x in toposort:
    if x.op is Ops.RANGE or x.dtype.scalar() == dtypes.index: continue
    # UOp.ranges is the union over the sources without the ranges that the op ends; a BUFFER or a KERNEL has none. Sorted in loop order
    if ambient:=tuple(sorted((r for r in x.ranges if r in scope_ranges), key=lambda r: r.arg)): vmap_map[x] = ambient
  return vmap_map

def find_first_ambient(toposort:dict[UOp, None]) -> dict[UOp, Ranges]:
  """Without nested-ranges the first source with ambient ranges decides, and VMAPOUT has none. Right for one level only."""
  vmap_map: dict[UOp, Ranges] = {}
  for x in toposort:
    if x.op is Ops.VMAPIN: vmap_map[x] = tuple(a for a in x.src[1:] if a.op is Ops.RANGE)
    elif x.op is not Ops.VMAPOUT and (first:=next((vmap_map[s] for s in x.src if s in vmap_map), None)): vmap_map[x] = first
  return vmap_map

class BatchLoops:
  """The loops over the batches of the scopes. Each GLOBAL buffer inside a scope has its own loop over the batch, like over its other axes. `loops` is
  invariant 4 of the walk: loop -> the vmap RANGE that it replaces. Two loops over one RANGE stay different until the walk ends, so that their readers
  differ; then each becomes the RANGE again (`name_all`), because no kernel has both."""
  def __init__(self, ctx:VmapContext, toposort:dict[UOp, None], free_ranges:frozenset[UOp]):
    self.ctx, self.free_ranges = ctx, free_ranges
    self.are_bound = BINDING_PATCHES <= _state.patches
    self.loops: dict[UOp, UOp] = {}
    # the vmap RANGEs with a reduce in their scope
    self.reduced = {r for x in toposort if x.op in {Ops.REDUCE_AXIS, Ops.REDUCE} for r in ctx.vmap_map.get(x, ())}

  def ambient_of(self, x:UOp) -> Ranges: return self.ctx.vmap_map.get(x, ()) if self.are_bound else ()

  def new_loop(self, r:UOp) -> UOp:
    if r not in self.free_ranges: return r
    self.loops[loop:=self.ctx.new_range(range_size(r))] = r
    return loop

  # for a GLOBAL buffer
  def new_loops(self, x:UOp) -> dict[UOp, UOp]: return {r:self.new_loop(r) for r in self.ambient_of(x)}

  def axes_of(self, vmapout:UOp) -> Ranges:
    """Returns the ranges of a realized VMAPOUT: its batch axes keep their RANGEs, the other axes get new ranges. Loops are nested in the order of
    their ids. A batch axis after other axes needs a new id to be inside their loops, like its store; but a batch step with reduces is around the
    other loops."""
    varg = vmapout.src[1:]
    leading = next((i for i,a in enumerate(varg) if a.op is not Ops.RANGE), len(varg))
    outside = {i:self.new_loop(a) for i,a in enumerate(varg) if a.op is Ops.RANGE and (i < leading or a in self.reduced or a not in self.free_ranges)}
    return tuple(outside[i] if i in outside else self.ctx.new_range(s) for i,s in enumerate(vmapout.shape))

  def name_all(self) -> None:
    """Replaces the loops by their RANGEs in all of range_map."""
    if not self.loops: return
    def name(u:UOp) -> UOp: return u.substitute(self.loops) if any(r in self.loops for r in u.ranges) else u
    for x,(ins,outs,ambient) in self.ctx.range_map.items():
      self.ctx.range_map[x] = NodeRanges(tuple(map(name, ins)), tuple(map(name, outs)), {r:name(bound) for r,bound in ambient.items()})
    _state.observer.loops_bound(self.loops)
