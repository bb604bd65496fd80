"""Changes tinygrad: the changes of one module are declared in a `with Changes(...)` block, in an overlay file's `patch(module)` or by an observer.

Each declaration checks tinygrad's current definition. Only the end of the block applies the changes, so an unknown definition leaves nothing half
patched. This module imports nothing from the overlay, because the tool's observers also use it with stock tinygrad."""
from __future__ import annotations
import functools, inspect
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Callable, Iterable

class UnknownShape(ImportError):
  """A definition to be replaced differs from tinygrad 0.12.0's."""

@dataclass(frozen=True)
class Change:
  """One applied change: `by` which patches or observer, `where` (module, or module and class), the name, the kind of change, and the definition that
  was expected there."""
  by: str
  where: str
  name: str
  kind: str
  expected: str
  def __str__(self) -> str: return f"{self.where}.{self.name}  {self.kind}  expected {self.expected}  by {self.by}"

# every change applied in this process, in order
made: dict[Change, None] = {}

class Changes:
  """The changes of one module or one observer. Each method declares a change, and raises UnknownShape if tinygrad's definition is unexpected."""
  def __init__(self, by:str):
    # the patches or the observer whose changes are declared now
    self.by = by
    self.declared: list[tuple[Change, Callable[[], None]]] = []  # each change, and the function that applies it
    self.matchers: dict[tuple[int, str], Any] = {}  # changed matchers by owner and name: several rules of one matcher may change
    # replaced functions in rules, see replace_rule. They change at the end of the block, because a matcher also freezes the globals of the patch
    self.in_rules: list[tuple[str, Any, str, Callable, Callable]] = []
    self.rebound: list[tuple[Any, str, Any, Any]] = []  # owner, name, old value, new value

  def __enter__(self) -> Changes: return self
  def __exit__(self, error:type[BaseException]|None, *_) -> None:
    if error is not None: return
    for self.by,owner,name,old,new in self.in_rules: self.replace_rule(owner, name, old, new)
    for change,rebind in self.declared:
      rebind()
      made[change] = None

  # *** functions and methods, known by the names of their parameters

  def expect(self, owner:Any, name:str, *parameters:str) -> Any:
    """Returns `owner.name` without replacing it: a callable with exactly these parameters, ignoring decorators."""
    found = getattr(owner, name, None)
    have = find_parameters(found)
    shape = describe(owner, name) if have is None else list_parameters(have)
    check(have == parameters, owner, name, list_parameters(parameters), shape)
    return found

  def replace(self, owner:Any, name:str, new:Callable, *parameters:str, rules:Iterable[str]=()) -> Any:
    """Replaces a function or a method by `new`, which has the same parameters, or else the expected `parameters` are given. Also in the rules of
    `owner`'s matchers `rules`. Returns the old one."""
    parameters = parameters or find_parameters(new) or ()
    old = self.expect(owner, name, *parameters)
    self.declare(owner, name, "replaced", list_parameters(parameters), new)
    self.in_rules += [(self.by, owner, matcher, old, new) for matcher in rules]
    return old

  def wrap(self, owner:Any, name:str, around:Callable, *parameters:str) -> None:
    """For observers: `around` is called with the stock function and its arguments; it calls the function and returns its result."""
    stock = self.expect(owner, name, *parameters)
    @functools.wraps(stock)
    def calling(*args, **kwargs): return around(stock, *args, **kwargs)
    self.declare(owner, name, "wrapped", list_parameters(parameters), calling)

  # *** values, known by their type

  def replace_value(self, owner:Any, name:str, kind:type, make:Callable[[Any], Any]) -> Any:
    """Replaces a value by `make(value)`. Returns the old value."""
    old = getattr(owner, name, None)
    check(isinstance(old, kind), owner, name, kind.__name__, describe(owner, name))
    self.declare(owner, name, "value", kind.__name__, make(old))
    return old

  def add(self, owner:Any, name:str, new:Any, bind:Callable[[Any, str, Any], None]|None=None) -> None:
    """Adds a name that tinygrad does not have. Pass `bind` if it takes more than setting the attribute."""
    check(not hasattr(owner, name), owner, name, "nothing", describe(owner, name))
    self.declare(owner, name, "added", "nothing", new, bind)

  def add_entry(self, owner:Any, name:str, key:Any, value:Any) -> None:
    """Adds a new key to a dict, in place."""
    found: Any = getattr(owner, name, None)
    expected = f"dict without {key}"
    check(isinstance(found, dict) and key not in found, owner, name, expected, describe(owner, name))
    self.declare(owner, name, "entry", expected, value, lambda *_: found.__setitem__(key, value))

  # *** rules of a PatternMatcher. It freezes its functions and their globals when it is built, so a changed rule needs a new matcher

  def replace_rule(self, owner:Any, name:str, old:Callable, new:Callable) -> Any:
    """Replaces `old` by `new` in each rule that calls it, directly or in a lambda. Returns the new matcher. `new` must be a plain module-level
    function: matchers refuse closures and bypass wrappers."""
    def is_old(function:Callable) -> bool: return function is old or (function.__name__ == "<lambda>" and old.__name__ in function.__code__.co_names)
    expected = f"a PatternMatcher with a rule that calls {old.__name__}"
    matcher = self.find_matcher(owner, name, expected)
    check(any(is_old(function) for _,function in matcher.patterns), owner, name, expected, "one with no such rule")
    return self.declare(owner, name, f"rule {old.__name__}", expected, replace_rules(matcher, is_old, new))

  def add_rules(self, owner:Any, name:str, rules:Any, at:int|None=None) -> Any:
    """Inserts the matcher `rules` before rule number `at` (None: after the last rule). Returns the new matcher."""
    expected = "a PatternMatcher" if not at else f"a PatternMatcher with {at} or more rules"
    matcher = self.find_matcher(owner, name, expected)
    at = len(matcher.patterns) if at is None else at
    check(len(matcher.patterns) >= at, owner, name, expected, f"one with {len(matcher.patterns)}")
    return self.declare(owner, name, "rules added", expected, type(matcher)(matcher.patterns[:at]+rules.patterns+matcher.patterns[at:]))

  def find_matcher(self, owner:Any, name:str, expected:str) -> Any:
    found = self.matchers.get((id(owner), name), getattr(owner, name, None))
    # not isinstance: tinygrad.uop.ops is not imported yet when the first changes are declared
    check(hasattr(found, "patterns"), owner, name, expected, describe(owner, name))
    return found

  def declare(self, owner:Any, name:str, kind:str, expected:str, new:Any, bind:Callable[[Any, str, Any], None]|None=None) -> Any:
    self.declared.append((Change(self.by, locate(owner), name, kind, expected), lambda: (bind or self.set_attribute)(owner, name, new)))
    if kind.startswith("rule"): self.matchers[(id(owner), name)] = new
    return new

  def set_attribute(self, owner:Any, name:str, new:Any) -> None:
    # not getattr: it unpacks a staticmethod and finds inherited names
    self.rebound.append((owner, name, vars(owner).get(name, NOTHING), new))
    setattr(owner, name, new)

  def undo(self) -> None:
    """Restores the old values, except where other code has replaced ours since. It does not undo `add_entry` or an `add` with `bind`."""
    for owner,name,old,new in reversed(self.rebound):
      if vars(owner).get(name) is not new: continue
      if old is NOTHING: delattr(owner, name)
      else: setattr(owner, name, old)
    for change,_ in self.declared: made.pop(change, None)
    self.rebound.clear()

NOTHING = object()

def check(fits:bool, owner:Any, name:str, expected:str, found:str) -> None:
  if not fits: raise UnknownShape(f"{locate(owner)}.{name} is not what tinygrad 0.12.0 has there: expected {expected}, found {found}")

def locate(owner:Any) -> str: return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else owner.__name__
def describe(owner:Any, name:str) -> str: return type(getattr(owner, name)).__name__ if hasattr(owner, name) else "nothing"
def list_parameters(names:Iterable[str]) -> str: return f"parameters ({', '.join(names)})"

# the names that tinygrad's decorators without functools.wraps give to the decorated function
DECORATED = ("fxn", "func", "fn")

def find_parameters(function:Any) -> tuple[str, ...]|None:
  """Returns the names of the parameters, seen through decorators with `*args, **kwargs`; None if they cannot be known."""
  if not callable(function): return None
  try: signature = inspect.signature(function:=inspect.unwrap(function))
  except ValueError: return None  # written in C
  kinds = [parameter.kind for parameter in signature.parameters.values()]
  if kinds == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD] and isinstance(function, FunctionType):
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    inner = next((cells[name].cell_contents for name in DECORATED if name in cells), None)
    if inner is not None: return find_parameters(inner)
  return tuple(signature.parameters)

def replace_rules(matcher:Any, is_old:Callable[[Callable], bool], new:Callable) -> Any:
  """Returns a PatternMatcher like `matcher` in which each rule whose function `is_old` accepts calls `new` instead."""
  return type(matcher)([(pattern, new if is_old(function) else function) for pattern,function in matcher.patterns])
