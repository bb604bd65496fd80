"""Marked nodes, and replacing nodes in a graph.

`jvp`, `jacfwd` and `jacrev` call a function on **marked** inputs: new nodes on which no existing value depends. So a tensor that the function closes
over is a constant, even if the same tensor is also the input, and nested derivatives keep their inputs apart. When the function has returned, each
mark in the graph is replaced by the marked node."""
from __future__ import annotations
from typing import Iterable
from tinygrad.uop.ops import Ops, UOp, all_metadata
from tinygrad_overlay._state import process, remember
from tinygrad_overlay.uop.ops import SHAPE

MARK = "func.mark"

def mark(u:UOp) -> UOp:
  """Returns a new node with the value of `u`."""
  made = UOp(Ops.CONTIGUOUS, u.dtype, (u,), tag=(MARK, next(process.mark_numbers)))
  remember(process.marks, made)
  return made

def is_mark(u:UOp) -> bool: return u.op is Ops.CONTIGUOUS and isinstance(u.tag, tuple) and u.tag[:1] == (MARK,)
def find_marks(toposort:Iterable[UOp]) -> dict[UOp, UOp]: return {u:u.src[0] for u in toposort if is_mark(u)}

def replace_nodes(us:Iterable[UOp], nodes:dict[UOp, UOp]) -> dict[UOp, UOp]:
  """Returns old node -> new node for all nodes below `us`, with `nodes` replaced by nodes of the same shape. Metadata stays with a node."""
  new: dict[UOp, UOp] = {}
  for u in UOp.sink(*us).toposort():
    if (ret:=nodes.get(u)) is None:
      srcs = tuple(new[s] for s in u.src)
      ret = u if srcs == u.src else u.replace(src=srcs)
      if ret is not u:
        if (notes:=all_metadata.get(u)) is not None: all_metadata.setdefault(ret, notes)
        # a replacement has the shape of the old node
        if (shape:=u.__dict__.get(SHAPE)) is not None: vars(ret)[SHAPE] = shape
    # a marked node may contain other marks
    else: ret = new.get(ret, ret)
    new[u] = ret
  return new
