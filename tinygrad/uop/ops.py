"""Shapes, checks and ranges of VMAPIN and VMAPOUT (patch vmap-ops)."""
from __future__ import annotations
import functools
from types import FunctionType, ModuleType
from typing import Callable
from tinygrad.uop import Ops, GroupOp
from tinygrad.dtype import dtypes
from tinygrad.helpers import getenv
from tinygrad.uop import ops
from tinygrad.uop.ops import UOp, UPat, AxisType, recursive_property, sint, sint_to_uop, srender
from tinygrad_overlay._patching import Changes

def describe_varg(varg:tuple) -> str:
  return "("+", ".join(f"RANGE({v.src[0].render()}) {v.render(simplify=False)}" if isinstance(v, UOp) and v.op is Ops.RANGE else
                       v.render(simplify=False) if isinstance(v, UOp) else str(v) for v in varg)+")"

# CONST 0 of dtypes.index, one object, because equal UOps are one object. Not made during the import of this module: with SPEC=2 modules that import
# this module check each new node
@functools.cache
def zero() -> UOp: return UOp.const(dtypes.index, 0)

def check_varg(name:str, varg:tuple, shape:tuple) -> list[UOp]:
  """Checks that each entry of a varg is a RANGE (a mapped axis) or CONST 0 (an axis that stays). Returns the RANGEs; raises ValueError."""
  ranges = []
  for v in varg:
    if v is zero(): continue
    if not is_varg_entry(v):
      got = f"{v.op} of dtype {v.dtype}" if isinstance(v, UOp) else repr(v)
      raise ValueError(f"{name}: each varg must be a RANGE or CONST 0 of dtypes.index, not {got} in {describe_varg(varg)} for shape {render_shape(shape)}")
    if v.op is not Ops.RANGE: continue
    # a tuple: a set would ask each Enum for its hash
    if v.arg[-1] not in (AxisType.LOOP, AxisType.OUTER):
      raise ValueError(f"{name}: RANGE {v.render(simplify=False)} must be LOOP or OUTER, not {v.arg[-1].name}, for shape {render_shape(shape)}")
    # a symbolic size is known only at run time
    if v.vmax < 0:
      raise ValueError(f"{name}: the size of RANGE {v.render(simplify=False)} must be a positive number, not {v.src[0].render()}, for shape {render_shape(shape)}")
    ranges.append(v)
  if not ranges: raise ValueError(f"{name}: the varg {describe_varg(varg)} names no RANGE, so it maps no axis of shape {render_shape(shape)}")
  if len(set(ranges)) != len(ranges): raise ValueError(f"{name}: the varg {describe_varg(varg)} names a RANGE twice for shape {render_shape(shape)}")
  return ranges

def is_varg_entry(v) -> bool: return isinstance(v, UOp) and v.dtype == dtypes.index and (v.op is Ops.RANGE or (v.op is Ops.CONST and v.arg == 0))

def range_size(r:UOp) -> sint: return r.src[0].sintify()

def render_size(size:sint) -> str:
  """Returns a size as text: 4, or n=3 for a Variable bound to 3."""
  return f"{size.src[0].expr}={size.src[1].arg}" if isinstance(size, UOp) and size.op is Ops.BIND and len(size.src) == 2 else srender(size)

def render_shape(shape:tuple) -> str: return f"({', '.join(map(render_size, shape))}{',' if len(shape) == 1 else ''})"

def vmapin_shape(varg:tuple, shape:tuple) -> tuple:
  """(3, 6) with vargs (RANGE(3), 0) -> (6,): removes the axes with a RANGE. Raises ValueError if the vargs do not fit."""
  if len(varg) != len(shape):
    raise ValueError(f"VMAPIN: the input of shape {render_shape(shape)} has {len(shape)} axes, the varg {describe_varg(varg)} has {len(varg)} entries")
  for axis,(size,v) in enumerate(zip(shape, varg)):
    if v.op is Ops.RANGE and v.src[0] is not sint_to_uop(size):
      raise ValueError(f"VMAPIN: RANGE {v.render(simplify=False)} has size {v.src[0].render()}, but axis {axis} of the input of shape {render_shape(shape)} has size {render_size(size)}")
  return tuple([size for size,v in zip(shape, varg) if v.op is Ops.CONST])

def vmapout_shape(varg:tuple, shape:tuple) -> tuple:
  """(6,) with vargs (RANGE(3), 0) -> (3, 6): adds an axis for each RANGE. Raises ValueError if the vargs do not fit."""
  if (stays:=sum(v.op is Ops.CONST for v in varg)) != len(shape):
    raise ValueError(f"VMAPOUT: the inner result of shape {render_shape(shape)} has {len(shape)} axes, the varg {describe_varg(varg)} has {stays} entries CONST 0")
  inner = iter(shape)
  return tuple(range_size(v) if v.op is Ops.RANGE else next(inner) for v in varg)

class KnownProperty(recursive_property):
  """A recursive property that walks no graph if its value, or the values of the sources, are known."""
  def __get__(self, x:UOp|None, owner=None):
    if x is None: return self
    if (known:=vars(x)).get(self.nm, UNKNOWN) is UNKNOWN:
      if any([self.nm not in s.__dict__ for s in x.src]): return super().__get__(x, owner)
      known[self.nm] = self.fxn(x)
    return known[self.nm]

UNKNOWN = object()
SHAPES = {Ops.VMAPIN: vmapin_shape, Ops.VMAPOUT: vmapout_shape}
# attributes in which a recursive_property caches its value
SHAPE, RANGES = UOp._shape.nm, UOp._ranges.nm

def _shape(self:UOp):
  """Adds the shapes of VMAPIN and VMAPOUT to stock's. Elementwise ops take a short way, because a vmap asks for all shapes of its graph."""
  if self.op in GroupOp.ALU and (shape:=self.src[0].__dict__[SHAPE]) is not None and all([s.__dict__[SHAPE] == shape for s in self.src]): return shape
  if (shape_of:=SHAPES.get(self.op)) is None: return stock_shape(self)
  varg, shape = self.src[1:], self.src[0].shape
  check_varg(self.op.name, varg, shape)
  return shape_of(varg, shape)

def to_varg(name:str, varg) -> tuple:
  if not isinstance(varg, (tuple, list)): raise ValueError(f"{name}: the varg must be a tuple of RANGE and CONST 0, not {describe_varg((varg,))[1:-1]}")
  return tuple([UOp.const(dtypes.index, v) if isinstance(v, int) and not isinstance(v, bool) else v for v in varg])

def vmapin(self:UOp, varg:tuple) -> UOp:
  """Like Tensor.vmapin; also raises ValueError when the RANGE is open in this value."""
  ranges = check_varg("VMAPIN", varg:=to_varg("VMAPIN", varg), shape:=self.shape)
  check_device(self)
  opened = self.ranges
  for v in ranges:
    if v in opened: raise ValueError(f"VMAPIN: RANGE {v.render(simplify=False)} is open already in the input of shape {render_shape(shape)}; a nested scope needs an axis id of its own")
  return made(Ops.VMAPIN, self, varg, vmapin_shape(varg, shape))

def check_device(u:UOp) -> None:
  device = u.device
  if not isinstance(device, str): raise ValueError(f"VMAPIN: a tensor sharded over {device} cannot enter a vmap scope")
  if device.startswith(("DISK", "TINYFS")):
    raise ValueError(f"VMAPIN: a tensor of shape {render_shape(u.shape)} on {device} cannot enter a vmap scope, copy it to a compute device first")

def vmapout(self:UOp, varg:tuple) -> UOp:
  """Like Tensor.vmapout."""
  check_varg("VMAPOUT", varg:=to_varg("VMAPOUT", varg), shape:=self.shape)
  return made(Ops.VMAPOUT, self, varg, vmapout_shape(varg, shape))

# unchecked variants, for a new RANGE that was made for the axis
def axis_varg(rng:UOp, axis:int, ndim:int) -> tuple[UOp, ...]: return (zero(),)*axis+(rng,)+(zero(),)*(ndim-axis-1)

def vmapin_axis(self:UOp, rng:UOp, axis:int) -> UOp:
  """Like vmapin: (3, 6) with axis 0 -> (6,)."""
  check_device(self)
  shape = self.shape
  return made(Ops.VMAPIN, self, axis_varg(rng, axis, len(shape)), shape[:axis]+shape[axis+1:])

def vmapout_axis(self:UOp, rng:UOp, axis:int) -> UOp:
  """Like vmapout: (6,) with axis 0 -> (3, 6)."""
  shape = self.shape
  return made(Ops.VMAPOUT, self, axis_varg(rng, axis, len(shape)+1), (*shape[:axis], range_size(rng), *shape[axis:]))

def made(op:Ops, u:UOp, varg:tuple, shape:tuple) -> UOp:
  ret = UOp(op, u.dtype, (u,)+varg)
  # the shape is known and the varg was checked: store it, so that _shape need not repeat that
  vars(ret)[SHAPE] = shape
  return ret

NO_RANGES: dict[UOp, None] = {}

def _ranges(self:UOp) -> dict[UOp, None]:
  """Stock's property, faster: nodes with equal ranges share one dict. Each vmap needs it for the whole graph of its function."""
  opened: dict[UOp, None] = NO_RANGES
  for s in self.src:
    below = {s:None, **s.__dict__[RANGES]} if s.op is Ops.RANGE else s.__dict__[RANGES]
    if not below or below is opened: continue
    opened = {**opened, **below} if opened else below
  if not opened or (self.op not in ops.range_start and self.op is not Ops.AFTER): return opened
  # the ranges that end here: a RANGE itself, but not the ranges of its size; for any other source all its ranges
  ended = {r for er in self.ended_ranges for r in ((er,) if er.op is Ops.RANGE else er.ranges)}
  return {r:None for r in opened if r not in ended}

@functools.cache
def freeze(pattern:UPat, function:Callable) -> Callable:
  """Returns the function of a rule with the globals that it names now, as a matcher of tinygrad keeps it."""
  return FunctionType(*ops.deconstruct_function(function))

# to compile a rule takes as long as to interpret it about a hundred times
COMPILED_AFTER = 100

def defer(pattern:UPat, function:Callable, entry:list) -> Callable:
  """Returns a match that interprets its rule, and compiles it when it is often tried; then it takes its own place in the rule's entry."""
  tries, interpret = 0, None
  def match(uop:UOp, ctx):
    nonlocal tries, interpret
    tries += 1
    if interpret is None: interpret = ops.upat_interpret(pattern, function)
    if tries < COMPILED_AFTER: return interpret(uop, ctx)
    from tinygrad.uop.upat import upat_compile
    entry[1] = upat_compile(pattern, function) or interpret
    return entry[1](uop, ctx)
  return match

def build_matcher(self, patterns, compiled=bool(getenv("UPAT_COMPILE", 1))) -> None:
  """Builds a PatternMatcher that compiles only rules that are tried often: to compile all is half of the time of `import tinygrad`, and a short program
  tries less than half of the rules, few of them often."""
  self.patterns = [(p, FunctionType(*fxn) if isinstance(fxn, tuple) else fxn) for p,fxn in patterns]
  self.pdict = {}
  for p,fxn in self.patterns:
    frozen = freeze(p, fxn)
    entry = [p, None, p.early_reject]
    entry[1] = defer(p, frozen, entry) if compiled else ops.upat_interpret(p, frozen)
    for op in p.op: self.pdict.setdefault(op, []).append(entry)

def patch(module:ModuleType) -> None:
  global stock_shape
  with Changes("vmap-ops") as changes:
    changes.replace(module.PatternMatcher, "__init__", build_matcher)
    stock_shape = changes.replace_value(UOp, "_shape", recursive_property, lambda _: KnownProperty(_shape)).fxn
    changes.replace_value(UOp, "_ranges", recursive_property, lambda _: KnownProperty(_ranges))
    changes.replace_value(UOp, "_device", recursive_property, lambda stock: KnownProperty(stock.fxn))
    changes.add(UOp, "vmapin", vmapin)
    changes.add(UOp, "vmapout", vmapout)
    # VMAPOUT closes its RANGEs: later nodes are outside the scope
    changes.add_entry(module, "range_start", Ops.VMAPOUT, 1)
