"""Sparse Jacobians: a JVP for each colour of columns (or a VJP for each colour of rows), in one vmap, decompressed by a gather."""
from __future__ import annotations
from dataclasses import dataclass, field
from typing import Any, Callable
from tinygrad.tensor import Tensor
from tinygrad_overlay._state import process
from tinygrad_overlay._func.derivatives import check_inputs
from tinygrad_overlay._func.index_sets import need_scipy, np
from tinygrad_overlay._func.jvp import push_forward
from tinygrad_overlay._func.pattern import Coloring, SparsityPattern, color, find_clash
from tinygrad_overlay._func.sparsity import Propagation
from tinygrad_overlay._func.tree import STATIC, call_differentiated, flatten, is_node, unmark
from tinygrad_overlay._func.vmap import vmap

FORMATS = ("coo", "csr", "dense")

@dataclass(frozen=True, eq=False)
class SparseCOO:
  """A sparse matrix of `shape` (m, n): `values[i]` is at `rows[i]`, `cols[i]`, sorted by row, then by column.

  `values` is a lazy Tensor of shape (nnz,), `rows` and `cols` are numpy int64 arrays.
  """
  shape: tuple[int, int] = field(metadata=STATIC)
  rows: Any = field(metadata=STATIC)
  cols: Any = field(metadata=STATIC)
  values: Tensor

  def toscipy(self):
    """Returns a scipy.sparse.coo_array; realizes the values. Raises ImportError if scipy is not installed."""
    return need_scipy("SparseCOO.toscipy").coo_array((self.values.numpy(), (self.rows, self.cols)), shape=self.shape)

@dataclass(frozen=True, eq=False)
class SparseCSR:
  """A sparse matrix of `shape` (m, n): row i has `values[j]` at column `indices[j]`, for j from `indptr[i]` to `indptr[i+1]`, columns sorted.

  `values` is a lazy Tensor of shape (nnz,), `indptr` (m+1,) and `indices` (nnz,) are numpy int64 arrays.
  """
  shape: tuple[int, int] = field(metadata=STATIC)
  indptr: Any = field(metadata=STATIC)
  indices: Any = field(metadata=STATIC)
  values: Tensor

  def toscipy(self):
    """Returns a scipy.sparse.csr_array; realizes the values. Raises ImportError if scipy is not installed."""
    return need_scipy("SparseCSR.toscipy").csr_array((self.values.numpy(), self.indices, self.indptr), shape=self.shape)

def jacobian_sparsity(fn:Callable, x:Tensor) -> SparsityPattern:
  """Returns the elements of the Jacobian of `fn` that can be nonzero for any x of this shape. It misses none, but may include elements that are
  always zero.

  The pattern is (m, n) for n elements of x and m of the result, both flattened. The elements of several result Tensors (tuples, lists, dicts) are
  concatenated. `fn` is called once; only kernels that do not depend on x run.

   - Constants with which `fn` multiplies, selects or indexes count with their **current** values: a zero there removes the product from the pattern.
     Find the pattern again if other data has zeros elsewhere.
   - Values are assumed to be finite: 0*inf counts as 0.
   - Each op is considered alone: x-x depends on x.

  Raises TypeError if x is no float Tensor or the result no Tensor, NotImplementedError for an unknown op, RuntimeError if `fn` realizes a value that
  depends on x, or if constants must be computed while TinyJit captures.
  """
  check_x("jacobian_sparsity", x)
  marked, y = call("jacobian_sparsity", fn, x)
  return pattern_of(y, marked)

def sparse_jacobian(fn:Callable, x:Tensor, pattern:SparsityPattern|None=None, coloring:Coloring|None=None,
                    format:str="coo") -> SparseCOO|SparseCSR|Tensor:
  """Returns the Jacobian of `fn` at `x`, (m, n) for m elements of the result and n of x. Computes only the elements in `pattern`.

   - `pattern`: a result of jacobian_sparsity, or your own SparsityPattern. It must have every nonzero element: a missing element is added to other
     elements. None: find it now.
   - `coloring`: a result of color(pattern). "column" needs a JVP for each colour, "row" a VJP. None: colour the columns.
   - `format`: "coo" gives a SparseCOO, "csr" a SparseCSR, "dense" a Tensor of shape (m, n). Only "dense" ever makes m*n elements.

  The values are lazy, in the order of the pattern, and can be differentiated and jitted; inside TinyJit, give the pattern.
  Raises like jacobian_sparsity, and ValueError for a pattern or coloring that does not fit, or an unknown format.
  """
  check_x("sparse_jacobian", x)
  if format not in FORMATS: raise ValueError(f'sparse_jacobian: format is "coo", "csr" or "dense", not {format!r}')
  marked, y = call("sparse_jacobian", fn, x)
  if pattern is None: pattern = pattern_of(y, marked)
  if not isinstance(pattern, SparsityPattern): raise TypeError(f"sparse_jacobian: pattern is of type {type(pattern).__name__}, not a SparsityPattern")
  if pattern.shape != (shape:=(int(y.shape[0]), int(x.numel()))):
    raise ValueError(f"sparse_jacobian: the pattern has shape {pattern.shape}, but the Jacobian of this function and x has {shape}")
  if coloring is not None: check_coloring(pattern, coloring)
  used: Coloring = coloring or remembered(pattern, "coloring", lambda: color(pattern))
  # an empty pattern needs no kernel
  if pattern.nnz: compressed = unmark(compress(y, marked, used), marked).contiguous().reshape(-1)
  else: compressed = Tensor.zeros(1, dtype=y.dtype, device=x.device)
  return decompress(compressed, pattern, used, format)

def check_x(name:str, x:Any) -> None:
  if is_node(x): raise TypeError(f"{name}: x is of type {type(x).__name__}, not a Tensor; put several inputs into one with Tensor.cat")
  check_inputs(name, "x", x)

def check_coloring(pattern:SparsityPattern, coloring:Any) -> None:
  if not isinstance(coloring, Coloring):
    raise TypeError(f"sparse_jacobian: coloring is of type {type(coloring).__name__}, not what color(pattern) returns")
  (ours, size), other = (("column", pattern.shape[1]), "row") if coloring.partition == "column" else (("row", pattern.shape[0]), "column")
  if len(coloring.colors) != size:
    raise ValueError(f"sparse_jacobian: the coloring has {len(coloring.colors)} {ours}s, but the pattern of shape {pattern.shape} has {size}")
  if (clash:=find_clash(pattern, coloring)) is not None:
    shared, a, b = clash
    raise ValueError(f"sparse_jacobian: the coloring is not one of this pattern: {ours}s {a} and {b} have the same colour,"
                     f" and both have a nonzero in {other} {shared}")

def call(name:str, fn:Callable, x:Tensor) -> tuple[Tensor, Tensor]:
  """Returns (the marked x, the elements of the result as one flat Tensor)."""
  (marked,), out, _ = call_differentiated(name, fn, (x,))
  if not (found:=[y.reshape(-1) for y in flatten(out)]): raise TypeError(f"{name}: the function returned no Tensor")
  return marked, found[0] if len(found) == 1 else Tensor.cat(*found)

def pattern_of(y:Tensor, marked:Tensor) -> SparsityPattern:
  return SparsityPattern((int(y.shape[0]), int(marked.numel())), *Propagation(marked.uop, y.uop).find_rows(y.uop))

def compress(y:Tensor, x:Tensor, coloring:Coloring) -> Tensor:
  """Returns (colours, m): the sum of the Jacobian's columns of each colour. For rows (colours, n)."""
  colors = kept(coloring, "colors", x, lambda: coloring.colors)
  def columns(c:Tensor) -> Tensor: return push_forward(y, {x.uop:(colors == c).cast(x.dtype).reshape(x.shape).uop})
  def rows(c:Tensor) -> Tensor: return y.gradient(x, gradient=(colors == c).cast(y.dtype), materialize_grads=True)[0].reshape(-1)
  return vmap(columns if coloring.partition == "column" else rows)(Tensor.arange(coloring.count, device=x.device))

def decompress(compressed:Tensor, pattern:SparsityPattern, coloring:Coloring, format:str) -> SparseCOO|SparseCSR|Tensor:
  m, n = pattern.shape
  rows, cols = pattern.rows, pattern.cols
  # the offset of each nonzero in `compressed`
  def find_offsets() -> Any: return coloring.colors[cols]*m+rows if coloring.partition == "column" else coloring.colors[rows]*n+cols
  def find_all_offsets() -> Any:
    offsets = np.full(m*n, -1)
    offsets[rows*n+cols] = find_offsets()
    return offsets
  # an index by one 1D Tensor into a buffer is one load for each element
  if format == "dense":
    offsets = kept(pattern, ("dense", coloring), compressed, find_all_offsets)
    return (offsets<0).where(0, compressed[offsets]).reshape(m, n)
  values = compressed[kept(pattern, coloring, compressed, find_offsets)]
  if format == "coo": return SparseCOO(pattern.shape, rows, cols, values)
  return SparseCSR(pattern.shape, np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=m))]), cols, values)

def remembered(owner:SparsityPattern|Coloring, name:Any, find:Callable[[], Any]) -> Any:
  known = process.made_of_pattern.setdefault(owner, {})
  if name not in known: known[name] = find()
  return known[name]

def kept(owner:SparsityPattern|Coloring, name:Any, like:Tensor, find:Callable[[], Any]) -> Tensor:
  """Returns the integers of `find()` as a 1D Tensor on the device of `like`; cached for each owner, name and device."""
  def make() -> Tensor:
    found = find()
    small = not len(found) or found.max() < 2**31
    return Tensor(found.astype(np.int32 if small else np.int64), device=like.device).realize()
  return remembered(owner, (name, like.device), make)
