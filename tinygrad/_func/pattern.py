"""The pattern of a sparse matrix, and colours for its columns or rows: columns with the same colour can be computed together."""
from __future__ import annotations
from dataclasses import dataclass
from typing import Any
from tinygrad_overlay._func.index_sets import need_scipy, np, sort_unique

@dataclass(frozen=True, eq=False)
class SparsityPattern:
  """The elements of a matrix of `shape` (m, n) that may be nonzero: `rows[i]`, `cols[i]`, sorted by row, then by column.

  Any integer sequences will do for `rows` and `cols`, in any order; they are kept as read-only numpy arrays of int64, each
  element once. `print(pattern)` draws it. Raises ValueError for elements outside of the shape.
  """
  shape: tuple[int, int]
  rows: Any
  cols: Any

  def __post_init__(self):
    rows, cols = as_integers(self.rows), as_integers(self.cols)
    m, n = self.shape
    if len(rows) != len(cols): raise ValueError(f"SparsityPattern: {len(rows)} rows and {len(cols)} cols were given, each place has one of both")
    if len(rows) and (min(rows.min(), cols.min()) < 0 or rows.max() >= m or cols.max() >= n):
      raise ValueError(f"SparsityPattern: rows {rows.min()} to {rows.max()} and cols {cols.min()} to {cols.max()} do not fit in shape {self.shape}")
    if not is_sorted(rows, cols):
      offsets = sort_unique(rows*max(n, 1)+cols)
      rows, cols = offsets//max(n, 1), offsets%max(n, 1)
    rows.flags.writeable = cols.flags.writeable = False
    for name,value in (("shape", (int(m), int(n))), ("rows", rows), ("cols", cols)): object.__setattr__(self, name, value)

  @property
  def nnz(self) -> int:
    """The number of elements that may be nonzero."""
    return len(self.rows)

  def todense(self):
    """Returns the pattern as (m, n) numpy bools."""
    ret = np.zeros(self.shape, bool)
    ret[self.rows, self.cols] = True
    return ret

  def toscipy(self):
    """Returns a scipy.sparse.coo_array of bools. Raises ImportError if scipy is not installed."""
    return need_scipy("SparsityPattern.toscipy").coo_array((np.ones(self.nnz, bool), (self.rows, self.cols)), shape=self.shape)

  def render(self, width:int=78) -> str:
    """Returns the pattern as text of at most `width` columns: a sign for each element if that fits, otherwise Braille dots. A dot is one element, or
    a square block with an element if the matrix has more than 2*width columns."""
    m, n = self.shape
    if 2*n <= min(width+1, 64) and m <= 32: return "\n".join(" ".join("■" if v else "·" for v in row) for row in self.todense())
    side = max(1, -(-n//(2*width)))
    dots = np.zeros((-(-m//(4*side))*4, -(-n//(2*side))*2), bool)
    dots[self.rows//side, self.cols//side] = True
    cells = dots.reshape(dots.shape[0]//4, 4, dots.shape[1]//2, 2)
    codes = 0x2800+sum((cells[:, y, :, x].astype(int)<<bit for bit,(y,x) in enumerate(BRAILLE_DOTS)), np.zeros((len(cells), cells.shape[2]), int))
    return "\n".join("".join(map(chr, row)) for row in codes.tolist())

  def __str__(self) -> str:
    m, n = self.shape
    return f"{m} x {n}, {self.nnz} nonzeros ({self.nnz/max(m*n, 1):.2%})\n{self.render()}".rstrip("\n")

def as_integers(values:Any) -> Any:
  """Returns the array as 1D int64; copies it unless it is read-only."""
  if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype == np.int64 and values.flags.owndata and not values.flags.writeable:
    return values
  return np.array(values, dtype=np.int64).reshape(-1)

# places that are looked at together, in memory of a few bytes each
CHUNK = 1<<20

def split_places(count:int) -> list[slice]: return [slice(start, min(start+CHUNK, count)) for start in range(0, count, CHUNK)]

def is_sorted(rows, cols) -> bool:
  """Whether the places are sorted by row, then by column, without duplicates."""
  for part in split_places(len(rows)):
    # with the first place of the next part
    r, c = rows[part.start:part.stop+1], cols[part.start:part.stop+1]
    if not ((r[:-1] < r[1:]) | ((r[:-1] == r[1:]) & (c[:-1] < c[1:]))).all(): return False
  return True

# (row, column) of the dot for each bit of a Braille character
BRAILLE_DOTS = ((0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (3, 0), (3, 1))

# *** colours

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
  """Returns (cols, sizes, counts): the columns of all different rows, the number of columns in each, and how often each row occurs. "row" swaps rows
  and columns. Equal rows separate the same columns, so one is enough: a dense matrix has only one."""
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
  if partition not in ("column", "row"): raise ValueError(f'{name}: partition is "column" or "row", not {partition!r}')

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
