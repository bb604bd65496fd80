"""What the rangeify pass knows of each node: its ranges, and the ambient ranges that they do not hold."""
from __future__ import annotations
from dataclasses import dataclass, field
from typing import NamedTuple
from tinygrad.schedule.indexing import IndexingContext
from tinygrad.uop.ops import UOp

Ranges = tuple[UOp, ...]

class NodeRanges(NamedTuple):
  """Stock's pair (ranges on the inputs, ranges on the output), and what each ambient range of the inputs is bound to."""
  ins: Ranges
  outs: Ranges
  ambient: dict[UOp, UOp]

@dataclass
class VmapContext(IndexingContext):
  """What stock's context holds, and `vmap_map`: node -> the ambient ranges it depends on."""
  # stock's pairs, with a third member
  range_map: dict[UOp, NodeRanges] = field(default_factory=dict)  # pyright: ignore[reportIncompatibleVariableOverride]
  vmap_map: dict[UOp, Ranges] = field(default_factory=dict)
  # nodes in a scope that are a LOCAL buffer although all their axes are realized: their batch is not
  local_in_scope: set[UOp] = field(default_factory=set)
