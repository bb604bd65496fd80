"""`vmap`: a function of one element, mapped over a whole batch in the same kernels."""
from __future__ import annotations
import functools
from dataclasses import dataclass
from typing import Any, Callable
from tinygrad.dtype import dtypes
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import AxisType, Ops, UOp
from tinygrad_overlay._func.tree import leaves, replace_leaves, spread_axes
from tinygrad_overlay._state import run_function
from tinygrad_overlay.schedule import _scopes

AXIS_TYPES = {"loop": AxisType.LOOP, "outer": AxisType.OUTER}
METHODS = ("ranges", "pad_reduce")

@dataclass(frozen=True)
class Scope:
  rng: UOp
  method: str

  @property
  def size(self) -> int: return self.rng.src[0].arg

  def varg(self, ndim:int, axis:int) -> tuple[UOp, ...]:
    return tuple(self.rng if i == axis else UOp.const(dtypes.index, 0) for i in range(ndim))

  def enter(self, x:Tensor, axis:int) -> Tensor:
    """(3, 6) with axis 0 -> (6,): one slice for each step of the RANGE."""
    if self.method == "ranges": return x.vmapin(self.varg(x.ndim, axis))
    return x[(slice(None),)*axis+(self.rng,)]

  def leave(self, x:Tensor, axis:int) -> Tensor:
    """(6,) with axis 0 -> (3, 6): the slices of all steps along a new axis."""
    if self.method == "ranges": return x.vmapout(self.varg(x.ndim+1, axis))
    # each step has its own slice, zero elsewhere, and the sum over the steps is all of them. A sum of bools is no bool.
    padded = (x.cast(dtypes.int8) if x.dtype == dtypes.bool else x).unsqueeze(axis)
    padded = padded.pad(tuple((self.rng, self.size-1-self.rng) if i == axis else None for i in range(padded.ndim)))
    return Tensor(padded.uop.reduce(self.rng, arg=Ops.ADD), device=x.device, requires_grad=x.requires_grad).cast(x.dtype)

  def is_open_in(self, x:Tensor) -> bool: return self.rng in x.uop.ranges

  def spread(self, x:Tensor, axis:int) -> Tensor:
    """(6,) with axis 0 -> (3, 6): the same value for each step."""
    x = x.unsqueeze(axis)
    return x.expand(tuple(self.size if i == axis else s for i,s in enumerate(x.shape)))

def vmap(fn:Callable|None=None, in_axes:Any=0, out_axes:Any=0, *, axis_size:int|None=None, axis_type:str="loop", method:str="ranges") -> Callable:
  """Maps a function of one element over a batch: vmap(fn)(x) is the stack of fn(x[i]), scheduled as one program.

  `fn` takes and returns Tensors in tuples, lists and dicts to any depth. It sees one element: (8, 6) mapped over axis 0 is (6,) in there.
   - `in_axes`: the axis of each argument that is mapped: an int (negative too), None for an argument that every element gets whole, or tuples, lists and
     dicts of these, as deep as the arguments are. Keyword arguments are mapped over axis 0.
   - `out_axes`: where the batch goes in each result, in the same manner. A result that does not depend on the batch is repeated; with None
     it stays as it is.
   - `axis_size`: the size of the batch, which is needed only where nothing is mapped.
   - `axis_type`: "loop" puts the batch into the kernels; "outer" runs each kernel once for each element.
   - `method`: "ranges" uses VMAPIN and VMAPOUT; "pad_reduce" uses ops that tinygrad has: each element's result is padded to the whole batch, and
     these are summed. Its results are the same.

  vmap nests to any depth, with `jvp`, `Tensor.gradient`, `backward` and TinyJit too, and is a decorator: `@vmap`, `@vmap(in_axes=1)`.
  Inside, a value of the batch cannot be realized, and a random call is refused, as it would give every element the same numbers.
  Raises TypeError for what is no Tensor or no axis, ValueError for axes and sizes that do not fit, VmapScopeError for what no scope can do.
  """
  if fn is None:
    return functools.partial(vmap, in_axes=in_axes, out_axes=out_axes, axis_size=axis_size, axis_type=axis_type, method=method)
  if not callable(fn): raise TypeError(f"vmap: the function is {describe(fn)}, which cannot be called")
  if axis_type not in AXIS_TYPES: raise ValueError(f"vmap: axis_type is one of {', '.join(map(repr, AXIS_TYPES))}, not {axis_type!r}")
  if method not in METHODS: raise ValueError(f"vmap: method is one of {', '.join(map(repr, METHODS))}, not {method!r}")
  if axis_size is not None and (not isinstance(axis_size, int) or isinstance(axis_size, bool) or axis_size < 1):
    raise ValueError(f"vmap: axis_size is a positive int, not {axis_size!r}")

  @functools.wraps(fn)
  def mapped(*args:Any, **kwargs:Any) -> Any:
    # in_axes has an entry for each positional argument
    if isinstance(in_axes, (tuple, list)) and len(in_axes) != len(args):
      raise ValueError(f"vmap: in_axes {in_axes!r} has {len(in_axes)} entries, but {len(args)} positional arguments were given")
    axes = spread_axes(tuple(in_axes) if isinstance(in_axes, list) else in_axes, args, "vmap: in_axes", "args")+[0]*len(leaves(kwargs))
    inputs = [(path, x, check_axis(path, x, axis)) for (path,x),axis in zip(leaves(args, "args")+leaves(kwargs, "kwargs"), axes)]
    size = find_size([(path, x, axis) for path,x,axis in inputs if axis is not None], axis_size)
    # a slice at a RANGE of one step is no longer inside its scope: a setitem would write to the argument
    used = method if size > 1 else "ranges"
    scope = Scope(_scopes.make_range(size, AXIS_TYPES[axis_type], used == "pad_reduce"), used)
    entered = [x if axis is None else scope.enter(x, axis) for _,x,axis in inputs]
    inner = iter(entered)
    inner_args, inner_kwargs = replace_leaves(args, inner), replace_leaves(kwargs, inner)
    first = next((x for x,(_,_,axis) in zip(entered, inputs) if axis is not None), None)
    with run_function((scope.rng,), first, size): results = fn(*inner_args, **inner_kwargs)
    outs = spread_axes(out_axes, results, "vmap: out_axes", "the result")
    return replace_leaves(results, iter([collect(scope, path, y, axis) for (path,y),axis in zip(leaves(results, "the result"), outs)]))
  return mapped

def describe(x:Any) -> str: return f"{x!r} of type {type(x).__name__}" if isinstance(x, (bool, int, float, str)) else f"of type {type(x).__name__}"

def check_axis(path:str, x:Any, axis:int|None) -> int|None:
  """The axis counted from the front."""
  if axis is None: return None
  if not isinstance(x, Tensor): raise TypeError(f"vmap: {path} is {describe(x)}, which has no axis {axis} to map; give None in in_axes for it, or a Tensor")
  if not -x.ndim <= axis < x.ndim:
    fits = f"axes {-x.ndim} to {x.ndim-1} fit" if x.ndim else "it has no axis, give None in in_axes for it"
    raise ValueError(f"vmap: axis {axis} is out of range for {path} of shape {x.shape}: {fits}")
  if not isinstance(x.shape[axis], int):
    raise ValueError(f"vmap: axis {axis} of {path} has the symbolic size {x.shape[axis].render()}, and a mapped axis needs a fixed one")
  if x.shape[axis] == 0: raise ValueError(f"vmap: axis {axis} of {path} of shape {x.shape} is empty, and there is no element to map the function over")
  return axis % x.ndim

def find_size(mapped:list[tuple[str, Tensor, int]], axis_size:int|None) -> int:
  sizes = {x.shape[axis] for _,x,axis in mapped}
  if axis_size is not None: sizes.add(axis_size)
  if not sizes: raise ValueError("vmap: no argument is mapped, so the size of the batch is unknown; map one in in_axes, or give axis_size")
  if len(sizes) == 1: return int(sizes.pop())
  listed = [f"{path} of shape {x.shape} has {x.shape[axis]} at axis {axis}" for path,x,axis in mapped]
  if axis_size is not None: listed.append(f"axis_size is {axis_size}")
  raise ValueError(f"vmap: the mapped axes must have one size: {', '.join(listed)}")

def collect(scope:Scope, path:str, y:Any, axis:int|None) -> Tensor:
  if not isinstance(y, Tensor): raise TypeError(f"vmap: {path} is {describe(y)}; a mapped function returns Tensors, in tuples, lists and dicts")
  depends = scope.is_open_in(y)
  if axis is None:
    if depends: raise ValueError(f"vmap: {path} of shape {y.shape} depends on the batch of {scope.size}, so it needs an axis for it in out_axes, not None")
    return y
  if not -y.ndim-1 <= axis <= y.ndim:
    raise ValueError(f"vmap: axis {axis} in out_axes is out of range for {path} of shape {y.shape}: with the batch it has {y.ndim+1} axes,"
                     f" {-y.ndim-1} to {y.ndim} fit")
  axis %= y.ndim+1
  return scope.leave(y, axis) if depends else scope.spread(y, axis)
