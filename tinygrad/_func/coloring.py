"""Colours for the columns or rows of a sparse matrix, so that those of one colour can be computed together."""
from __future__ import annotations
from dataclasses import dataclass
from typing import Any
from tinygrad_overlay._func.lazy_numpy import np
from tinygrad_overlay._func.pattern import SparsityPattern

PARTITIONS = ("column", "row")

@dataclass(frozen=True, eq=False)
class Coloring:
  """A colour, a number from 0, for each column of a matrix (`partition` "column") or for each row ("row"): `colors` is a numpy array of int64."""
  partition: str
  colors: Any

  def __post_init__(self):
    check_partition("Coloring", self.partition)
    colors = np.array(self.colors)
    if colors.ndim != 1 or colors.dtype.kind not in "iu" or (colors.size and colors.min() < 0):
      raise ValueError(f"Coloring: colors must be a 1D array of integers from 0, not {colors.dtype} of shape {colors.shape}")
    object.__setattr__(self, "colors", colors.astype(np.int64))
    self.colors.flags.writeable = False

  @property
  def count(self) -> int:
    """How many colours there are: the JVPs or VJPs that a Jacobian takes."""
    return int(self.colors.max())+1 if len(self.colors) else 0

def color(pattern:SparsityPattern, partition:str="column") -> Coloring:
  """Colours the columns (or rows) of a pattern so that no two of one colour have a nonzero in the same row (or column).

  Greedy, largest first: in the order of how many neighbours a column has, each counted for each row that it shares with the column. It takes time in
  proportion to the nonzeros times the colours. The result has at least as many colours as the fullest row has nonzeros, and often just as many.
  Raises ValueError for another partition.
  """
  check_partition("color", partition)
  (m, n), (ours, others) = pattern.shape, (pattern.cols, pattern.rows)
  if partition == "row": m, n, ours, others = n, m, others, ours
  neighbours = np.bincount(ours, weights=np.bincount(others, minlength=m)[others]-1, minlength=n)
  by_column = others[np.argsort(ours, kind="stable")].tolist()
  ends = np.cumsum(np.bincount(ours, minlength=n)).tolist()
  # one integer for each row: bit c is set when a column of colour c has a nonzero there
  taken = [0]*m
  colors = np.zeros(n, np.int64)
  for j in np.argsort(-neighbours, kind="stable").tolist():
    rows = by_column[ends[j-1] if j else 0:ends[j]]
    used = 0
    for i in rows: used |= taken[i]
    free = ~used&(used+1)
    for i in rows: taken[i] |= free
    colors[j] = free.bit_length()-1
  return Coloring(partition, colors)

def check_partition(name:str, partition:Any) -> None:
  if partition not in PARTITIONS: raise ValueError(f'{name}: partition is "column" or "row", not {partition!r}')

def find_clash(pattern:SparsityPattern, coloring:Coloring) -> tuple[int, int, int]|None:
  """Returns (i, a, b) for two columns a and b of one colour that both have a nonzero in row i, or None. "row" swaps the two."""
  ours, others = (pattern.cols, pattern.rows) if coloring.partition == "column" else (pattern.rows, pattern.cols)
  keys = others*max(coloring.count, 1)+coloring.colors[ours]
  order = np.argsort(keys, kind="stable")
  at = np.nonzero(keys[order][1:] == keys[order][:-1])[0]
  return (int(others[order[at[0]]]), int(ours[order[at[0]]]), int(ours[order[at[0]+1]])) if len(at) else None
