"""Hash-consed sets of columns: equal sets are stored once and share an id, so an array can hold a set for each of its elements."""
from __future__ import annotations
import importlib
from typing import Any

class LazyNumpy:
  """Imports numpy on first use: only the sparse part of tinygrad.func needs it."""
  def __getattr__(self, name:str) -> Any:
    try: numpy = importlib.import_module("numpy")
    except ImportError: raise ImportError("the sparse Jacobians of tinygrad.func need numpy, which is not installed: pip install numpy") from None
    # cached for the next access
    setattr(self, name, value:=getattr(numpy, name))
    return value

np: Any = LazyNumpy()

def need_scipy(what:str) -> Any:
  """Returns scipy.sparse. Raises ImportError if it is not installed."""
  try: return importlib.import_module("scipy.sparse")
  except ImportError: raise ImportError(f"{what} needs scipy, which is not installed: pip install scipy") from None

# two ids are not sets: ZERO, an element that is zero for every x; and NONE, an element with any value but no derivative.
# All other ids are larger, so max() is the union if one of two ids is not a set.
ZERO, NONE = 0, 1

class IndexSets:
  """The sets of columns below `n` in one propagation."""
  def __init__(self, n:int):
    self.n = n
    self.known: dict[bytes, int] = {}
    # CSR: set `i` is columns[starts[i]:starts[i]+sizes[i]]
    self.starts, self.sizes, self.columns = np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(0, np.int32)

  def add_sets(self, columns, sizes):
    """Returns the id of each set. `columns` concatenates the sets, each sorted and not empty; `sizes` are their lengths."""
    data, ends = memoryview(columns.astype(np.int32, copy=False).tobytes()), np.cumsum(sizes)*4
    known, pending = self.known, []
    ret, start = np.empty(len(sizes), np.int32), 0
    for at,end in enumerate(ends.tolist()):
      key = bytes(data[start:end])
      if (i:=known.get(key)) is None:
        i = known[key] = len(known)+2
        pending.append(key)
      ret[at], start = i, end
    if pending:
      sizes = np.fromiter((len(key)//4 for key in pending), np.int64, len(pending))
      self.starts = np.concatenate([self.starts, len(self.columns)+np.cumsum(sizes)-sizes])
      self.sizes = np.concatenate([self.sizes, sizes])
      self.columns = np.concatenate([self.columns, np.frombuffer(b"".join(pending), np.int32)])
    return ret

  def gather(self, ids):
    """Returns (columns, sizes): the concatenated members of the sets. ZERO and NONE have no members."""
    sizes = self.sizes[ids]
    shift = self.starts[ids]-(np.cumsum(sizes)-sizes)
    return self.columns[np.repeat(shift, sizes)+np.arange(sizes.sum())], sizes

  def gather_rows(self, ids):
    """Returns (rows, columns) of the members, one set for each row: int64, read-only. Needs little memory besides the result."""
    sizes = self.sizes[ids]
    rows, columns = np.repeat(np.arange(len(ids)), sizes), np.empty(sizes.sum(), np.int64)
    end = 0
    for part in split_rows(np.arange(len(ids)), sizes):
      start, end = end, end+int(sizes[part].sum())
      columns[start:end] = self.gather(ids[part])[0]
    rows.flags.writeable = columns.flags.writeable = False
    return rows, columns

  def unite(self, rows, ids, count:int):
    """Returns (count,) ids: the union of each row's sets, NONE for a row without sets. `rows` is sorted, and as long as `ids`."""
    ret = np.full(count, NONE, np.int32)
    new = np.ones(len(rows), bool)
    new[1:] = (rows[1:] != rows[:-1]) | (ids[1:] != ids[:-1])
    rows, ids = rows[new], ids[new]
    per_row = np.bincount(rows, minlength=count)
    alone = per_row[rows] == 1
    ret[rows[alone]] = ids[alone]
    rows, ids = rows[~alone], ids[~alone]
    for part in split_rows(rows, self.sizes[ids]):
      columns, sizes = self.gather(ids[part])
      keys = sort_unique(np.repeat(rows[part], sizes)*self.n+columns)
      targets, sizes = np.unique(keys//self.n, return_counts=True)
      ret[targets] = self.add_sets(keys%self.n, sizes)
    return ret

  def join(self, a, b):
    """Returns the elementwise union of two arrays of ids; ZERO only if both are ZERO."""
    ret = np.asarray(np.maximum(a, b))
    if not a.size or a.max() <= NONE or b.max() <= NONE: return ret
    differ = (a != b) & (np.minimum(a, b) > NONE)
    if differ.any():
      low, high = np.minimum(a, b)[differ].astype(np.int64), ret[differ]
      pairs, pair_of = np.unique(low*len(self.sizes)+high, return_inverse=True)
      ids = np.stack([pairs//len(self.sizes), pairs%len(self.sizes)], axis=1).reshape(-1)
      ret[differ] = self.unite(np.repeat(np.arange(len(pairs)), 2), ids, len(pairs))[pair_of]
    return ret

  def reduce(self, ids, zero_wins:bool):
    """(rows, k) ids -> (rows,): the union of each row. It is ZERO if all ids of the row are ZERO, or with zero_wins if one is."""
    zero = (ids == ZERO).any(axis=1) if zero_wins else (ids == ZERO).all(axis=1)
    at = np.nonzero(ids > NONE)
    order = np.argsort(at[0]*len(self.sizes)+ids[at], kind="stable")
    return np.where(zero, np.int32(ZERO), self.unite(at[0][order], ids[at][order], len(ids)))

# number of set members processed together, 8 bytes each
CHUNK = 1<<20

def split_rows(rows, sizes):
  """Cuts sorted rows into slices of about CHUNK members, never inside a row."""
  start, ends = 0, np.cumsum(sizes)
  while start < len(rows):
    before = ends[start-1] if start else 0
    stop = int(np.searchsorted(ends, before+CHUNK))+1
    stop = int(np.searchsorted(rows, rows[min(stop, len(rows))-1], side="right"))
    yield slice(start, stop)
    start = stop

def sort_unique(keys):
  keys = np.sort(keys)
  new = np.ones(len(keys), bool)
  new[1:] = keys[1:] != keys[:-1]
  return keys[new]
