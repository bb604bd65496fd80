"""Our rangeify pass: gives each node of the tensor graph its ranges and decides which nodes become buffers.

It replaces `run_rangeify`. Without VMAPIN and VMAPOUT in the graph its result equals tinygrad 0.12.0's, to the key of each kernel's AST. With them it
also tracks **ambient ranges**: the vmap RANGEs that a node depends on but that its own range tuple does not hold, because VMAPOUT removes them on the
way in (patches vmap-ops, ambient-ranges, nested-ranges). Ambient ranges propagate like the others: a reader of a VMAPOUT binds
its RANGE to the reader's index, and a buffer inside the scope starts again with the RANGE itself.

 1. scopes     refuse ops that cannot be inside a scope, give each RANGE a unique id (_scopes.py; not in upstream)
 2. realize    find the nodes that are buffers by rule: upstream's rules and one for VMAPOUT (upstream's indexing.py:14-36, 165)
 3. ambient    propagate the vmap RANGEs forward, from VMAPIN to all nodes that depend on it (_ambient.py; not in upstream)
 4. ranges     backward, from outputs to inputs: the ranges on each node's output, then on its inputs (below; upstream's 171-275).
               A policy decides which shared values become buffers (_policy.py; upstream's 211-229 and 231-241)
 5. apply      insert BUFFERIZE and INDEX as decided in 2 and 4 (_apply.py; upstream's 57-82, 277)

The numbers are lines of tinygrad/schedule/indexing.py in tinygrad 0.12.0, here and in the docstrings below."""
from __future__ import annotations
import functools, operator
from types import ModuleType
from tinygrad.dtype import dtypes
from tinygrad.helpers import all_same, cpu_profile
from tinygrad.schedule.indexing import IndexingContext, apply_movement_op, pm_generate_realize_map, render_ranges
from tinygrad.uop.ops import AxisType, GroupOp, Ops, PatternMatcher, UOp, consumer_map_from_toposort, graph_rewrite, profile_matches
from tinygrad.uop.symbolic import symbolic
from tinygrad_overlay import _state
from tinygrad_overlay._patching import Changes
from tinygrad_overlay.schedule import _known, _parts, _pass
from tinygrad_overlay.schedule._ambient import BatchLoops, find_ambient_ranges, find_free_ranges
from tinygrad_overlay.schedule._apply import create_bufferize_and_index
from tinygrad_overlay.schedule._pass import Attempt, NodeRanges, Ranges, VmapContext
from tinygrad_overlay.schedule._policy import EndingNode, Policy, RowValues
from tinygrad_overlay.schedule._refusals import Refusal
from tinygrad_overlay.schedule._scopes import is_kept, prepare_scopes, vmap_ranges

# ranges on the output of a node, and the bindings of its ambient ranges
Output = tuple[Ranges, dict[UOp, UOp]]

# ops without ranges: a kernel's ranges are internal (indexing.py:174-177)
WITHOUT_RANGES = {Ops.DEVICE, Ops.UNIQUE, Ops.KERNEL}
# ops that may be realized because ranges end below them (indexing.py:232)
ENDS_RANGES = GroupOp.Elementwise | {Ops.REDUCE_AXIS}

class RangeAssignment:
  """The backward walk. Invariants, for each node x after its visit:

   1. range_map[x] = (ranges on its inputs, ranges on its output), one for each axis, and the bindings of its inputs' ambient ranges
   2. realize_map[x], if present, lists the axes with new ranges: all axes for a GLOBAL buffer, some for a LOCAL buffer. All axes with x in
      local_in_scope is a LOCAL buffer inside a step of the batch
   3. ending[x] maps each range that ends below x, without a realized node between, to the node that ends it: an EXPAND, or the entry to a scope
   4. batch.loops maps each loop of a buffer over a batch to its vmap RANGE. range_map has the loop until the walk ends, and the RANGE after that
   5. rows.values[x], if present, says that x is realized because its readers differ along a row, and which of its axes are not along the row
   6. rows.row_of maps the ranges of such an x that are not along the row to the ranges of all its readers, through any number of such nodes"""
  def __init__(self, attempt:Attempt, free_ranges:frozenset[UOp]):
    self.toposort, self.ctx, self.consumers, self.attempt = attempt.toposort, attempt.ctx, attempt.consumers, attempt
    self.policy = Policy(attempt)
    self.batch = BatchLoops(attempt.ctx, attempt.toposort, free_ranges)
    self.rows = RowValues()
    self.ending: dict[UOp, dict[UOp, UOp]] = {}

  def run(self, debug:bool) -> None:
    for x in reversed(self.toposort):
      # an index consists of ranges, and has none
      if x.op in WITHOUT_RANGES or x.dtype.scalar() == dtypes.index: continue
      self.ending[x] = self.collect_ending(x)
      if (found:=self.output_ranges(x)) is None: continue
      out_rngs, ambient = found
      if self.ending[x] and x.op in ENDS_RANGES: out_rngs, ambient = self.end_ranges(x, out_rngs, ambient)
      if x in self.rows.values:
        along = self.rows.note_ranges(x, out_rngs, ambient)
        if self.policy.may_compute_again: self.attempt.row_values[x] = [self.batch.loops.get(r, r) for r in along]
      rngs = self.input_ranges(x, out_rngs, ambient)
      self.ctx.range_map[x] = NodeRanges(rngs, out_rngs, input_ambient(x, out_rngs, ambient))
      if debug: self.print_node(x, rngs, out_rngs)
    self.batch.name_all()

  def collect_ending(self, x:UOp) -> dict[UOp, UOp]:
    """Returns the ranges that end below x (indexing.py:180)."""
    ending: dict[UOp, UOp] = {}
    mine = self.batch.ambient_of(x)
    for c in self.consumers[x]:
      if below:=self.ending.get(c): ending = {**below, **ending}
      # a value from outside a scope is the same for each of its steps, like a value that an EXPAND repeats
      if self.batch.are_bound and c in self.ctx.range_map:
        ending.update((e, c) for r,bound in self.ctx.range_map[c].ambient.items() if r not in mine for e in bound.ranges)
    return ending

  # *** the ranges on the output

  def output_ranges(self, x:UOp) -> Output|None:
    """Returns new ranges if x is realized, the consumer's ranges, or several consumers' merged ranges; None if x has none (indexing.py:182-229)."""
    if x in self.ctx.realize_map:
      self.ending[x] = {}
      self.ctx.realize_map[x] = list(range(len(x.shape)))
      # the ambient ranges first: their loops are around the loops of the axes
      ambient = self.batch.new_loops(x)
      return self.generated_ranges(x), ambient
    # like SINK, these use each source unchanged
    if x.op in {Ops.MSTACK, Ops.MSELECT}: return None
    consumer_rngs = [self.ctx.range_map[c] for c in self.consumers[x] if c in self.ctx.range_map]
    if len(consumer_rngs) == 0: return None
    if len(consumer_rngs) > 1: return self.merge_consumers(x, consumer_rngs)
    return consumer_rngs[0].ins, {r:consumer_rngs[0].ambient.get(r, r) for r in self.batch.ambient_of(x)}

  def generated_ranges(self, x:UOp) -> Ranges:
    return self.batch.axes_of(x) if x.op is Ops.VMAPOUT else tuple(self.ctx.new_range(s) for s in x.shape)

  def renew(self, x:UOp, rngs:Ranges, axes:list[int]) -> Ranges:
    return tuple(self.ctx.new_range(x.shape[i]) if i in axes else r for i,r in enumerate(rngs))

  def merge_consumers(self, x:UOp, readers:list[NodeRanges]) -> Output:
    """Consumers with equal ranges, except for valids, share them; otherwise x is realized on the axes that differ (indexing.py:205-229)."""
    mine = self.batch.ambient_of(x)
    agree, outs = merge_ranges([n.ins for n in readers])
    batch_agrees, batch = merge_ranges([tuple(n.ambient.get(r, r) for r in mine) for n in readers])
    ambient = dict(zip(mine, batch))
    differ, batch_differs = [i for i,same in enumerate(agree) if not same], [r for r,same in zip(mine, batch_agrees) if not same]
    if not differ and not batch_differs: return tuple(outs), ambient
    partial = not batch_differs and self.policy.may_be_partial(x)
    if partial and (refusal:=self.policy.find_refusal(x, differ)) is not None:
      self.report_refused(x, refusal)
      partial = False
    axes = self.ctx.realize_map[x] = differ if partial else list(range(len(x.shape)))
    if len(axes) == len(x.shape): ambient = self.batch.new_loops(x)
    own = self.generated_ranges(x) if x.op is Ops.VMAPOUT else self.renew(x, tuple(outs), axes)
    # readers that share the rows and differ along them, only in plain loops: the reduce of a row, and its elements
    asked = [n.ins[i] for n in readers for i in differ]+[n.ambient.get(r, r) for n in readers for r in batch_differs]
    if not partial and all(r.get_idx().op is Ops.RANGE for r in asked): self.rows.note_readers(x, readers, mine)
    return own, ambient

  def end_ranges(self, x:UOp, out_rngs:Ranges, ambient:dict[UOp, UOp]) -> Output:
    """If a range ends below x, in an EXPAND, x is realized, so that it is not computed again for each element of the EXPAND (indexing.py:231-241)."""
    # a scalar has no axis, and stock computes it again each time; inside a scope it has the batch
    is_batch_alone = out_rngs == () and x in self.ctx.vmap_map and "ambient-ranges" in _state.patches
    node, self.ending[x] = EndingNode(x, out_rngs, ambient, self.ending[x], list(self.ctx.realize_map.get(x) or []), is_batch_alone), {}
    choice = self.policy.choose_axes(node)
    if (refusal:=self.policy.find_refusal_at(node, choice, self.batch.ambient_of(x))) is not None:
      self.report_refused(x, refusal)
      choice = node.realize_all()
    axes = node.realized+choice.axes
    if choice.fuses: self.attempt.fused[x] = axes
    if choice.is_local_in_scope: self.ctx.local_in_scope.add(x)
    if not axes and not choice.realizes_batch: return out_rngs, ambient
    # observers of the realize map recognize this place by the name of this list
    ending_ranges = list(node.ending)
    if ending_ranges and (choice.axes or not axes): self.ctx.realize_map[x] = axes
    if len(axes) == len(out_rngs) and not choice.is_local_in_scope: ambient = self.batch.new_loops(x)
    return self.renew(x, out_rngs, axes), ambient

  def report_refused(self, x:UOp, refusal:Refusal) -> None:
    self.attempt.refused[x] = refusal
    _state.observer.fusion_refused(x, refusal)

  # *** the ranges on the inputs

  def input_ranges(self, x:UOp, out_rngs:Ranges, ambient:dict[UOp, UOp]) -> Ranges:
    """Returns the input ranges: moved by a movement op, without the batch axes for VMAPOUT, with them for VMAPIN, new for the reduced axes of a
    REDUCE_AXIS (indexing.py:247-263)."""
    if x.op in GroupOp.Movement:
      rngs = apply_movement_op(x.op, x.src[0].shape, x.marg, out_rngs)
      # an EXPAND ends the ranges of the axes it expands, but an EXPAND to a RANGE adds that range (indexing.py:256-259)
      if x.op is Ops.EXPAND and not any(isinstance(s, UOp) and s.op is Ops.RANGE for s in x.shape):
        self.ending[x].update((e, x) for r,o in zip(rngs, out_rngs) if r is not o for e in o.ranges)
      return rngs
    if x.op is Ops.REDUCE_AXIS:
      return tuple(self.ctx.new_range(s, axistype=AxisType.REDUCE) if i in x.arg[1] else r for i,(r,s) in enumerate(zip(out_rngs, x.src[0].shape)))
    if x.op is Ops.VMAPOUT: return tuple(r for a,r in zip(x.src[1:], out_rngs) if a.op is Ops.CONST)
    if x.op is not Ops.VMAPIN: return out_rngs
    stays = iter(out_rngs)
    return tuple(ambient.get(a, a) if a.op is Ops.RANGE else next(stays) for a in x.src[1:])

  def print_node(self, x:UOp, rngs:Ranges, out_rngs:Ranges) -> None:
    """Prints a line of DEBUG_RANGEIFY (indexing.py:265-272)."""
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
  """Returns for each axis whether all consumers have one index, and that index: valid if any consumer's is (indexing.py:207-222)."""
  agree, merged = [], []
  for rngs in zip(*asked):
    idxs = [r.get_idx() for r in rngs]
    agree.append(all_same(idxs))
    merged.append(idxs[0])
    if agree[-1]:
      valid = functools.reduce(operator.or_, [r.get_valid() for r in rngs], UOp.const(dtypes.bool, False))
      merged[-1] = graph_rewrite(valid.where(idxs[0], UOp.invalid()), symbolic, name="minimum_valid")
  return agree, merged

# *** the pass

@profile_matches
def run_rangeify(tsink:UOp, debug:bool=False) -> tuple[UOp, IndexingContext]:
  """Replaces stock's run_rangeify: tensor graph -> graph with BUFFERIZE and INDEX, and the context with the maps. Raises VmapScopeError if the graph
  has an op inside a vmap scope that the scheduler cannot handle there."""
  ctx, scope_ranges = VmapContext(), vmap_ranges(toposort:=tsink.toposort())
  if scope_ranges:
    toposort = (tsink:=prepare_scopes(tsink, toposort)).toposort()
    scope_ranges = vmap_ranges(toposort)
    ctx.vmap_map = find_ambient_ranges(toposort, scope_ranges)
  # an attempt with a graph has ended: rangeify was called directly, without the other stages
  attempt = _pass.begin(Attempt()) if _pass.current.toposort else _pass.current
  with cpu_profile("consumer map in rangeify", "TINY"): consumers = consumer_map_from_toposort(toposort)
  attempt.toposort, attempt.consumers, attempt.ctx, attempt.scope_ranges = toposort, consumers, ctx, scope_ranges
  free_ranges = find_free_ranges(consumers, scope_ranges)
  def walk() -> None:
    for x in toposort:
      if x.op is Ops.VMAPOUT: realize_vmapout(attempt.ctx.realize_map, x, free_ranges)
    graph_rewrite(tsink, pm_generate_realize_map, ctx=attempt.ctx.realize_map, name="get realize")
    attempt.forced = frozenset(attempt.ctx.realize_map)
    RangeAssignment(attempt, free_ranges).run(debug)
  if attempt.decide_part is not None and _known.recall(attempt, tsink): attempt.is_decided = True
  elif (decide_part:=attempt.decide_part) is not None and not scope_ranges:
    with _state.unwatched():
      # with every fusion that the ranges allow
      walk()
      if (decisions:=_parts.decide(attempt, decide_part)) is not None:
        attempt.realize_points, attempt.reused = decisions
        attempt.is_decided = True
    # if all fusions pay the first walk is the result, unless an observer must see it
    if not attempt.realize_points and not _state.observer.listens: return apply_rangeify(tsink, ctx), ctx
    attempt.ctx = ctx = VmapContext()
    for noted in (attempt.fused, attempt.refused, attempt.local_ranges, attempt.row_values): noted.clear()
  _state.observer.pass_starts(tsink, ctx, scope_ranges)
  walk()
  return apply_rangeify(tsink, ctx), ctx

def apply_rangeify(tsink:UOp, ctx:VmapContext) -> UOp:
  return graph_rewrite(tsink, pm_apply_rangeify, ctx=ctx, bottom_up=True, name="apply rangeify")

def realize_vmapout(realize_map:dict[UOp, None|list[int]], x:UOp, free_ranges:frozenset[UOp]) -> None:
  """A VMAPOUT whose RANGE cannot be bound to a reader's index must be a buffer."""
  if is_kept(x) or any(a.op is Ops.RANGE and a not in free_ranges for a in x.src[1:]): realize_map[x] = None

pm_apply_rangeify: PatternMatcher

def patch(module:ModuleType) -> None:
  global pm_apply_rangeify
  with Changes("vmap-ops, ambient-ranges, nested-ranges, fuse-broadcast") as changes:
    stock = changes.expect(module, "create_bufferize_and_index_based_on_ranges", "ctx", "x")
    pm_apply_rangeify = changes.replace_rule(module, "pm_apply_rangeify", stock, create_bufferize_and_index)
    changes.replace(module, "run_rangeify", run_rangeify)
