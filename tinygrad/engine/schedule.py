"""Runs a kernel once for each value of the OUTER ranges it takes as variables (patches vmap-ops, close-ranges)."""
from __future__ import annotations
import itertools
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import ModuleType
from tinygrad.engine.realize import ExecItem
from tinygrad.uop.ops import TRACK_MATCH_STATS, AxisType, Ops, PatternMatcher, UOp, UPat
from tinygrad_overlay import _state
from tinygrad_overlay._func import graph
from tinygrad_overlay._patching import Changes
from tinygrad_overlay._state import FIRST_GENERATED_ID, FIRST_PADDED_ID
from tinygrad_overlay.schedule import _pass, _scopes
from tinygrad_overlay.schedule.rangeify import outer_variable_name

def create_schedule(sched_sink:UOp) -> tuple[list[ExecItem], UOp]:
  """Repeats each kernel of an OUTER scope in stock's schedule: once for each step, with the step bound to its variable. All steps of a kernel run
  before the next kernel starts. Its buffers hold the whole batch."""
  items, buffers = stock_create_schedule(sched_sink)
  outer = {outer_variable_name(r) for r in _pass.current.scope_ranges if r.arg[-1] == AxisType.OUTER}
  if not outer or "close-ranges" not in _state.patches: return items, buffers
  _state.process.outer_variables.update(outer)
  expanded: list[ExecItem] = []
  written: list[UOp] = []
  for item,bufs in zip(items, buffers.src):
    variables = [v for v in item.ast.variables() if v.expr in outer]
    for step in itertools.product(*[range(int(v.vmax)+1) for v in variables]):
      expanded.append(ExecItem(item.ast, [], item.metadata, {**item.fixedvars, **{v.expr:i for v,i in zip(variables, step)}}))
      written.append(bufs)
  return expanded, UOp.sink(*written)

def complete_create_schedule_with_vars(big_sink:UOp) -> tuple[dict[UOp, UOp], list[ExecItem], dict[str, int]]:
  """Calls stock without the parts of a graph that only tinygrad.func knows: marks, and RANGEs whose ids are unique in the process."""
  process = _state.process
  if not process.generated_ranges and not process.marks: return stock_complete_create_schedule_with_vars(big_sink)
  marks = graph.find_marks(big_sink.toposort()) if process.marks else {}
  if marks and any(f.is_differentiated for f in _state.running.get()):
    x = next(s for s in big_sink.src if graph.find_marks(s.toposort()))
    raise RuntimeError(f"{_scopes.describe_place(x)} depends on an input of a function that is differentiated, and cannot be realized while it"
                       f" runs{_scopes.name_caller()}: its derivative would be lost; use Tensor.where for an `if`, and leave .item(), .numpy() and"
                       " .realize() out of the function")
  refuse_escaped(big_sink)
  if not marks: return schedule_with_key_ids(big_sink)
  new = graph.replace_nodes([big_sink], marks)
  becomes_map, schedule, var_vals = schedule_with_key_ids(new[big_sink])
  return {**becomes_map, **{old:becomes_map[u] for old,u in new.items() if u in becomes_map}}, schedule, var_vals

# *** the ids of tinygrad.func's RANGEs in the key of the schedule cache

@dataclass
class KeyIds:
  """Maps the args of tinygrad.func's RANGEs to args in the key of one schedule, and back: the same program always has the same key."""
  key_args: dict[tuple, tuple] = field(default_factory=dict)
  original_args: dict[tuple, tuple] = field(default_factory=dict)
  nodes: dict[UOp, UOp] = field(default_factory=dict)  # node of the key -> node of the graph
  graph: UOp|None = None

key_ids: ContextVar[KeyIds|None] = ContextVar("key_ids", default=None)

def schedule_with_key_ids(big_sink:UOp) -> tuple[dict[UOp, UOp], list[ExecItem], dict[str, int]]:
  token = key_ids.set(KeyIds())
  try: return stock_complete_create_schedule_with_vars(big_sink)
  finally: key_ids.reset(token)

def take_key_id(ctx, r:UOp) -> UOp|None:
  """A rule of stock's rewrite from graph to key, which renames the buffers."""
  if not _scopes.is_generated(r) or (ids:=key_ids.get()) is None or r.arg in ids.original_args: return None
  if (arg:=ids.key_args.get(r.arg)) is None:
    first = FIRST_PADDED_ID if _scopes.is_padded(r) else FIRST_GENERATED_ID
    arg = ids.key_args[r.arg] = (first-len(ids.original_args),)+r.arg[1:]
    ids.original_args[arg] = r.arg
  return r.replace(arg=arg)

def take_original_id(ctx, r:UOp) -> UOp|None:
  """A rule of stock's rewrite back, from the cached schedule to the nodes of the current graph."""
  if (ids:=key_ids.get()) is None or (arg:=ids.original_args.get(r.arg)) is None: return None
  return r.replace(arg=arg)

MAKES_KEY, LEADS_BACK = "rewrite for sched cache", "unrewrite combined"
# attribute of a cached schedule: the smaller graph to walk, and the key's graph. Keeping the graph alive keeps the key's UOps alive
KEPT = "_KEPT"
# ops that the key of a schedule replaces, besides constants with a number (unique constants); attribute of nodes with no such ops below
LEAVES, HAS_NO_LEAF = {Ops.BUFFER, Ops.BIND, Ops.RANGE}, "_HAS_NO_LEAF"

def graph_rewrite(sink:UOp, pm:PatternMatcher, ctx=None, bottom_up=False, name=None, bpm=None) -> UOp:
  """Replaces stock's rewrite in the two cases above by a walk that visits each node once: stock's waits at each node for its RANGEs. The walk reaches
  the leaves in another order, so they have other numbers in the key. With a listening observer stock's rewrite runs."""
  if (ids:=key_ids.get()) is not None and not TRACK_MATCH_STATS and not _state.observer.listens:
    if name == MAKES_KEY:
      new = rewrite_leaves(sink, pm, ctx, {})
      # the rewrite back starts from these
      ids.nodes, ids.graph = {found:u for u,found in new.items()}, new.get(sink, sink)
      return ids.graph
    if name == LEADS_BACK and ids.graph is not None:
      if (kept:=sink.__dict__.get(KEPT)) is None: kept = vars(sink)[KEPT] = (leave_out_kernels(sink, ids.graph), ids.graph)
      return rewrite_leaves(kept[0], pm, ctx, ids.nodes).get(kept[0], kept[0])
  return stock_graph_rewrite(sink, pm, ctx, bottom_up, name, bpm)

def leave_out_kernels(combined:UOp, graph:UOp) -> UOp:
  """Returns the cached schedule (pairs of a node and its replacement; the kernels' buffers) with each kernel replaced by the buffer that it writes.
  No other graph holds these kernels: tinygrad makes new ones for each call, and replaces them at once."""
  tensor_map, buffers = combined.src
  pairs, known = list(zip(tensor_map.src[::2], tensor_map.src[1::2])), graph.toposort()
  written = {k:v for k,v in pairs if k.op is Ops.AFTER and k not in known}
  left = [u for k,v in pairs if k not in written for u in (k, v)]
  return UOp.sink(UOp.sink(*left).substitute(written), buffers)

def rewrite_leaves(sink:UOp, pm:PatternMatcher, ctx, known:dict[UOp, UOp]) -> dict[UOp, UOp]:
  """Returns node -> changed node like graph_rewrite, for rules that replace leaves only. `known` has some results already. A node without such leaves
  below it is remembered in the node, and skipped the next time."""
  new, stack = dict(known), [sink]
  while stack:
    u = stack[-1]
    if u in new or HAS_NO_LEAF in u.__dict__: stack.pop()
    elif waits:=[s for s in u.src if s not in new and HAS_NO_LEAF not in s.__dict__]: stack += waits[::-1]
    else:
      srcs = tuple([new.get(s, s) for s in u.src])
      ret = u if srcs == u.src else UOp(u.op, u.dtype, srcs, u.arg, u.tag)
      if u.op in LEAVES or (u.op is Ops.CONST and len(u.src) == 2): new[u] = ret if (leaf:=pm.rewrite(ret, ctx)) is None else leaf
      elif ret is not u or any([s in new for s in u.src]): new[u] = ret
      else: vars(u)[HAS_NO_LEAF] = True
  return new

def refuse_escaped(big_sink:UOp) -> None:
  made = {r for ref in list(_state.process.generated_ranges) if (r:=ref()) is not None}
  for x in big_sink.src:
    if _scopes.closes_all(x, made): continue
    inside = {r for f in _state.running.get() for r in f.inputs}
    if not (left:=[r for r in x.ranges if _scopes.is_generated(r) and r not in inside]): continue
    raise _scopes.VmapScopeError(f"{_scopes.describe_place(x)} cannot be realized: it was made inside a function that vmap mapped ({_scopes.name_ranges(left)}),"
                                 " and kept when that returned; leave the scope first, with VMAPOUT or as a result of the mapped function")

def patch(module:ModuleType) -> None:
  global stock_create_schedule, stock_complete_create_schedule_with_vars, stock_graph_rewrite
  with Changes("vmap-ops, close-ranges") as changes:
    stock_create_schedule = changes.replace(module, "create_schedule", create_schedule)
    stock_complete_create_schedule_with_vars = changes.replace(module, "complete_create_schedule_with_vars", complete_create_schedule_with_vars)
    stock_graph_rewrite = changes.replace(module, "graph_rewrite", graph_rewrite)
    changes.add_rules(module, "pm_pre_sched_cache", PatternMatcher([(UPat(Ops.RANGE, name="r"), take_key_id)]))
    changes.add_rules(module, "pm_post_sched_cache", PatternMatcher([(UPat(Ops.RANGE, name="r"), take_original_id)]))
