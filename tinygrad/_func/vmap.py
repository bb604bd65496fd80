"""`vmap`: maps a function of one element over a whole batch, in the same kernels."""
from __future__ import annotations
import functools
from dataclasses import dataclass
from typing import Any, Callable
from tinygrad.dtype import dtypes
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import AxisType, Ops, UOp, sint
from tinygrad_overlay._func.tree import as_tensor, as_tensors, describe, flatten, is_numpy, leaves, replace_leaves, spread_axes
from tinygrad_overlay._state import Running, Within, running
from tinygrad_overlay.schedule import _scopes
from tinygrad_overlay.tensor import ENTERING, LEAVING, NotedAs, enter_axis, leave_axis
from tinygrad_overlay.uop.ops import render_shape, render_size

AXIS_TYPES = {"loop": AxisType.LOOP, "outer": AxisType.OUTER}
METHODS, RANDOMNESS = ("ranges", "pad_reduce"), ("error", "different", "same")

@dataclass(eq=False, slots=True)
class Scope:
  rng: UOp
  method: str
  size: sint

  def enter(self, x:Tensor, axis:int=0) -> Tensor:
    """(3, 6) with axis 0 -> (6,): one slice for each step of the RANGE."""
    if self.method == "ranges": return enter_axis(x, self.rng, axis)
    return x[(slice(None),)*axis+(self.rng,)]

  def leave(self, x:Tensor, axis:int) -> Tensor:
    """(6,) with axis 0 -> (3, 6): collects the slices of all steps along a new axis."""
    if self.method == "ranges": return leave_axis(x, self.rng, axis)
    # each step pads its slice with zeros, and the sum over the steps has all slices. A sum of bools is no bool.
    padded = (x.cast(dtypes.int8) if x.dtype == dtypes.bool else x).unsqueeze(axis)
    padded = padded.pad(tuple((self.rng, self.size-1-self.rng) if i == axis else None for i in range(padded.ndim)))
    return Tensor(padded.uop.reduce(self.rng, arg=Ops.ADD), device=x.device, requires_grad=x.requires_grad).cast(x.dtype)

  def spread(self, x:Tensor, axis:int) -> Tensor:
    """(6,) with axis 0 -> (3, 6): the same value for each step."""
    return (x:=x.unsqueeze(axis)).expand(with_size(x, axis, self.size))

def with_size(x:Tensor, axis:int, size:sint) -> tuple[sint, ...]: return (*x.shape[:axis], size, *x.shape[axis+1:])

def vmap(fn:Callable|None=None, in_axes:Any=0, out_axes:Any=0, *, axis_size:int|None=None, axis_type:str="loop", method:str="ranges",
         randomness:str="error", chunk_size:int|None=None) -> Callable:
  """Maps a function of one element over a batch: vmap(fn)(x) is the stack of fn(x[i]), scheduled as one program.

  `fn` takes and returns Tensors in tuples, lists, dicts, dataclasses and registered classes to any depth. It sees one element: (8, 6) mapped over
  axis 0 becomes (6,). Numpy arrays, and numbers that `fn` returns, are converted to Tensors.
   - `in_axes`: the mapped axis of each argument: an int (negative too), None for an argument that every element gets whole, or tuples, lists and
     dicts of these, with the structure of the arguments. Keyword arguments are mapped over axis 0.
   - `out_axes`: the axis of the batch in each result, in the same form. A result that does not depend on the batch is repeated; with None it is
     returned once.
   - `axis_size`: the size of the batch, needed only if no argument is mapped.
   - `axis_type`: "loop" puts the batch into the kernels; "outer" runs each kernel once for each element.
   - `method`: "ranges" uses VMAPIN and VMAPOUT; "pad_reduce" uses only stock tinygrad's ops: it pads each element's result to the whole batch, and
     sums. The results are the same.
   - `randomness`: "error" refuses a random call inside, "different" gives each element different numbers, "same" gives all elements the same numbers.
   - `chunk_size`: the maximum number of elements in one program; the results are concatenated. It limits memory.

  vmap nests to any depth, also with `jvp`, `Tensor.gradient`, `backward` and TinyJit, and is a decorator: `@vmap`, `@vmap(in_axes=1)`.
  Inside, a value of the batch cannot be realized. For an empty batch `fn` is called once, on ones, for the shapes of the results.
  Raises TypeError for a value that is no Tensor or axis, ValueError for axes and sizes that do not fit, VmapScopeError for ops that no scope allows.
  """
  if fn is None:
    return functools.partial(vmap, in_axes=in_axes, out_axes=out_axes, axis_size=axis_size, axis_type=axis_type, method=method, randomness=randomness,
                             chunk_size=chunk_size)
  if not callable(fn): raise TypeError(f"vmap: the function is {describe(fn)}, which cannot be called")
  for option,value,known in (("axis_type", axis_type, AXIS_TYPES), ("method", method, METHODS), ("randomness", randomness, RANDOMNESS)):
    if value not in known: raise ValueError(f"vmap: {option} is one of {', '.join(map(repr, known))}, not {value!r}")
  for option,value in (("axis_size", axis_size), ("chunk_size", chunk_size)):
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
      raise ValueError(f"vmap: {option} is a positive int, not {value!r}")

  @functools.wraps(fn)
  def mapped(*args:Any, **kwargs:Any) -> Any:
    # in_axes has an entry for each positional argument
    if isinstance(in_axes, (tuple, list)) and len(in_axes) != len(args):
      raise ValueError(f"vmap: in_axes {in_axes!r} has {len(in_axes)} entries, but {len(args)} positional arguments were given")
    values = flatten(args)
    axes = spread_axes(tuple(in_axes) if isinstance(in_axes, list) else in_axes, args, "vmap: in_axes", "args")
    if kwargs:
      values += (named:=flatten(kwargs))
      axes += [0]*len(named)
    def name(i:int) -> str: return [*leaves(args, "args"), *leaves(kwargs, "kwargs")][i][0]
    inputs = [find_input(x, axis, name, i) for i,(x,axis) in enumerate(zip(values, axes))]
    size = find_size(inputs, axis_size, name)
    def run(inputs:list[Input], size:sint) -> tuple[Any, list[int|None]]:
      return run_part(fn, args, kwargs, make_scope(axis_type, method, size), out_axes, randomness, inputs)
    if size == 0: return cut_to_none(*run([(first_of_none(x, axis), axis, 1) for x,axis,_ in inputs], 1))
    if chunk_size is None or (isinstance(size, int) and size <= chunk_size): return run(inputs, size)[0]
    if not isinstance(size, int): raise ValueError(f"vmap: chunk_size needs a batch of fixed size, not {render_size(size)}")
    chunks = [(start, min(start+chunk_size, size)) for start in range(0, size, chunk_size)]
    return join([run([(cut(x, axis, *chunk), axis, chunk[1]-chunk[0]) for x,axis,_ in inputs], chunk[1]-chunk[0]) for chunk in chunks])
  return mapped

# an argument or a leaf of it, its mapped axis (not negative), and the size of that axis
Input = tuple[Any, int|None, Any]
# index of an argument -> its path, for errors only
Name = Callable[[int], str]

def run_part(fn:Callable, args:tuple, kwargs:dict, scope:Scope, out_axes:Any, randomness:str, inputs:list[Input]) -> tuple[Any, list[int|None]]:
  """Calls `fn` inside a scope, on inputs of the scope's size. Returns (the collected results, the axis of each)."""
  with NotedAs(ENTERING): entered = [x if axis is None else scope.enter(x, axis) for x,axis,_ in inputs]
  inner = iter(entered)
  inner_args = replace_leaves(args, inner)
  inner_kwargs = replace_leaves(kwargs, inner) if kwargs else kwargs
  first = next((x for x,(_,axis,_) in zip(entered, inputs) if axis is not None), None)
  with Within(running, Running((scope.rng,), first, scope.size, randomness, scope.enter)): results = as_tensors(fn(*inner_args, **inner_kwargs))
  found = flatten(results)
  outs = spread_axes(out_axes, results, "vmap: out_axes", "the result")
  def name(i:int, tree:Any=results) -> str: return leaves(tree, "the result")[i][0]
  with NotedAs(LEAVING):
    # deleted here, because tinygrad also profiles the deletion of a Tensor
    left = replace_leaves(results, iter([collect(scope, y, axis, name, i) for i,(y,axis) in enumerate(zip(found, outs))]))
    del entered, inner, inner_args, inner_kwargs, first, results, found, name
  return left, outs

def make_scope(axis_type:str, method:str, size:sint) -> Scope:
  if isinstance(size, UOp) and method == "pad_reduce":
    raise ValueError(f"vmap: method 'pad_reduce' needs a batch of fixed size, not {render_size(size)}")
  # a slice at a RANGE of one step is not inside its scope: a setitem would write to the argument
  used = "ranges" if isinstance(size, int) and size == 1 else method
  return Scope(_scopes.make_range(size, AXIS_TYPES[axis_type], used == "pad_reduce"), used, size)

# *** parts of a batch

def cut(x:Any, axis:int|None, start:int, end:int) -> Any:
  return x if axis is None else x.shrink(tuple((start, end) if i == axis else None for i in range(x.ndim)))

def join(parts:list[tuple[Any, list[int|None]]]) -> Any:
  """Concatenates the results of the parts along their axes; a result without axis is the same in all parts."""
  (first, outs), columns = parts[0], zip(*[flatten(results) for results,_ in parts])
  return replace_leaves(first, (ys[0] if axis is None else ys[0].cat(*ys[1:], dim=axis) for ys,axis in zip(columns, outs)))

def first_of_none(x:Any, axis:int|None) -> Any:
  """Returns a batch of one element, all ones, for an empty batch: only the shapes of the results are used."""
  return x if axis is None else Tensor.ones(with_size(x, axis, 1), dtype=x.dtype, device=x.device)

def cut_to_none(results:Any, outs:list[int|None]) -> Any:
  def cut(y:Tensor, axis:int|None) -> Tensor: return y if axis is None else Tensor.zeros(with_size(y, axis % y.ndim, 0), dtype=y.dtype, device=y.device)
  return replace_leaves(results, map(cut, flatten(results), outs))

def find_input(x:Any, axis:int|None, name:Name, i:int) -> Input:
  """Checks an argument and its axis. Returns an unmapped argument unchanged."""
  if axis is None: return x, None, None
  if not isinstance(x, Tensor) and is_numpy(x): x = as_tensor(x)
  if not isinstance(x, Tensor): raise TypeError(f"vmap: {name(i)} is {describe(x)}, which has no axis {axis} to map; {advise(name(i))}, or give a Tensor")
  ndim = len(shape:=x.shape)
  if not -ndim <= axis < ndim:
    fits = f"axes {-ndim} to {ndim-1} fit" if ndim else f"it has no axis; {advise(name(i))}"
    raise ValueError(f"vmap: axis {axis} is out of range for {name(i)} of shape {render_shape(shape)}: {fits}")
  return x, axis % ndim, shape[axis]

def advise(path:str) -> str:
  # a keyword has no entry in in_axes
  return "give None in in_axes for it" if path.startswith("args") else "keywords are mapped over axis 0: bind it with functools.partial"

def find_size(inputs:list[Input], axis_size:int|None, name:Name) -> sint:
  sizes = {size for _,axis,size in inputs if axis is not None}
  if axis_size is not None: sizes.add(axis_size)
  if not sizes: raise ValueError("vmap: no argument is mapped, so the size of the batch is unknown; map one in in_axes, or give axis_size")
  if len(sizes) == 1: return sizes.pop()
  listed = [f"{name(i)} of shape {render_shape(x.shape)} has {render_size(size)} at axis {axis}"
            for i,(x,axis,size) in enumerate(inputs) if axis is not None]
  if axis_size is not None: listed.append(f"axis_size is {axis_size}")
  raise ValueError(f"vmap: the mapped axes must have one size: {', '.join(listed)}")

def collect(scope:Scope, y:Any, axis:int|None, name:Name, i:int) -> Tensor:
  if not isinstance(y, Tensor): raise TypeError(f"vmap: {name(i)} is {describe(y)}; a mapped function returns Tensors, in tuples, lists and dicts")
  depends = _scopes.is_open(scope.rng, y.uop)
  if axis is None:
    if depends:
      raise ValueError(f"vmap: {name(i)} of shape {render_shape(y.shape)} depends on the batch of {render_size(scope.size)}, so it needs an axis for it in"
                       " out_axes, not None")
    return y
  ndim = len(y.shape)
  if not -ndim-1 <= axis <= ndim:
    raise ValueError(f"vmap: axis {axis} in out_axes is out of range for {name(i)} of shape {render_shape(y.shape)}: with the batch it has {ndim+1} axes,"
                     f" {-ndim-1} to {ndim} fit")
  axis %= ndim+1
  return scope.leave(y, axis) if depends else scope.spread(y, axis)
