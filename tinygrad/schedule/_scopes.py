"""Prepares vmap scopes for the rangeify pass: gives each RANGE a unique id, and refuses ops that cannot be inside a scope."""
from __future__ import annotations
import itertools, sys
from typing import Iterable, Iterator
from tinygrad.dtype import dtypes
from tinygrad.uop.ops import AxisType, GroupOp, Ops, UOp, consumer_map_from_toposort, range_start, sint, sint_to_uop
from tinygrad_overlay._state import FIRST_GENERATED_ID, FIRST_PADDED_ID, process, remember

class VmapScopeError(RuntimeError):
  """A graph does inside a vmap scope what the scheduler cannot do there. The message is a sentence: what, where, what to do."""

# arg of a VMAPOUT that replaces CONTIGUOUS over VMAPOUT: its buffer is never removed
KEEP = "contiguous"

def is_kept(x:UOp) -> bool: return x.op is Ops.VMAPOUT and x.arg == KEEP

# in a schedule, the ids of pad_reduce's RANGEs start here and go down: no VMAP op names these RANGEs
SCHEDULED_PADDED_ID = -10001

def make_range(size:sint, axis_type:AxisType, padded:bool) -> UOp:
  """Returns a RANGE with an unused id: a scope around the gradient of another scope must not share its RANGE, wherever the two are made."""
  number = next(process.padded_ids if padded else process.generated_ids)
  rng = UOp(Ops.RANGE, dtypes.index, (sint_to_uop(size),), (number, axis_type))
  remember(process.generated_ranges, rng)
  return rng

def vmap_ranges(toposort) -> frozenset[UOp]:
  """Returns the RANGEs of the graph's scopes: every RANGE in a VMAPIN or VMAPOUT, and pad_reduce's RANGEs."""
  named = {r for x in toposort if x.op in GroupOp.VMap for r in x.src[1:] if r.op is Ops.RANGE}
  return frozenset(named | {x for x in toposort if is_padded(x)})

def is_padded(x:UOp) -> bool: return x.op is Ops.RANGE and (x.arg[0] <= FIRST_PADDED_ID or FIRST_GENERATED_ID < x.arg[0] <= SCHEDULED_PADDED_ID)
def is_generated(x:UOp) -> bool: return x.op is Ops.RANGE and x.arg[0] <= FIRST_GENERATED_ID
def with_id(r:UOp, number:int) -> UOp: return r.replace(arg=(number,)+r.arg[1:])

def name_generated_ranges(toposort) -> dict[UOp, UOp]:
  """Returns small ids for tinygrad.func's RANGEs, in graph order: the same program always gives the same graph. A scope enters the graph before the
  scopes inside it, and gets a lower id, because loops are nested in the order of their ids."""
  if not (generated:=[x for x in toposort if is_generated(x)]): return {}
  ids, padded = free_ids(toposort, -1), free_ids(toposort, SCHEDULED_PADDED_ID)
  return {r:with_id(r, next(padded if is_padded(r) else ids)) for r in reversed(generated)}

def open_vmap_ranges(*us:UOp) -> list[UOp]:
  """Returns the vmap RANGEs that are open in any of the values; empty outside of all scopes."""
  if not (open_ranges:={r:None for u in us for r in u.ranges}): return []
  named = vmap_ranges(UOp.sink(*us).toposort())
  return [r for r in open_ranges if r in named]

# number of nodes to search for a RANGE before computing the ranges of all nodes: following every path takes long in a large graph
LOOKED_AT = 100
ENDS, UNARY = {*range_start, Ops.AFTER}, GroupOp.Movement | {Ops.CONTIGUOUS, Ops.CAST}

def is_open(rng:UOp, u:UOp) -> bool:
  """Whether a RANGE is open in a value: nearly always it is, and the first sources lead to it."""
  stack = [u]
  for _ in range(LOOKED_AT):
    if not stack: return False
    x = stack.pop()
    if rng not in x.src: stack.extend(x.src[::-1])
    # it may end there
    elif x.op not in ENDS: return True
    elif x.op is not Ops.VMAPOUT: break
  return rng in u.ranges

def closes_all(u:UOp, ranges:set[UOp]) -> bool:
  """Whether the VMAPOUTs at the end of a value close all the RANGEs."""
  left = set(ranges)
  while left and (u.op in UNARY or u.op is Ops.VMAPOUT):
    if u.op is Ops.VMAPOUT: left.difference_update(u.src[1:])
    u = u.src[0]
  return not left

def name_ranges(ranges) -> str:
  return ", ".join(f"size {r.src[0].render()}" if is_generated(r) else f"{r.render(simplify=False)} (size {r.src[0].render()})" for r in ranges)

def describe_place(x:UOp) -> str:
  name = x.op.name if x._shape is None else f"{x.op.name} of shape {x._shape}"
  if not x.metadata: return name
  return f"{name} ({x.metadata[0].name} at {x.metadata[0].caller})" if x.metadata[0].caller else f"{name} ({x.metadata[0].name})"

def prepare_scopes(tsink:UOp, toposort:dict[UOp, None]) -> UOp:
  """Returns the graph with scopes that the pass can schedule. Raises VmapScopeError if it cannot.

   0. a REDUCE over a RANGE of pad_reduce gets a new RANGE if a step of that RANGE reads its result
   1. each RANGE gets a unique id below zero: the pass numbers its own ranges from zero, and sorts by id
   2. CONTIGUOUS over VMAPOUT becomes one buffer, not a buffer and its copy
   3. a COPY inside a scope copies the whole batch, between a VMAPOUT and a VMAPIN
   4. a REDUCE over an OUTER RANGE reduces an axis: kernels run once for each step, and cannot sum the steps
   5. a VMAPOUT of a RESHAPE that is an output becomes the RESHAPE of a VMAPOUT: as by hand, the buffer has the axes of the computation
   6. a value that leaves its scope as an output is a buffer: its other readers in the scope read that buffer"""
  toposort = (tsink:=separate_reduces(tsink, toposort)).toposort()
  toposort = (tsink:=tsink.substitute(rename_ranges(toposort, vmap_ranges(toposort)))).toposort()
  scope_ranges = vmap_ranges(toposort)
  for x in toposort: check_op(x, [r for r in x.ranges if r in scope_ranges])
  reshaped = find_reshaped_outputs(consumer_map_from_toposort(toposort))
  tsink = tsink.replace(src=tuple(reshaped.get(s, s) for s in tsink.src))
  return rebuild(tsink, tsink.toposort(), scope_ranges)

def rebuild(tsink:UOp, toposort:dict[UOp, None], scope_ranges:frozenset[UOp]) -> UOp:
  """Steps 2, 3, 4 and 6 of prepare_scopes, in one walk."""
  consumers = consumer_map_from_toposort(toposort)
  (tags, removed), leaving = find_kept(toposort, consumers), find_leaving(tsink, consumers)
  new: dict[UOp, UOp] = {}
  def source(x:UOp, s:UOp) -> UOp:
    if (vmapout:=leaving.get(s)) is None or x is vmapout: return new[s]
    return UOp(Ops.VMAPIN, s.dtype, (new[vmapout], *new[vmapout].src[1:]))
  for x in toposort if not leaving else order_leaving(tsink, leaving):
    srcs = tuple(source(x, s) for s in x.src)
    new[x] = x.replace(src=srcs) if srcs != x.src else x
    if x in tags: new[x] = new[x].replace(arg=KEEP, tag=tags[x] or None)
    elif x in removed: new[x] = srcs[0].replace(tag=x.tag) if removed[x] else srcs[0]
    elif x.op is Ops.REDUCE and (outer:=[r for r in x.src[1:] if r in scope_ranges and r.arg[-1] == AxisType.OUTER]): new[x] = reduce_whole_batch(new[x], outer)
    elif x.op is Ops.COPY and (open_ranges:=[r for r in x.ranges if r in scope_ranges]): new[x] = copy_whole_batch(new[x], open_ranges)
  return new[tsink]

def separate_reduces(tsink:UOp, toposort:dict[UOp, None]) -> UOp:
  """A gradient of pad_reduce loops over the RANGE and reads the sum over the same RANGE: in one kernel these are two nested loops."""
  if not any(is_padded(x) for x in toposort): return tsink
  nested, reused = count_nested(toposort)
  if not reused: return tsink
  free = free_ids(toposort, SCHEDULED_PADDED_ID)
  names: dict[tuple[UOp, int], UOp] = {}  # REDUCEs of the same level share a RANGE, so that they share their source
  new: dict[UOp, UOp] = {}
  for x in toposort:
    srcs = tuple(new[s] for s in x.src)
    new[x] = x.replace(src=srcs) if srcs != x.src else x
    for r in (r for r in padded_ranges(x) if r in reused):
      if (key:=(r, nested[x][r])) not in names: names[key] = with_id(r, next(free))
      new[x] = new[x].substitute({r:names[key]})
  return new[tsink]

def free_ids(toposort:Iterable[UOp], first:int) -> Iterator[int]:
  """Yields the unused ids from `first` down."""
  taken = {x.arg[0] for x in toposort if x.op is Ops.RANGE}
  return (i for i in itertools.count(first, -1) if i not in taken)

def count_nested(toposort:dict[UOp, None]) -> tuple[dict[UOp, dict[UOp, int]], set[UOp]]:
  """Returns node -> RANGE -> depth of nested REDUCEs over it, and the RANGEs with a step that reads a REDUCE over the same RANGE."""
  nested: dict[UOp, dict[UOp, int]] = {}
  reused: set[UOp] = set()
  for x in toposort:
    levels: dict[UOp, int] = {}
    for s in x.src:
      for r,level in nested[s].items(): levels[r] = max(level, levels.get(r, 0))
    reused.update(r for r in levels if r in x.ranges)
    for r in padded_ranges(x): levels[r] = levels.get(r, 0)+1
    nested[x] = levels
  return nested, reused

def padded_ranges(x:UOp) -> list[UOp]: return [r for r in x.src[1:] if is_padded(r)] if x.op is Ops.REDUCE else []

def rename_ranges(toposort:dict[UOp, None], scope_ranges:frozenset[UOp]) -> dict[UOp, UOp]:
  taken = {x.arg[0] for x in toposort if x.op is Ops.RANGE and x not in scope_ranges}
  free = itertools.count(min([0, *taken, *(r.arg[0] for r in scope_ranges)])-1, -1)
  names: dict[UOp, UOp] = {}
  for r in (x for x in toposort if x in scope_ranges):
    if r.arg[0] >= 0 or r.arg[0] in taken: names[r] = with_id(r, next(free))
    else: taken.add(r.arg[0])
  return names

def find_reshaped_outputs(consumers:dict[UOp, dict[UOp, None]]) -> dict[UOp, UOp]:
  """Returns VMAPOUT -> its replacement RESHAPE, for each VMAPOUT of a RESHAPE that only is an output."""
  found: dict[UOp, UOp] = {}
  for x in consumers:
    if x.op is not Ops.VMAPOUT or any(c.op is not Ops.SINK for c in consumers[x]): continue
    # the value below the output's VMAPOUTs and RESHAPEs, and the RANGEs of each VMAPOUT, outermost first
    value, scopes, is_reshaped = x, [], False
    while value.op is Ops.RESHAPE or (value.op is Ops.VMAPOUT and is_batch_first(value) and (value is x or len(consumers[value]) == 1)):
      if value.op is Ops.RESHAPE: is_reshaped = True
      else: scopes.append([r for r in value.src[1:] if r.op is Ops.RANGE])
      value = value.src[0]
    if not is_reshaped: continue
    for ranges in reversed(scopes): value = collect_batch(value, ranges)
    # only an output may be the RESHAPE itself: it takes over the tag
    found[x] = value.reshape(x.shape).replace(tag=x.tag)
  return found

def is_batch_first(vmapout:UOp) -> bool:
  are_mapped = [a.op is Ops.RANGE for a in vmapout.src[1:]]
  return are_mapped == sorted(are_mapped, reverse=True)

def find_kept(toposort:dict[UOp, None], consumers:dict[UOp, dict[UOp, None]]) -> tuple[dict[UOp, tuple], dict[UOp, bool]]:
  """Returns VMAPOUT under a CONTIGUOUS -> its tag, and CONTIGUOUS -> whether its source takes over its tag."""
  tags: dict[UOp, tuple] = {}
  removed: dict[UOp, bool] = {}
  for x in toposort:
    # a CONTIGUOUS with opts asks for a kernel of its own
    if x.op is not Ops.CONTIGUOUS or x.arg is not None or len(x.src) != 1: continue
    vmapout = x.src[0]
    while vmapout.op is Ops.RESHAPE: vmapout = vmapout.src[0]
    if vmapout.op is not Ops.VMAPOUT: continue
    if x.src[0] is vmapout: tags[vmapout], removed[x] = tags.get(vmapout, vmapout.tag or ())+(x.tag or ()), False
    # only an output may be the RESHAPE itself: with other consumers it would be dissolved into their indices
    elif all(c.op is Ops.SINK for c in consumers[x]): tags[vmapout], removed[x] = tags.get(vmapout, vmapout.tag or ()), True
  return tags, removed

def find_leaving(tsink:UOp, consumers:dict[UOp, dict[UOp, None]]) -> dict[UOp, UOp]:
  """Returns value -> its VMAPOUT that is an output, for each value that a kernel computes and other nodes use too."""
  leaving: dict[UOp, UOp] = {}
  for out in tsink.src:
    vmapout = out.base
    while vmapout.op is Ops.CONTIGUOUS: vmapout = vmapout.src[0].base
    if vmapout.op is Ops.VMAPOUT and len(consumers[value:=vmapout.src[0]]) > 1 and is_computed(value): leaving.setdefault(value, vmapout)
  return leaving

def order_leaving(tsink:UOp, leaving:dict[UOp, UOp]) -> list[UOp]:
  """Returns the graph's nodes, sources first; the readers of a leaving value come after its VMAPOUT."""
  order: dict[UOp, None] = {}
  stack = [(tsink, False)]
  while stack:
    x, sources_done = stack.pop()
    if x in order: continue
    if sources_done: order[x] = None
    else:
      stack.append((x, True))
      stack.extend((vmapout if (vmapout:=leaving.get(s)) is not None and vmapout is not x else s, False) for s in reversed(x.src))
  return list(order)

def is_computed(x:UOp) -> bool:
  while x.op in GroupOp.Movement | GroupOp.VMap | {Ops.CONTIGUOUS}: x = x.src[0]
  return x.op not in {Ops.BUFFER, Ops.CONST, Ops.AFTER, Ops.BUFFER_VIEW}

def collect_batch(u:UOp, ranges:list[UOp]) -> UOp:
  """(4,) inside a scope of size 3 -> (3, 4): collects a value along new first axes, one for each RANGE."""
  return UOp(Ops.VMAPOUT, u.dtype, (u, *ranges, *[UOp.const(ranges[0].dtype, 0)]*len(u.shape)))

def copy_whole_batch(copy:UOp, ranges:list[UOp]) -> UOp:
  source, device = copy.src
  batch = collect_batch(source, ranges)
  # the copy has another shape, so it does not keep the tag of the tensor inside the scope
  return UOp(Ops.VMAPIN, copy.dtype, (copy.replace(src=(batch, device), tag=None), *batch.src[1:]))

def reduce_whole_batch(reduce:UOp, outer:list[UOp]) -> UOp:
  value = reduce.src[0]
  if loops:=tuple(r for r in reduce.src[1:] if r not in outer): value = reduce.replace(src=(value,)+loops, tag=None)
  total = collect_batch(value, outer).r(reduce.arg, tuple(range(len(outer)))).reshape(value.shape)
  # the tag belongs to a node with the REDUCE's shape
  return UOp(Ops.CONTIGUOUS, reduce.dtype, (total,), tag=reduce.tag)

CANNOT_BE_IN_SCOPE = {
  Ops.ASSIGN: "assigns to a buffer inside the vmap scope of {}: every element would write the same place; compute a new value instead",
  Ops.STORE: "stores inside the vmap scope of {}: every element would write the same place; compute a new value instead",
  Ops.KERNEL: "is a custom kernel inside the vmap scope of {}: the scheduler cannot see into it; call it on the whole batch",
  Ops.BUFFER_VIEW: "is a view of a buffer inside the vmap scope of {}: it has no place for the batch; take the view before the scope",
  Ops.ENCDEC: "decodes inside the vmap scope of {}: it takes whole buffers; decode before the scope",
  Ops.MSELECT: "selects a device inside the vmap scope of {}: sharded tensors cannot be in a scope",
  Ops.MSTACK: "stacks devices inside the vmap scope of {}: sharded tensors cannot be in a scope",
}

# an observer's frames may be between tinygrad's frames
INSIDE = ("tinygrad.", "tinygrad_overlay.", "contextlib", "functools", "vmapdbg.")

def called_methods() -> list[str]:
  """Returns the Tensor methods (and TinyJit) on the stack, innermost first: the last name is the method that the user called. tinygrad's _METADATA
  has only the method that the user called, and never TinyJit."""
  frame, names = sys._getframe(1), []
  while frame is not None and (module:=frame.f_globals.get("__name__", "")).startswith(INSIDE):
    name = frame.f_code.co_name
    if module == "tinygrad.tensor" and hasattr(frame.f_globals["Tensor"], name): names.append(f"Tensor.{name}")
    if module == "tinygrad.engine.jit" and name == "__call__": names.append("TinyJit")
    frame = frame.f_back
  return names

def name_caller() -> str:
  """Returns the method that realizes a value, unless it is `realize`, as the end of a sentence."""
  methods = called_methods()
  return f", and {methods[-1]} realizes it" if methods and methods[-1] != "Tensor.realize" else ""

def check_op(x:UOp, open_ranges:list[UOp]) -> None:
  if open_ranges and (why:=CANNOT_BE_IN_SCOPE.get(x.op)) is not None:
    raise VmapScopeError(f"{describe_place(x)} {why.format(name_ranges(open_ranges))}")
  if x.op is Ops.SINK and open_ranges:
    output = next(s for s in x.src if any(r in s.ranges for r in open_ranges))
    raise VmapScopeError(f"{describe_place(output)} cannot be realized: it is inside the vmap scope of {name_ranges(open_ranges)} and has one value"
                         f" for each step of the RANGE{name_caller()}; leave the scope first, with VMAPOUT or as a result of the mapped function")
