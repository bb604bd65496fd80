"""The pattern of a sparse matrix: the elements that may be nonzero."""
from __future__ import annotations
from dataclasses import dataclass
from typing import Any
from tinygrad_overlay._func.index_sets import sort_unique
from tinygrad_overlay._func.lazy_numpy import need_scipy, np

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
    """Returns the pattern as text of at most `width` columns: a sign for each element if that fits, otherwise Braille dots.

    A dot is one element, or a square block with an element if the matrix has more than 2*width columns.
    """
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
