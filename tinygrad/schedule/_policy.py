"""Where a value that many read becomes a buffer: two policies, which the backward walk (indexing.py) asks. An answer changes nothing.

 - `StockPolicy` is tinygrad 0.12.0's rule (indexing.py:211-229 and 231-241)
 - `FuseBroadcast` takes the realize point away where the ranges are in order (patch fuse-broadcast, seed 002)

What they answer is a wish. The current attempt may refuse it: a guard that looked at the kernels of an earlier attempt wants the realize point back,
or the LOCAL buffer would be too large, or too slow.
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
  """A node below which ranges end: what a policy is asked about.

  `realized` are its axes that are realized already, because its consumers disagree, `rest` the others; `ending` are the ranges that end below it.
  `ambient` maps its ambient ranges to what they are bound to. `is_batch_alone`: its one axis is the batch of its scope, which its shape does not
  show.
  """
  x: UOp
  out_rngs: Ranges
  ambient: dict[UOp, UOp]
  ending: dict[UOp, UOp]
  realized: list[int]
  rest: list[int]
  is_batch_alone: bool

  def is_crossed(self, r:UOp) -> bool:
    """Whether `r` is of a loop inside one that ends: then x is not computed before that one, unless it is stored (indexing.py:236)."""
    return any(rr.arg > e.arg for e in self.ending for rr in r.ranges)

@dataclass(frozen=True)
class Choice:
  """A policy's wish for a node: the axes to be realized, besides those that are.

  `local_axes`: those of the LOCAL buffer that the node would be, or none. `is_local_in_scope`: it is one although all its axes are realized, because
  its batch is not. `realizes_batch`: the node is realized, though it has no axis. `fuses`: stock would have realized more.
  """
  axes: list[int]
  local_axes: list[int] = field(default_factory=list)
  is_local_in_scope: bool = False
  realizes_batch: bool = False
  fuses: bool = False

def realize_all(node:EndingNode) -> Choice: return Choice(node.rest, realizes_batch=node.is_batch_alone)

@dataclass(frozen=True)
class StockPolicy:
  """tinygrad's rule: a value is stored where ranges end below it, so that it is not computed again in each of their steps."""
  attempt: Attempt

  def may_be_partial(self, x:UOp) -> bool:
    """Whether x may be realized on some axes only, in LOCAL memory, where its consumers disagree on these (indexing.py:219). VMAPOUT has the batch in
    its axes, and a LOCAL buffer is inside one step of the batch."""
    return bool(PCONTIG) and x.op is not Ops.VMAPOUT

  def choose_axes(self, node:EndingNode) -> Choice:
    """All axes; with PCONTIG above 1 those that an ending range crosses (indexing.py:234-237)."""
    if not PCONTIG > 1: return realize_all(node)
    crossed = [i for i in node.rest if node.is_crossed(node.out_rngs[i])]
    local_axes = node.realized+crossed if len(crossed) < len(node.rest) else []
    return Choice(crossed, local_axes, realizes_batch=node.is_batch_alone)

  def find_refusal(self, x:UOp, local_axes:list[int]) -> Refusal|None:
    """Why x may not be realized as a LOCAL buffer of these axes, or, where there are none, not be left out. None: it may."""
    return self.attempt.realize_points.get(x) or too_large_for_local(x, local_axes)

  def find_refusal_at(self, node:EndingNode, choice:Choice, batch:Ranges) -> Refusal|None:
    return self.find_refusal(node.x, choice.local_axes)

@dataclass(frozen=True)
class FuseBroadcast(StockPolicy):
  """The realize point falls where no ending range crosses the ranges of the value: its loop is around theirs then, and it is computed there once.

  It is left on the axes that are crossed, as a LOCAL buffer if there are others.
  """
  def choose_axes(self, node:EndingNode) -> Choice:
    """The axes that are crossed. Inside a scope the batch is an axis more, that x does not show: where it is not crossed a LOCAL buffer of all other
    axes is inside its loop; where it is, all is realized, since there is no LOCAL buffer of the batch and some axes."""
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
