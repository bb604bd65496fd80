"""Stage 2 of the rangeify pass (indexing.py): which nodes are buffers whatever their ranges are (upstream's indexing.py:14-36)."""
from __future__ import annotations
from typing import Callable, Iterator
from tinygrad.schedule.indexing import ALWAYS_CONTIGUOUS
from tinygrad.uop.ops import AxisType, Ops, UOp
from tinygrad_overlay.schedule._scopes import KEEP

# a rule: (node of its op, the free vmap RANGEs) -> (a node that is realized because of it, the reason)
Rule = Callable[[UOp, frozenset[UOp]], Iterator[tuple[UOp, str]]]

def realize_itself(x:UOp, free_ranges:frozenset[UOp]) -> Iterator[tuple[UOp, str]]:
  yield x, "always"

def realize_sources(x:UOp, free_ranges:frozenset[UOp]) -> Iterator[tuple[UOp, str]]:
  for s in x.src:
    if s.base.op not in ALWAYS_CONTIGUOUS: yield s, "source-of"

def realize_both(x:UOp, free_ranges:frozenset[UOp]) -> Iterator[tuple[UOp, str]]:
  yield x, "always"
  yield from realize_sources(x, free_ranges)

def realize_outputs(sink:UOp, free_ranges:frozenset[UOp]) -> Iterator[tuple[UOp, str]]:
  for s in sink.src:
    if s.base.op not in ALWAYS_CONTIGUOUS: yield s.base, "output"

def realize_assign(x:UOp, free_ranges:frozenset[UOp]) -> Iterator[tuple[UOp, str]]:
  if x.src[1].op not in ALWAYS_CONTIGUOUS: yield x.src[1], "assign"
  # a kernel that is assigned is a buffer already
  if x.src[1].op is not Ops.KERNEL: yield x, "assign"

def realize_outer_reduce(x:UOp, free_ranges:frozenset[UOp]) -> Iterator[tuple[UOp, str]]:
  if any(r.arg[-1] == AxisType.OUTER for r in x.src[1:]): yield x, "outer-reduce"

def realize_vmapout(x:UOp, free_ranges:frozenset[UOp]) -> Iterator[tuple[UOp, str]]:
  # what cannot be bound to the index of a reader has to be a buffer where its scope ends
  if is_kept(x) or any(a.op is Ops.RANGE and a not in free_ranges for a in x.src[1:]): yield x, "always"

def is_kept(x:UOp) -> bool: return x.op is Ops.VMAPOUT and x.arg == KEEP

RULES: dict[Ops, Rule] = {
  Ops.SINK: realize_outputs, Ops.ASSIGN: realize_assign, Ops.REDUCE: realize_outer_reduce, Ops.VMAPOUT: realize_vmapout,
  Ops.COPY: realize_both, Ops.ENCDEC: realize_both, Ops.MSELECT: realize_sources, Ops.MSTACK: realize_sources,
  Ops.BUFFER_VIEW: realize_itself, Ops.CONTIGUOUS: realize_itself, Ops.STORE: realize_itself,
}

def find_realized(toposort:dict[UOp, None], free_ranges:frozenset[UOp]) -> dict[UOp, tuple[str, UOp]]:
  """Returns node -> (reason, the node that asks for it), for all that is realized by rule. The first that asks gives the reason."""
  found: dict[UOp, tuple[str, UOp]] = {}
  for x in toposort:
    if (rule:=RULES.get(x.op)) is None: continue
    for realized,reason in rule(x, free_ranges): found.setdefault(realized, (reason, x))
  return found
