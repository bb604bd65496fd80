"""Our rangeify pass: gives each node of the tensor graph its ranges and decides which nodes become buffers.

It takes the place of `run_rangeify`. With no VMAPIN or VMAPOUT in the graph its result is that of tinygrad 0.12.0, to the key of each kernel's AST.
With them it also tracks **ambient ranges**: the vmap RANGEs a node depends on that its own range tuple does not hold,
because VMAPOUT strips them on the way in (patches vmap-ops, ambient-ranges, nested-ranges; seeds 000, 001, 004). An ambient range goes the way of the
others: what reads a VMAPOUT binds its RANGE to the index it reads at, a buffer inside the scope starts again with the RANGE itself.

 1. scopes     refuse what cannot be done inside one, give each RANGE an id of its own (_scopes.py)
 2. realize    find the nodes that are buffers whatever their ranges are (_realize.py)
 3. ambient    propagate the vmap RANGEs forward, from VMAPIN to what depends on it (_realize.py)
 4. ranges     backward, from outputs to inputs: the ranges on each node's output, then on its inputs
 5. apply      put BUFFERIZE and INDEX where the decisions of 2 and 4 say (_apply.py)
"""
from __future__ import annotations
import functools, operator
from dataclasses import dataclass
from types import ModuleType
from tinygrad.dtype import dtypes
from tinygrad.helpers import PCONTIG, all_same, cpu_profile
from tinygrad.schedule.indexing import IndexingContext, apply_movement_op, render_ranges
from tinygrad.uop.ops import AxisType, GroupOp, Ops, PatternMatcher, UOp, consumer_map_from_toposort, graph_rewrite, profile_matches
from tinygrad.uop.symbolic import symbolic
from tinygrad_overlay import _state
from tinygrad_overlay._patching import Changes
from tinygrad_overlay.schedule import _fusion
from tinygrad_overlay.schedule._apply import create_bufferize_and_index
from tinygrad_overlay.schedule._ranges import NodeRanges, Ranges, VmapContext
from tinygrad_overlay.schedule._realize import find_ambient_ranges, find_free_ranges, find_realized
from tinygrad_overlay.schedule._scopes import prepare_scopes, vmap_ranges

@dataclass(frozen=True)
class PassState:
  """What the later stages of the same schedule ask of the pass: its context, and the vmap RANGEs of its graph."""
  ctx: IndexingContext
  scope_ranges: frozenset[UOp]
last_pass = PassState(IndexingContext(), frozenset())

class RangeAssignment:
  """The backward walk. Invariants, for each node x after its visit:

   1. range_map[x] = (ranges on its inputs, ranges on its output), one for each axis, and what the ambient ranges of its inputs are bound to
   2. realize_map[x], if there, lists the axes with ranges of their own: all of them is a GLOBAL buffer, some a LOCAL one
   3. ending[x] maps each range that ends below x, and that no realized node cut off, to where it ends: an EXPAND, or what takes x into a scope
  """
  def __init__(self, toposort:dict[UOp, None], ctx:VmapContext, consumers:dict[UOp, dict[UOp, None]], free_ranges:frozenset[UOp]):
    self.toposort, self.ctx, self.consumers, self.free_ranges = toposort, ctx, consumers, free_ranges
    self.ending: dict[UOp, dict[UOp, UOp]] = {}
    self.binds_ambient = {"ambient-ranges", "nested-ranges"} <= _state.patches
    # the vmap RANGEs in whose scope there is a reduce
    self.reduced = {r for x in toposort if x.op in {Ops.REDUCE_AXIS, Ops.REDUCE} for r in ctx.vmap_map.get(x, ())}
    # each buffer loops over the batch on its own, as it does over its other axes: a range that stands for its loop -> the RANGE
    self.loops: dict[UOp, UOp] = {}
    # value of a row that its readers disagree on -> its axes, and the RANGEs of its batch, with what all readers ask for; None where they differ
    self.row_values: dict[UOp, tuple[list[UOp|None], dict[UOp, UOp|None]]] = {}
    # range of a value of a row, if the row is computed again -> that of its reader
    self.row_of: dict[UOp, UOp] = {}

  def run(self, debug:bool) -> None:
    for x in reversed(self.toposort):
      # these have no ranges: a kernel's are internal, an index is made of ranges
      if x.op in {Ops.DEVICE, Ops.UNIQUE, Ops.KERNEL} or x.dtype.scalar() == dtypes.index: continue
      self.ending[x] = self.collect_ending(x)
      if (found:=self.output_ranges(x)) is None: continue
      out_rngs, ambient = found
      if self.ending[x] and x.op in ENDS_RANGES: out_rngs, ambient = self.end_ranges(x, out_rngs, ambient)
      if x in self.row_values: self.report_row_value(x, out_rngs, ambient)
      rngs = self.input_ranges(x, out_rngs, ambient)
      self.ctx.range_map[x] = NodeRanges(rngs, out_rngs, input_ambient(x, out_rngs, ambient))
      if debug: self.print_node(x, rngs, out_rngs)
    self.name_loops()

  def new_loop(self, r:UOp) -> UOp:
    """A loop over a vmap RANGE. Two that are not one loop differ, until all is decided: then each is the RANGE again (name_loops)."""
    if r not in self.free_ranges: return r
    self.loops[loop:=self.ctx.new_range(r.src[0].arg)] = r
    return loop

  def name_loops(self) -> None:
    if not self.loops: return
    def named(u:UOp) -> UOp: return u.substitute(self.loops) if any(r in self.loops for r in u.ranges) else u
    for x,(ins,outs,ambient) in self.ctx.range_map.items():
      self.ctx.range_map[x] = NodeRanges(tuple(map(named, ins)), tuple(map(named, outs)), {r:named(bound) for r,bound in ambient.items()})
    _state.observer.loops_named(named)

  def ambient_of(self, x:UOp) -> Ranges: return self.ctx.vmap_map.get(x, ()) if self.binds_ambient else ()

  def unbound(self, x:UOp) -> dict[UOp, UOp]:
    """The ambient ranges of a GLOBAL buffer: it has a loop of its own over each."""
    return {r:self.new_loop(r) for r in self.ambient_of(x)}

  def collect_ending(self, x:UOp) -> dict[UOp, UOp]:
    ending: dict[UOp, UOp] = {}
    mine = self.ambient_of(x)
    for c in self.consumers[x]:
      if below:=self.ending.get(c): ending = {**below, **ending}
      # a value from outside that is used in a scope is the same for each step, as one that an EXPAND repeats
      if self.binds_ambient and c in self.ctx.range_map:
        ending.update((e, c) for r,bound in self.ctx.range_map[c].ambient.items() if r not in mine for e in bound.ranges)
    return ending

  def own_ranges(self, x:UOp) -> Ranges:
    # A VMAPOUT brings the ranges of its batch axes along, the others are new. Loops are in the order of their ids: the loop over a batch axis that
    # comes after others needs a new id to be inside theirs, as its store is; but a step that has reduces is around the others' loops.
    if x.op is Ops.VMAPOUT:
      leading = next((i for i,a in enumerate(x.src[1:]) if a.op is not Ops.RANGE), len(x.shape))
      outside = {i:self.new_loop(a) for i,a in enumerate(x.src[1:]) if a.op is Ops.RANGE and (i < leading or a in self.reduced or a not in self.free_ranges)}
      return tuple(outside[i] if i in outside else self.ctx.new_range(s) for i,s in enumerate(x.shape))
    return tuple(self.ctx.new_range(s) for s in x.shape)

  def output_ranges(self, x:UOp) -> tuple[Ranges, dict[UOp, UOp]]|None:
    """New where x is realized, the consumer's where there is one, merged where there are more. None: x has no ranges."""
    if x in self.ctx.realize_map:
      self.ending[x] = {}
      self.ctx.realize_map[x] = list(range(len(x.shape)))
      ambient = self.unbound(x)
      return self.own_ranges(x), ambient
    # like SINK, these take each source as it is
    if x.op in {Ops.MSTACK, Ops.MSELECT}: return None
    readers = [self.ctx.range_map[c] for c in self.consumers[x] if c in self.ctx.range_map]
    if len(readers) == 0: return None
    if len(readers) > 1: return self.merge_consumers(x, readers)
    return readers[0].ins, {r:readers[0].ambient.get(r, r) for r in self.ambient_of(x)}

  def merge_consumers(self, x:UOp, readers:list[NodeRanges]) -> tuple[Ranges, dict[UOp, UOp]]:
    """Consumers that ask for the same ranges (valids apart) share them; else x is realized, on the axes where they disagree."""
    mine = self.ambient_of(x)
    agree, merged = merge_ranges([n.ins for n in readers])
    batch_agrees, batch = merge_ranges([tuple(n.ambient.get(r, r) for r in mine) for n in readers])
    differ = [i for i,same in enumerate(agree) if not same]
    # a LOCAL buffer lives inside one step of the batch, and VMAPOUT has the batch in its axes
    partial = all(batch_agrees) and (not differ or (bool(PCONTIG) and x.op is not Ops.VMAPOUT and not self.is_barred(x, differ)))
    new_axes = differ if partial else list(range(len(x.shape)))
    if partial and not differ: return tuple(merged), dict(zip(mine, batch))
    self.ctx.realize_map[x] = new_axes
    ambient = dict(zip(mine, batch)) if len(new_axes) < len(x.shape) else self.unbound(x)
    own = self.own_ranges(x) if x.op is Ops.VMAPOUT else tuple(self.ctx.new_range(x.shape[i]) if i in new_axes else r for i,r in enumerate(merged))
    batch_differs = [r for r,same in zip(mine, batch_agrees) if not same]
    # readers that share the rows and differ along them: the reduce of the row on one side, its elements on the other
    asked = [n.ins[i].get_idx() for n in readers for i in differ]+[n.ambient.get(r, r).get_idx() for n in readers for r in batch_differs]
    if not partial and all(r.op is Ops.RANGE for r in asked):
      self.row_values[x] = ([self.find_row([n.ins[i] for n in readers]) for i in range(len(own))],
                            {r:self.find_row([n.ambient.get(r, r) for n in readers]) for r in mine})
    _state.observer.consumers_disagree(x, differ, batch_differs, self.consumers[x], self.ctx)
    return own, ambient

  def find_row(self, asked:list[UOp]) -> UOp|None:
    """What all readers ask for on one axis, where a reader that is a value of a row itself stands in the row of its own readers. None: they differ."""
    rows = [self.row_of.get(r.get_idx(), r.get_idx()) for r in asked]
    return rows[0] if all_same(rows) else None

  def report_row_value(self, x:UOp, out_rngs:Ranges, ambient:dict[UOp, UOp]) -> None:
    axes, batch = self.row_values[x]
    pairs = [*zip(out_rngs, axes), *((ambient[r], row) for r,row in batch.items())]
    self.row_of.update((r, row) for r,row in pairs if row is not None and r.op is Ops.RANGE)
    _fusion.report_row_value(x, [self.loops.get(r, r) for r,row in pairs if row is None])

  def end_ranges(self, x:UOp, out_rngs:Ranges, ambient:dict[UOp, UOp]) -> tuple[Ranges, dict[UOp, UOp]]:
    """A range ends below x, in an EXPAND: x is realized, so that it is not computed again for each element of the EXPAND."""
    ending, self.ending[x] = self.ending[x], {}
    axes = list(self.ctx.realize_map.get(x) or [])
    every = [i for i in range(len(out_rngs)) if i not in axes]
    # a scalar has no axis, and stock lets it be computed again each time; inside a scope it has the batch
    batched = out_rngs == () and x in self.ctx.vmap_map and "ambient-ranges" in _state.patches
    ended, barrier = every, True
    if PCONTIG > 1 or _fusion.removes_barriers():
      def is_crossed(r:UOp) -> bool: return any(rr.arg > e.arg for e in ending for rr in r.ranges)
      crossed = [i for i in every if is_crossed(out_rngs[i])]
      # The batch is an axis more. Where it is not crossed a LOCAL buffer of all other axes is inside its loop; where it is, there is no LOCAL buffer
      # of the batch and some axes.
      batch_crossed = any(is_crossed(bound) for bound in ambient.values()) and _fusion.removes_barriers()
      in_scope = not axes and bool(crossed) and bool(ambient) and not batch_crossed and _fusion.removes_barriers()
      if not batch_crossed and not self.is_barred(x, axes+crossed if in_scope or len(ended) > len(crossed) else [], ending):
        ended, barrier = crossed, not _fusion.removes_barriers()
        if in_scope and len(crossed) == len(every): self.ctx.local_in_scope.add(x)
        if not barrier and (len(ended) < len(every) or batched or in_scope): _fusion.report_fused(x, axes+ended)
    # with every barrier in place nothing is to be decided, but the reason is told
    else: self.is_barred(x, [])
    axes += ended
    if not axes and not (batched and barrier): return out_rngs, ambient
    self.ctx.realize_map[x] = axes
    if ended or not axes: _state.observer.ranges_end(x, ended, ending)
    if len(axes) == len(out_rngs) and x not in self.ctx.local_in_scope: ambient = self.unbound(x)
    return tuple(self.ctx.new_range(x.shape[i]) if i in axes else r for i,r in enumerate(out_rngs)), ambient

  def is_barred(self, x:UOp, axes:list[int], ending:dict[UOp, UOp]|None=None) -> bool:
    """Whether a barrier stands at x, where only `axes` would be realized else, as a LOCAL buffer."""
    refusal = _fusion.find_barrier(x) or _fusion.too_large_for_local(x, axes)
    if refusal is None and ending is not None and _fusion.removes_barriers(): refusal = _fusion.too_slow_for_local(x, axes, ending, self.ambient_of(x))
    if refusal is not None: _fusion.report_refused(x, refusal)
    return refusal is not None

  def input_ranges(self, x:UOp, out_rngs:Ranges, ambient:dict[UOp, UOp]) -> Ranges:
    """Swizzled by a movement op, without the batch axes below VMAPOUT, with them above VMAPIN, new for what a REDUCE_AXIS reduces."""
    if x.op in GroupOp.Movement:
      rngs = apply_movement_op(x.op, x.src[0].shape, x.marg, out_rngs)
      # an EXPAND to a RANGE injects that range, any other one ends the ranges of the axes it expands
      if x.op is Ops.EXPAND and not any(isinstance(s, UOp) and s.op is Ops.RANGE for s in x.shape):
        for r,o in zip(rngs, out_rngs):
          if r is not o: self.ending[x].update((e, x) for e in o.ranges)
      return rngs
    if x.op is Ops.REDUCE_AXIS:
      return tuple(self.ctx.new_range(s, axistype=AxisType.REDUCE) if i in x.arg[1] else r for i,(r,s) in enumerate(zip(out_rngs, x.src[0].shape)))
    if x.op is Ops.VMAPOUT: return tuple(r for a,r in zip(x.src[1:], out_rngs) if a.op is Ops.CONST)
    if x.op is Ops.VMAPIN:
      stays = iter(out_rngs)
      return tuple(ambient.get(a, a) if a.op is Ops.RANGE else next(stays) for a in x.src[1:])
    return out_rngs

  def print_node(self, x:UOp, rngs:Ranges, out_rngs:Ranges) -> None:
    realized = self.ctx.realize_map.get(x)
    if x.op is Ops.RESHAPE or len(rngs) != len(out_rngs):
      shown = f"{render_ranges(rngs, realized=realized)} -> {render_ranges(out_rngs, realized=realized)}"
    else: shown = render_ranges(rngs, out_rngs, realized=realized)
    print("***" if x in self.ctx.realize_map else "   ", f"{len(self.consumers[x]):2d} {str(x.op):20s} {str(x._shape):35s} {len(self.ending[x]):2d}", shown)

def input_ambient(x:UOp, out_rngs:Ranges, ambient:dict[UOp, UOp]) -> dict[UOp, UOp]:
  if x.op is Ops.VMAPOUT: return {**ambient, **{a:r for a,r in zip(x.src[1:], out_rngs) if a.op is Ops.RANGE}}
  if x.op is Ops.VMAPIN: return {r:bound for r,bound in ambient.items() if r not in x.src[1:]}
  return ambient

def merge_ranges(asked:list[Ranges]) -> tuple[list[bool], list[UOp]]:
  """For each axis, whether all ask for one index, and that index: valid where any of the consumers is."""
  agree, merged = [], []
  for rngs in zip(*asked):
    idxs = [r.get_idx() for r in rngs]
    agree.append(all_same(idxs))
    merged.append(idxs[0])
    if agree[-1]:
      valid = functools.reduce(operator.or_, [r.get_valid() for r in rngs], UOp.const(dtypes.bool, False))
      merged[-1] = graph_rewrite(valid.where(idxs[0], UOp.invalid()), symbolic, name="minimum_valid")
  return agree, merged

# the ops at which ending ranges are looked at
ENDS_RANGES = GroupOp.Elementwise | {Ops.REDUCE_AXIS}

# *** the pass

@profile_matches
def run_rangeify(tsink:UOp, debug:bool=False) -> tuple[UOp, IndexingContext]:
  """Takes the place of stock's run_rangeify: tensor graph -> graph of BUFFERIZE and INDEX, and the context with the maps.

  Raises VmapScopeError when the graph does inside a vmap scope what the scheduler cannot do there.
  """
  global last_pass
  ctx, scope_ranges = VmapContext(), vmap_ranges(toposort:=tsink.toposort())
  if scope_ranges:
    toposort = (tsink:=prepare_scopes(tsink, toposort, scope_ranges)).toposort()
    scope_ranges = vmap_ranges(toposort)
    ctx.vmap_map = find_ambient_ranges(toposort, scope_ranges)
  last_pass = PassState(ctx, scope_ranges)
  with cpu_profile("consumer map in rangeify", "TINY"): consumers = consumer_map_from_toposort(toposort)
  free_ranges = find_free_ranges(consumers, scope_ranges)
  forced = find_realized(toposort, free_ranges)
  ctx.realize_map.update((x, None) for x in forced)
  if _fusion.attempt is not None: _fusion.attempt.toposort, _fusion.attempt.consumers = toposort, consumers
  _state.observer.pass_starts(tsink, toposort, consumers, forced, ctx, scope_ranges)
  RangeAssignment(toposort, ctx, consumers, free_ranges).run(debug)
  tsink = graph_rewrite(tsink, pm_apply_rangeify, ctx=ctx, bottom_up=True, name="apply rangeify")
  return tsink, ctx

pm_apply_rangeify: PatternMatcher

def patch(module:ModuleType) -> None:
  global pm_apply_rangeify
  with Changes("vmap-ops, ambient-ranges, nested-ranges, fuse-broadcast") as changes:
    stock = changes.expect(module, "create_bufferize_and_index_based_on_ranges", "ctx", "x")
    pm_apply_rangeify = changes.replace_rule(module, "pm_apply_rangeify", stock, create_bufferize_and_index)
    changes.replace(module, "run_rangeify", run_rangeify, "tsink", "debug")
