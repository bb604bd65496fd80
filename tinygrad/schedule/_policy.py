"""Decides which shared values become buffers: two policies for the backward walk (indexing.py). They only answer, and change nothing.

 - `StockPolicy` is tinygrad 0.12.0's rule (indexing.py:211-229 and 231-241)
 - `FuseBroadcast` removes the realize point if the ranges are in order (patch fuse-broadcast, seed 002)

The current attempt may refuse a policy's choice: the guard found that the fusion does not pay, or the LOCAL buffer would be too large or too slow.
"""
from __future__ import annotations
from dataclasses import dataclass, field
from tinygrad.helpers import PCONTIG
from tinygrad.uop.ops import Ops, UOp
from tinygrad_overlay import _state
from tinygrad_overlay.schedule._local import too_large_for_local, too_slow_for_local
from tinygrad_overlay.schedule._pass import Attempt
from tinygrad_overlay.schedule._ranges import Ranges
from tinygrad_overlay.schedule._refusals import Refusal

@dataclass(frozen=True)
class EndingNode:
  """A node below which ranges end.

  `realized` are the axes that are realized already because its consumers disagree, `rest` the other axes; `ending` are the ranges that end below it.
  `ambient` binds its ambient ranges. `is_batch_alone`: its only axis is the batch of its scope, which its shape does not show.
  """
  x: UOp
  out_rngs: Ranges
  ambient: dict[UOp, UOp]
  ending: dict[UOp, UOp]
  realized: list[int]
  rest: list[int]
  is_batch_alone: bool

  def is_crossed(self, r:UOp) -> bool:
    """Whether `r` is inside an ending loop: then x is computed in each step of that loop, unless it is stored (indexing.py:236)."""
    return any(rr.arg > e.arg for e in self.ending for rr in r.ranges)

@dataclass(frozen=True)
class Choice:
  """A policy's choice for a node: more axes to realize.

  `local_axes`: the axes of its LOCAL buffer, or none. `is_local_in_scope`: it is a LOCAL buffer although all its axes are realized, because its batch
  is not. `realizes_batch`: the node is realized although it has no axis. `fuses`: stock would have realized more.
  """
  axes: list[int]
  local_axes: list[int] = field(default_factory=list)
  is_local_in_scope: bool = False
  realizes_batch: bool = False
  fuses: bool = False

def realize_all(node:EndingNode) -> Choice: return Choice(node.rest, realizes_batch=node.is_batch_alone)

@dataclass(frozen=True)
class StockPolicy:
  """tinygrad's rule: if ranges end below a value, it is stored, so that it is not computed again in each of their steps."""
  attempt: Attempt

  def may_be_partial(self, x:UOp) -> bool:
    """Whether x may be realized in LOCAL memory, only on the axes on which its consumers disagree (indexing.py:219). Never a VMAPOUT: it has the
    batch in its axes, and a LOCAL buffer is inside one step of the batch."""
    return bool(PCONTIG) and x.op is not Ops.VMAPOUT

  def choose_axes(self, node:EndingNode) -> Choice:
    """Chooses all axes; with PCONTIG above 1 only the axes that an ending range crosses (indexing.py:234-237)."""
    if not PCONTIG > 1: return realize_all(node)
    crossed = [i for i in node.rest if node.is_crossed(node.out_rngs[i])]
    local_axes = node.realized+crossed if len(crossed) < len(node.rest) else []
    return Choice(crossed, local_axes, realizes_batch=node.is_batch_alone)

  def find_refusal(self, x:UOp, local_axes:list[int]) -> Refusal|None:
    """Returns why x may not be a LOCAL buffer of these axes or, without axes, may not be fused; None if it may."""
    return self.attempt.realize_points.get(x) or too_large_for_local(x, local_axes)

  def find_refusal_at(self, node:EndingNode, choice:Choice, batch:Ranges) -> Refusal|None:
    return self.find_refusal(node.x, choice.local_axes)

@dataclass(frozen=True)
class FuseBroadcast(StockPolicy):
  """Removes the realize point if no ending range crosses the value's ranges: its loop is around theirs, and it is computed there once.

  Crossed axes stay realized, in a LOCAL buffer if other axes are not crossed.
  """
  def choose_axes(self, node:EndingNode) -> Choice:
    """Chooses the crossed axes. Inside a scope the batch is one more axis, which x's shape does not show. If it is not crossed, a LOCAL buffer of all
    other axes is inside its loop; if it is crossed, everything is realized, because a LOCAL buffer cannot hold the batch."""
    if any(map(node.is_crossed, node.ambient.values())): return realize_all(node)
    crossed = [i for i in node.rest if node.is_crossed(node.out_rngs[i])]
    in_scope = not node.realized and bool(crossed) and bool(node.ambient)
    some = len(crossed) < len(node.rest)
    return Choice(crossed, node.realized+crossed if in_scope or some else [], is_local_in_scope=in_scope and not some,
                  fuses=some or node.is_batch_alone or in_scope)

  def find_refusal_at(self, node:EndingNode, choice:Choice, batch:Ranges) -> Refusal|None:
    return self.find_refusal(node.x, choice.local_axes) or too_slow_for_local(node.x, choice.local_axes, node.ending, batch)

def choose_policy(attempt:Attempt) -> StockPolicy:
  return FuseBroadcast(attempt) if "fuse-broadcast" in _state.patches and not attempt.keeps_all else StockPolicy(attempt)
