"""Stage 5 of the rangeify pass (indexing.py): puts BUFFERIZE and INDEX where the ranges and the realize map say."""
from __future__ import annotations
from dataclasses import dataclass, field
from tinygrad.dtype import AddrSpace
from tinygrad.schedule.indexing import ALWAYS_CONTIGUOUS, BufferizeOpts
from tinygrad.uop.ops import GroupOp, Ops, UOp
from tinygrad_overlay import _state
from tinygrad_overlay.schedule import _fusion
from tinygrad_overlay.schedule._ranges import VmapContext
from tinygrad_overlay.schedule._realize import is_kept

@dataclass(frozen=True)
class NodeOpts(BufferizeOpts):
  """BufferizeOpts that remembers which node it is the buffer of, for the observer and the guard. Equality, hash and repr are stock's."""
  node: UOp|None = field(default=None, compare=False, repr=False)
  # one in a kernel's AST goes to other processes as stock's does
  def __reduce__(self): return BufferizeOpts, (self.device, self.addrspace, self.removable)
NodeOpts.__name__ = NodeOpts.__qualname__ = "BufferizeOpts"

NOT_INDEXED = {Ops.BUFFERIZE, Ops.INDEX, Ops.AFTER}
IS_BUFFER = {Ops.BUFFER, Ops.BUFFER_VIEW, Ops.MSTACK, Ops.MSELECT, Ops.AFTER}

def create_bufferize_and_index(ctx:VmapContext, x:UOp) -> UOp|None:
  """Puts BUFFERIZE and INDEX between x and each of its sources that is realized, INDEX alone on one that is a buffer already."""
  if x.op in NOT_INDEXED: return None
  new_srcs = tuple(index_source(ctx, x, s) if s.op in IS_BUFFER or s in ctx.realize_map else s for s in x.src)
  if x.op in GroupOp.VMap: return dissolve_vmap_op(ctx, x, new_srcs[0])
  return x.replace(src=new_srcs) if new_srcs != x.src else None

def dissolve_vmap_op(ctx:VmapContext, x:UOp, value:UOp) -> UOp:
  """The scope is in the ranges now: nothing is left for VMAPIN and VMAPOUT to say, unless it stands for a CONTIGUOUS."""
  if not is_kept(x): return value
  # a buffer that is read in its own order is contiguous already
  if x.src[0].op is Ops.CONTIGUOUS and value.src[1:] == ctx.range_map[x][1]: return value
  return UOp(Ops.CONTIGUOUS, x.dtype, (value,))

def index_source(ctx:VmapContext, x:UOp, s:UOp) -> UOp:
  if s.op in IS_BUFFER: return s.index(*ctx.range_map[x][0]) if x in ctx.range_map else s
  axes = ctx.realize_map[s]
  assert axes is not None, f"{s.op} is in the realize map, but has no ranges"
  closed = tuple(r for i,r in enumerate(ctx.range_map[s][1]) if i in axes)
  if s.op is Ops.STORE:
    del ctx.realize_map[s]
    return s.end(*[r for r in closed if r.op is Ops.RANGE])
  # the source of a COPY must stay a buffer, and what is one by its op too
  removable = x.op is not Ops.COPY and s.op not in ALWAYS_CONTIGUOUS and not is_kept(s)
  is_global = len(ctx.range_map[s][1]) == len(axes) and s not in ctx.local_in_scope
  # the ambient ranges are looked up by the buffer's node, not by who reads it: a reader may be a node that the rewrite just made.
  # A LOCAL buffer has none, it lives inside one step of the loop.
  ambient = ctx.vmap_map.get(s, ()) if is_global and "ambient-ranges" in _state.patches else ()
  # a value inside a scope is no tensor of the user's: its tag must not map a (4,) tensor to the (3, 4) buffer
  tag = s.tag if is_global and s not in ctx.vmap_map else None
  # stock's LOCAL buffers have no device, and a constant without a device has no shape: folded under one it could not be indexed
  device = s.device if is_global or "fuse-broadcast" in _state.patches else None
  if not is_global: _fusion.report_local(s, closed)
  opts = make_opts(s, device, AddrSpace.GLOBAL if is_global else AddrSpace.LOCAL, removable)
  buf = UOp(Ops.BUFFERIZE, s.dtype, src=(s,)+ambient+closed, arg=opts, tag=tag)
  _state.observer.bufferize_made(s, buf, ambient)
  if x not in ctx.range_map: return buf
  reader = ctx.range_map[x]
  return buf.index(*[reader.ambient.get(r, r) for r in ambient], *[r for i,r in enumerate(reader.ins) if i in axes])

def make_opts(node:UOp, device, addrspace:AddrSpace, removable:bool) -> BufferizeOpts:
  # a LOCAL one stays in its kernel's AST, and would keep the whole graph alive with it: only for who listens
  if not _state.observer.listens and (_fusion.attempt is None or addrspace == AddrSpace.LOCAL): return BufferizeOpts(device, addrspace, removable)
  return NodeOpts(device, addrspace, removable, node)
