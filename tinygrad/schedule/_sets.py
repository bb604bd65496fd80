"""Sets of things that belong together: groups of kernels (_guard.py), parts of a graph (_parts.py)."""
from __future__ import annotations
from typing import Any

class DisjointSets:
  """Things are alone until they are joined. Each set is known by one of its things."""
  def __init__(self): self.parent: dict[Any, Any] = {}
  def find(self, x:Any) -> Any:
    # `is`, for != of two UOps is a UOp; of equal things the first that came is what is kept here
    root = self.parent.setdefault(x, x)
    while (up:=self.parent[root]) is not root: root = up
    # the way is short the next time: a graph is a chain of thousands
    while self.parent[x] is not root: self.parent[x], x = root, self.parent[x]
    return root
  def join(self, a:Any, b:Any) -> None: self.parent[self.find(a)] = self.find(b)
