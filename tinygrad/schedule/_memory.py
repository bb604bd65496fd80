"""The buffers of an attempt: how large they are, and how many bytes are alive at once."""
from __future__ import annotations
from typing import Container, Iterable
from tinygrad.uop.ops import GroupOp, UOp
from tinygrad_overlay.codegen._work import count_elements, count_steps
from tinygrad_overlay.schedule._pass import IS_BUFFER, Attempt, Ranges

# the peak of memory may grow by a tenth, or by anything if a fifth of the time is saved
MAX_PEAK, WORTH_MEMORY = 1.1, 0.2

def in_order(ranges:Iterable[UOp]) -> Ranges: return tuple(sorted(ranges, key=lambda r: r.arg))

def find_closed(made:Attempt, x:UOp) -> Ranges:
  """Returns the ranges of a value's buffer, with the batch if it is in a scope. Axes along which the value is expanded are not stored
  (rangeify.py:130)."""
  closed, u = UOp.sink(*made.ctx.range_map[x].outs, *made.ctx.vmap_map.get(x, ())), x
  while u.op in GroupOp.Movement and u in made.ctx.range_map:
    closed, u = UOp.sink(*made.ctx.range_map[u].ins, *made.ctx.range_map[u].ambient.values()), u.src[0]
  return in_order(closed.ranges)

def count_stored(made:Attempt, x:UOp) -> int:
  """Returns the number of elements of a value's buffer."""
  return count_steps(find_closed(made, x)) if x in made.ctx.range_map else count_elements(x, range(len(x.shape)))

def count_bytes(made:Attempt, x:UOp) -> int: return count_stored(made, x)*x.dtype.itemsize if x._shape is not None else 0

def find_peak(made:Attempt, stored:Container[UOp]) -> int:
  """Returns the most bytes of buffers that are alive at once, if these nodes have kernels, and each buffer is free after its last reader."""
  kernels = [x for x in made.toposort if x in stored]
  last: dict[UOp, int] = {}  # node -> the kernel that reads its buffer last
  for i,root in enumerate(kernels):
    seen, stack = {root}, list(root.src)
    while stack:
      if (u:=stack.pop()) in seen: continue
      seen.add(u)
      if u in stored: last[u] = i
      elif u.op not in IS_BUFFER: stack += u.src
  # the graph's SINK is its last node
  for x in next(reversed(made.toposort)).src: last[x] = len(kernels)
  live = peak = 0
  freed: dict[int, int] = {}
  for i,x in enumerate(kernels):
    live += (size:=count_bytes(made, x))
    peak = max(peak, live)
    if x in last: freed[last[x]] = freed.get(last[x], 0)+size
    live -= freed.pop(i, 0)
  return peak
