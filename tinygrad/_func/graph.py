"""Marked nodes, and the replacing of nodes in a graph.

`jvp`, `jacfwd` and `jacrev` call a function on **marked** inputs: nodes that no other value is made of. So a tensor that the function closes over is a
constant, also where it is the tensor that is given as its input, and two derivatives nested in each other keep their inputs apart. When the function
has returned, each mark in the graph is replaced by what it marks.
"""
from __future__ import annotations
from typing import Iterable
from tinygrad.uop.ops import Ops, UOp, all_metadata
from tinygrad_overlay._state import process, remember

MARK = "func.mark"

def mark(u:UOp) -> UOp:
  """A node with the value of `u` that no other value is made of."""
  made = UOp(Ops.CONTIGUOUS, u.dtype, (u,), tag=(MARK, next(process.mark_numbers)))
  remember(process.marks, made)
  return made

def is_mark(u:UOp) -> bool: return u.op is Ops.CONTIGUOUS and isinstance(u.tag, tuple) and u.tag[:1] == (MARK,)

def find_marks(toposort:Iterable[UOp]) -> dict[UOp, UOp]: return {u:u.src[0] for u in toposort if is_mark(u)}

def take_over(new:UOp, old:UOp) -> None:
  if (notes:=all_metadata.get(old)) is not None: all_metadata.setdefault(new, notes)
  # what takes a node's place has its shape
  if (shape:=old.__dict__.get(SHAPE)) is not None: vars(new)[SHAPE] = shape

# where UOp keeps its shape
SHAPE = UOp._shape.nm

def replace_nodes(us:Iterable[UOp], nodes:dict[UOp, UOp]) -> dict[UOp, UOp]:
  """Returns old node -> new node for all nodes below `us`, with `nodes` replaced by others of the same shape. A node keeps the note of who made it."""
  new: dict[UOp, UOp] = {}
  for u in UOp.sink(*us).toposort():
    if (ret:=nodes.get(u)) is None:
      srcs = tuple(new[s] for s in u.src)
      ret = u if srcs == u.src else u.replace(src=srcs)
      if ret is not u: take_over(ret, u)
    # what a mark marks may hold other marks
    else: ret = new.get(ret, ret)
    new[u] = ret
  return new
