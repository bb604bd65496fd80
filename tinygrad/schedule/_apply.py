"""Stage 5 of the rangeify pass (indexing.py): puts BUFFERIZE and INDEX where the ranges and the realize map say (upstream's indexing.py:57-82)."""
from __future__ import annotations
from dataclasses import dataclass, field
from tinygrad.dtype import AddrSpace
from tinygrad.schedule.indexing import ALWAYS_CONTIGUOUS, BufferizeOpts
from tinygrad.uop.ops import GroupOp, Ops, UOp
from tinygrad_overlay import _state
from tinygrad_overlay.schedule import _pass
from tinygrad_overlay.schedule._pass import IS_BUFFER, Ranges, VmapContext
from tinygrad_overlay.schedule._scopes import is_kept

@dataclass(frozen=True)
class NodeOpts(BufferizeOpts):
  """BufferizeOpts with the buffer's node, for the guard. Hash and repr are stock's. It never equals plain BufferizeOpts: equal UOps are one object,
  and the UOp of an attempt without guard has no node."""
  node: UOp|None = field(default=None, compare=False, repr=False)
  # pickled as stock's BufferizeOpts, because kernel ASTs go to other processes
  def __reduce__(self): return BufferizeOpts, (self.device, self.addrspace, self.removable)

NodeOpts.__name__ = NodeOpts.__qualname__ = "BufferizeOpts"

NOT_INDEXED = {Ops.BUFFERIZE, Ops.INDEX, Ops.AFTER}

def create_bufferize_and_index(ctx:VmapContext, x:UOp) -> UOp|None:
  """Puts BUFFERIZE and INDEX between x and each realized source; only INDEX if the source is a buffer already."""
  if x.op in NOT_INDEXED: return None
  new_srcs = tuple(index_source(ctx, x, s) if s.op in IS_BUFFER or s in ctx.realize_map else s for s in x.src)
  if x.op not in GroupOp.VMap: return x.replace(src=new_srcs) if new_srcs != x.src else None
  # the ranges express the scope now. A kept VMAPOUT becomes a CONTIGUOUS, but a buffer read in order is contiguous already
  is_contiguous = x.src[0].op is Ops.CONTIGUOUS and new_srcs[0].src[1:] == ctx.range_map[x].outs
  return UOp(Ops.CONTIGUOUS, x.dtype, new_srcs[:1]) if is_kept(x) and not is_contiguous else new_srcs[0]

def index_source(ctx:VmapContext, x:UOp, s:UOp) -> UOp:
  if s.op in IS_BUFFER: return s.index(*ctx.range_map[x][0]) if x in ctx.range_map else s
  axes = ctx.realize_map[s]
  assert axes is not None, f"{s.op} is in the realize map, but has no ranges"
  closed = tuple(r for i,r in enumerate(ctx.range_map[s][1]) if i in axes)
  if s.op is Ops.STORE:
    del ctx.realize_map[s]
    return s.end(*[r for r in closed if r.op is Ops.RANGE])
  buf, ambient = make_bufferize(ctx, x, s, closed)
  if x not in ctx.range_map: return buf
  reader = ctx.range_map[x]
  return buf.index(*[reader.ambient.get(r, r) for r in ambient], *[r for i,r in enumerate(reader.ins) if i in axes])

def make_bufferize(ctx:VmapContext, x:UOp, s:UOp, closed:Ranges) -> tuple[UOp, Ranges]:
  """Returns the BUFFERIZE of `s`, for its reader `x`, and its ambient ranges."""
  # the source of a COPY must stay a buffer, and so must a node whose op always makes a buffer
  removable = x.op is not Ops.COPY and s.op not in ALWAYS_CONTIGUOUS and not is_kept(s)
  if len(ctx.range_map[s][1]) > len(closed) or s in ctx.local_in_scope:
    _pass.current.local_ranges.update((r.arg[0], s) for r in closed if r.op is Ops.RANGE)
    # stock's LOCAL buffers have no device. A constant without a device has no shape, and could not be indexed after folding
    device = s.device if "fuse-broadcast" in _state.patches else None
    # without ambient ranges: it lives inside one step of their loops
    return UOp(Ops.BUFFERIZE, s.dtype, src=(s,)+closed, arg=BufferizeOpts(device, AddrSpace.LOCAL, removable)), ()
  # looked up by the buffer's node, not by its reader: the rewrite may just have made the reader
  ambient = ctx.vmap_map.get(s, ()) if "ambient-ranges" in _state.patches else ()
  # a value inside a scope is not a user's tensor: its tag must not map a (4,) tensor to the (3, 4) buffer
  tag = s.tag if s not in ctx.vmap_map else None
  opts = BufferizeOpts(s.device, AddrSpace.GLOBAL, removable)
  # the guard asks for the node
  if _pass.current.is_compared: opts = NodeOpts(s.device, AddrSpace.GLOBAL, removable, s)
  return UOp(Ops.BUFFERIZE, s.dtype, src=(s,)+ambient+closed, arg=opts, tag=tag), ambient
