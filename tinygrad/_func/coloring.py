"""Colours for the columns or rows of a sparse matrix: columns with the same colour can be computed together."""
from __future__ import annotations
from dataclasses import dataclass
from typing import Any
from tinygrad_overlay._func.lazy_numpy import np
from tinygrad_overlay._func.pattern import SparsityPattern, split_places

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
    """The number of colours: a Jacobian needs so many JVPs or VJPs."""
    return int(self.colors.max())+1 if len(self.colors) else 0

def color(pattern:SparsityPattern, partition:str="column") -> Coloring:
  """Colours the columns (or rows) of a pattern so that no two with the same colour have a nonzero in the same row (or column).

  Greedy, largest first: columns with the most neighbours first, counting a neighbour once for each shared row. The time is proportional to the
  nonzeros of the different rows. The result has at least as many colours as the fullest row has nonzeros, and often exactly as many.
  Raises ValueError for another partition.
  """
  check_partition("color", partition)
  n = pattern.shape[1 if partition == "column" else 0]
  cols, sizes, counts = merge_equal_rows(pattern, partition)
  neighbours = np.bincount(cols, weights=np.repeat(counts*(sizes-1), sizes), minlength=n)
  rows = np.repeat(np.arange(len(sizes)), sizes)[np.argsort(cols, kind="stable")]
  ends = np.cumsum(np.bincount(cols, minlength=n)).tolist()
  # one integer for each row: bit c is set if a column of colour c has a nonzero there
  taken = [0]*len(sizes)
  colors = np.zeros(n, np.int64)
  for j in np.argsort(-neighbours, kind="stable").tolist():
    own = rows[ends[j-1] if j else 0:ends[j]].tolist()
    used = 0
    for i in own: used |= taken[i]
    free = ~used&(used+1)
    for i in own: taken[i] |= free
    colors[j] = free.bit_length()-1
  return Coloring(partition, colors)

def merge_equal_rows(pattern:SparsityPattern, partition:str) -> tuple[Any, Any, Any]:
  """Returns (cols, sizes, counts): the columns of all different rows, the number of columns in each, and how often each row occurs.

  "row" swaps rows and columns. Equal rows separate the same columns, so one is enough: a dense matrix has only one.
  """
  rows, cols = pattern.rows, pattern.cols
  if partition == "row":
    order = np.argsort(cols, kind="stable")
    rows, cols = cols[order], rows[order]
  ends = np.flatnonzero(np.append(rows[1:] != rows[:-1], True))+1 if len(rows) else np.zeros(0, np.int64)
  counts: dict[bytes, int] = {}
  start = 0
  for end in ends.tolist():
    key = cols[start:end].astype(np.int32).tobytes()
    counts[key] = counts.get(key, 0)+1
    start = end
  sizes = np.fromiter((len(key)//4 for key in counts), np.int64, len(counts))
  return np.frombuffer(b"".join(counts), np.int32), sizes, np.fromiter(counts.values(), np.int64, len(counts))

def check_partition(name:str, partition:Any) -> None:
  if partition not in PARTITIONS: raise ValueError(f'{name}: partition is "column" or "row", not {partition!r}')

def find_clash(pattern:SparsityPattern, coloring:Coloring) -> tuple[int, int, int]|None:
  """Returns (i, a, b) if columns a and b have one colour and both have a nonzero in row i; None otherwise. "row" swaps rows and columns."""
  ours, others = (pattern.cols, pattern.rows) if coloring.partition == "column" else (pattern.rows, pattern.cols)
  keys = np.empty(len(ours), np.int32 if max(pattern.shape)*coloring.count < 2**31 else np.int64)
  for part in split_places(len(ours)): keys[part] = others[part]*coloring.count+coloring.colors[ours[part]]
  in_order = np.sort(keys)
  if not (in_order[1:] == in_order[:-1]).any(): return None
  order = np.argsort(keys, kind="stable")
  at = int(np.flatnonzero(in_order[1:] == in_order[:-1])[0])
  return int(others[order[at]]), int(ours[order[at]]), int(ours[order[at+1]])
