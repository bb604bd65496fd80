"""The stages around the pass: which reduces are split before it (patch whole-gathers), and which BUFFERIZEs are removed or stored after it (patches
close-ranges, vmap-ops)."""
from __future__ import annotations
import itertools
from dataclasses import dataclass, field
from types import ModuleType
from typing import Iterator
from tinygrad.codegen.simplify import pm_reduce_simplify
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.schedule import indexing, rangeify as upstream
from tinygrad.schedule.indexing import apply_movement_op
from tinygrad.uop.ops import AxisType, GroupOp, Ops, PatternMatcher, UOp, UPat, graph_rewrite, range_str, resolve, sint
from tinygrad.uop.symbolic import symbolic
from tinygrad_overlay import _state
from tinygrad_overlay._func import graph
from tinygrad_overlay._patching import Changes, check
from tinygrad_overlay.codegen.simplify import pick_elements
from tinygrad_overlay.schedule import _fusion, _pass, _scopes
from tinygrad_overlay.schedule._policy import is_computed_again

# *** splitting a reduce

# number of nodes to search for a comparison with an index: a gather has a few dozen
MAX_NODES = 500
# a BITCAST may have another shape than its source
ELEMENTWISE = GroupOp.Elementwise-{Ops.BITCAST}

@dataclass(frozen=True)
class LeftWhole:
  """A gather along `axes` in a reduce of a `source` shape. Stock would store the shape `between`, and reduce it to `result` in a second kernel.
  `rest`: the other axes of the reduce, which become a separate reduce here."""
  axes: tuple[int, ...]
  rest: tuple[int, ...]
  source: tuple[sint, ...]
  between: tuple[sint, ...]
  result: tuple[sint, ...]

def split_reduceop(reduce:UOp, x:UOp) -> UOp|None:
  """Stock splits a REDUCE_AXIS whose result is 32,768 times smaller than its source in two kernels (rangeify.py:32). A gather, the sum over all r of
  `where(r == i, x[r], 0)`, stays whole: unsplit it is one load (codegen/simplify.py), split it is 256 loads, all but one useless, stored and added
  up. A gather along only some of its axes becomes two reduces: the gather, and the sum along the other axes, which may be split."""
  split = stock_split_reduceop(reduce, x)
  if split is None or "whole-gathers" not in _state.patches or reduce.arg[0] is not Ops.ADD: return split
  if not (gathered:=find_gathered(reduce, x)): return split
  rest = tuple(a for a in reduce.arg[1] if a not in gathered and resolve(x.shape[a] != 1))
  gather = x.r(Ops.ADD, gathered) if rest else reduce
  # the CONTIGUOUS between the two kernels of stock's split (rangeify.py:58)
  between = split.src[0].src[0]
  _state.observer.split_left_out(gather, LeftWhole(gathered, rest, x.shape, between.shape, reduce.shape))
  return gather.r(Ops.ADD, rest).replace(tag=reduce.tag) if rest else None

def find_gathered(reduce:UOp, x:UOp) -> tuple[int, ...]:
  """Returns the reduce axes along which all elements of `x` but one are zero."""
  if not any(u.op is Ops.CMPNE for u in itertools.islice(walk_values(x), MAX_NODES)): return ()
  indexed = Indexed(x.ndim)
  ranges = [UOp.range(s, a, AxisType.REDUCE if a in reduce.arg[1] else AxisType.LOOP) if s != 1 else UOp.const(dtypes.index, 0)
            for a,s in enumerate(x.shape)]
  value = graph_rewrite(indexed.value(x, tuple(ranges)), symbolic+pm_reduce_simplify, name="find gathers")
  summed = [ranges[a] for a in reduce.arg[1] if ranges[a].op is Ops.RANGE]
  _, left = pick_elements(value, summed)
  return tuple(a for a in reduce.arg[1] if ranges[a] in summed and ranges[a] not in left)

def walk_values(x:UOp) -> Iterator[UOp]:
  """Yields `x` and the nodes below it that a kernel computes element by element."""
  seen, waiting = {x}, [x]
  while waiting:
    yield (u:=waiting.pop())
    new = [s for s in (u.src if u.op in ELEMENTWISE else u.src[:1] if u.op in GroupOp.Movement else ()) if s not in seen]
    seen.update(new)
    waiting += new

@dataclass
class Indexed:
  """Writes elements of tensors as expressions of ranges, like the rangeify pass. A possible buffer becomes a placeholder."""
  next_range: int
  made: dict[tuple[UOp, tuple[UOp, ...]], UOp] = field(default_factory=dict)

  def value(self, u:UOp, ranges:tuple[UOp, ...]) -> UOp:
    if (known:=self.made.get((u, ranges))) is None: known = self.made[(u, ranges)] = self.make(u, ranges)
    return known

  def make(self, u:UOp, ranges:tuple[UOp, ...]) -> UOp:
    if u.op is Ops.CONST: return UOp.const(u.dtype, u.arg)
    if len(self.made) < MAX_NODES:
      if u.op in GroupOp.Movement: return self.move(u, ranges)
      if u.op in ELEMENTWISE: return UOp(u.op, u.dtype, tuple(self.value(s, ranges) for s in u.src), u.arg)
      # it depends on constants alone
      is_counted = u.op is Ops.REDUCE_AXIS and all(s.op in ELEMENTWISE or s.op in GroupOp.Movement or s.op is Ops.CONST for s in walk_values(u.src[0]))
      if is_counted: return self.count(u, ranges)
    return UOp(Ops.NOOP, u.dtype, arg=len(self.made)).index(*ranges)

  def move(self, u:UOp, ranges:tuple[UOp, ...]) -> UOp:
    moved = apply_movement_op(u.op, u.src[0].shape, u.marg, ranges)
    if u.op is not Ops.PAD: return self.value(u.src[0], moved)
    inside = UOp.const(dtypes.bool, True).prod(*[r.get_valid() for r in moved])
    return inside.where(self.value(u.src[0], tuple(r.get_idx() for r in moved)), UOp.const(u.dtype, 0))

  def count(self, u:UOp, ranges:tuple[UOp, ...]) -> UOp:
    """Writes an arange, a sum of ones, as a REDUCE over new ranges."""
    op, axes = u.arg
    own = {a:UOp.range(u.src[0].shape[a], self.next_range+i, AxisType.REDUCE) for i,a in enumerate(axes)}
    self.next_range += len(own)
    return self.value(u.src[0], tuple(own.get(a, r) for a,r in enumerate(ranges))).reduce(*own.values(), arg=op)

# *** removing a buffer

def remove_bufferize(src:UOp, buf:UOp, idx:UOp) -> UOp|None:
  """Stock's cost function decides; the guard may compute a row again instead of storing it, and `realize-reused` may store a value instead of
  computing it again. Both sides of the buffer may have the same vmap RANGEs, so these are separated first."""
  if (apart:=set_ranges_apart(buf, idx)) is not buf: src, buf, idx = apart.src[0], apart, idx.replace(src=(apart,)+idx.src[1:])
  attempt = _pass.current
  reused = attempt.reused.get(node) if (node:=_pass.node_of(buf)) is not None else None
  ret = None if reused is not None and reused.rule == "stored-once" else stock_remove_bufferize(src, buf, idx)
  again = ret is None and is_computed_again(attempt, src, buf, idx)
  if again: ret = src.substitute({k:v for k,v in zip(buf.src[1:], idx.src[1:]) if k.op is not Ops.CONST}, extra_pm=upstream.pm_gate_substitute)
  if ret is not None and node is not None:
    attempt.inlined.add(node)
    if again: attempt.fused[node] = []
  if again: _state.observer.removal_decided(buf, idx, ret, "computed-again", {})
  elif reused is not None: _state.observer.removal_decided(buf, idx, ret, reused.rule, reused.numbers)
  return ret

def remove_noop_bufferize(idx:UOp, b2:UOp) -> UOp|None:
  """Makes a LOCAL buffer GLOBAL if a GLOBAL buffer only copies it: LOCAL memory belongs to a kernel, so a tensor cannot use it."""
  local = idx.src[0]
  # a VMAPOUT of a part of a buffer is a separate tensor: its tag must not map it to the whole buffer
  if _pass.current.scope_ranges and b2.tag and local.op is Ops.BUFFERIZE and local.shape != b2.shape: return None
  if local.op is Ops.BUFFERIZE and local.arg.addrspace == AddrSpace.LOCAL and b2.arg.addrspace == AddrSpace.GLOBAL:
    idx = idx.replace(src=(local.replace(arg=b2.arg),)+idx.src[1:])
  return stock_remove_noop_bufferize(idx, b2)

def set_ranges_apart(buf:UOp, idx:UOp) -> UOp:
  """Returns `buf` with new RANGEs in place of RANGEs that its reader's index also uses. If one scope feeds another scope with the same RANGE (r),
  inlining replaces r by an expression of r (2-r after a flip). The rewrite would replace the r in there again, for ever."""
  if not _pass.current.scope_ranges or buf.op is not Ops.BUFFERIZE: return buf
  pairs = [(k,v) for k,v in zip(buf.src[1:], idx.src[1:]) if k.op is Ops.RANGE and k is not v]
  used = UOp.sink(*[v for _,v in pairs]).ranges
  if not (shared:=[k for k,_ in pairs if k in used]): return buf
  fresh = {k:k.replace(arg=(next(_pass.current.ctx.range_idx),)+k.arg[1:]) for k in shared}
  src = buf.src[0].substitute(fresh, extra_pm=upstream.pm_gate_substitute)
  return buf.replace(src=(src,)+tuple(fresh.get(r, r) for r in buf.src[1:]))

# *** storing a buffer

# an OUTER range of a vmap scope is a variable of the kernel, and the schedule runs the kernel once for each value
def is_outer_scope(r:UOp) -> bool: return r.arg[-1] == AxisType.OUTER and r.replace(tag=None) in _pass.current.scope_ranges
def outer_variable_name(r:UOp) -> str: return "range_"+range_str(r)

def bufferize_to_store(ctx, x:UOp, idx:UOp, allow_locals=True) -> UOp|None:
  """Stock makes the store; with close-ranges it closes every open range of its value, not only the ranges of its address."""
  ret = stock_bufferize_to_store(ctx, x, idx, allow_locals)
  if ret is None or x.arg.addrspace != AddrSpace.GLOBAL: return ret
  # an ASSIGN stores to its target, and a REDUCE over an OUTER range adds to its buffer: stock closes their ranges
  value = x.src[0]
  is_plain = value.op is not Ops.ASSIGN and not (value.op is Ops.REDUCE and any(r.arg[-1] == AxisType.OUTER for r in value.src[1:]))
  if _pass.current.scope_ranges and "close-ranges" in _state.patches and is_plain: ret = close_ranges(ret, x)
  if (node:=_pass.node_of(x)) is not None: _pass.current.buffers[ret.base.buf_uop] = node
  _state.observer.store_closed(x, ret)
  return ret

def close_ranges(after:UOp, x:UOp) -> UOp:
  """Closes LOOP ranges in the kernel, around the store."""
  buf, stored = after.src
  store, ended = (stored.src[0], stored.src[1:]) if stored.op is Ops.END else (stored, ())
  open_ranges = [r for r in x.src[0].ranges if r.arg[-1] != AxisType.OUTER]
  closed = [r for r in dict.fromkeys((*ended, *open_ranges)) if not is_outer_scope(r)]
  return after.replace(src=(buf, store.end(*sorted(closed, key=lambda r: r.arg))))

def renumber_range(ctx, r:UOp) -> UOp|None:
  if r.tag == () and "close-ranges" in _state.patches and is_outer_scope(r): return UOp.variable(outer_variable_name(r), r.vmin, r.vmax)
  return stock_renumber_range(ctx, r)

def add_buffers(ctx, x:UOp, idx:UOp): return bufferize_to_store(ctx, x, idx, allow_locals=False)

def tag_uop(ctx:list[UOp], x:UOp) -> UOp|None:
  ret = stock_tag_uop(ctx, x)
  _pass.current.tagged = ctx
  return ret

def split_store(ctx:list[UOp], x:UOp) -> UOp|None:
  ret = stock_split_store(ctx, x)
  if ret is not None: _fusion.note_kernel(_pass.current, x, ret)
  return ret

def get_rangeify_map(sink:UOp) -> dict[UOp, UOp]:
  """Runs all stages from tensor graph to kernels, again if a fusion does not pay (patches fusion-guard, local-budget)."""
  names = _scopes.name_generated_ranges(sink.toposort()) if _state.process.generated_ranges else {}
  new = graph.replace_nodes([sink], names) if names else {}
  try: becomes_map = _fusion.decide_fusions(new.get(sink, sink), stock_get_rangeify_map)
  finally: _pass.current.tagged = []  # they hold the user's graph
  return {old:becomes_map[u] for old,u in new.items() if u in becomes_map} if names else becomes_map

def patch(module:ModuleType) -> None:
  global stock_split_reduceop, stock_remove_noop_bufferize, stock_remove_bufferize, stock_bufferize_to_store, stock_renumber_range, stock_tag_uop, stock_split_store, stock_get_rangeify_map
  with Changes("vmap-ops, fuse-broadcast, fusion-guard") as changes:
    # rangeify.py imports it from indexing.py, which is patched already
    check(module.run_rangeify is indexing.run_rangeify, module, "run_rangeify", "that of indexing.py", "another one")
    stock_remove_bufferize = changes.replace(module, "remove_bufferize", remove_bufferize, rules=("pm_const_buffer_folding", "pm_remove_bufferize"))
    stock_remove_noop_bufferize = changes.replace(module, "remove_noop_bufferize", remove_noop_bufferize, rules=("pm_const_buffer_folding",))
    # a constant folded under a LOCAL buffer takes over its device, but constants in kernels have none
    changes.add_rules(module, "rangeify_codegen", PatternMatcher([(UPat(Ops.CONST, name="c"), lambda c: c.replace(src=()) if c.src else None)]))
    changes.by = "close-ranges"
    stock_bufferize_to_store = changes.replace(module, "bufferize_to_store", bufferize_to_store, rules=("pm_add_buffers_local",))
    # stock calls it in a lambda with allow_locals=False
    changes.replace_rule(module, "pm_add_buffers", stock_bufferize_to_store, add_buffers)
    stock_renumber_range = changes.replace(module, "renumber_range", renumber_range, rules=("to_define_global",))
    changes.by = "local-budget, fusion-guard"
    stock_split_store = changes.replace(module, "split_store", split_store, rules=("split_kernels",))
    stock_get_rangeify_map = changes.replace(module, "get_rangeify_map", get_rangeify_map)
    changes.by = "whole-gathers"
    stock_split_reduceop = changes.replace(module, "split_reduceop", split_reduceop, rules=("earliest_rewrites",))
    changes.by = "vmap-ops"
    stock_tag_uop = changes.replace(module, "tag_uop", tag_uop, rules=("add_tags",))
