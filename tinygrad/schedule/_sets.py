"""Union-find: groups of kernels (_guard.py), parts of a graph (_parts.py)."""
from __future__ import annotations
from typing import Any

class DisjointSets:
  """Disjoint sets. Each set is represented by one of its elements."""
  def __init__(self): self.parent: dict[Any, Any] = {}
  def find(self, x:Any) -> Any:
    # `is`, because != of two UOps is a UOp
    root = self.parent.setdefault(x, x)
    while (up:=self.parent[root]) is not root: root = up
    # path compression: a graph may be a chain of thousands
    while self.parent[x] is not root: self.parent[x], x = root, self.parent[x]
    return root
  def join(self, a:Any, b:Any) -> None: self.parent[self.find(a)] = self.find(b)
