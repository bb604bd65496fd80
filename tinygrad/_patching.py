"""How tinygrad is changed: what is replaced is declared, the shape of each thing is checked, then all of them are rebound.

The changes of one module are declared in a `with Changes(...)` block, in an overlay file's `patch(module)` or by who observes tinygrad. Each
declaration checks what is there; only the end of the block rebinds, so that a thing of an unknown shape leaves nothing half patched. This module
needs nothing else of the overlay: the tool's observers use it where stock tinygrad runs, too.
"""
from __future__ import annotations
import functools, inspect
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Callable, Iterable

class UnknownShape(ImportError):
  """A thing that is to be replaced is not what tinygrad 0.12.0 has there."""

@dataclass(frozen=True)
class Change:
  """One thing that was changed: `by` which patches or observer, `where` (module, or module and class), its name, the kind of change, and the
  shape that was expected there."""
  by: str
  where: str
  name: str
  kind: str
  expected: str
  def __str__(self) -> str: return f"{self.where}.{self.name}  {self.kind}  expected {self.expected}  by {self.by}"

# all that was changed in this process, in order
made: dict[Change, None] = {}

class Changes:
  """The changes that one module, or one observer, makes. Each method declares one, and raises UnknownShape where tinygrad has another thing there."""
  def __init__(self, by:str):
    # whose changes are declared now: patches of the overlay, or an observer
    self.by = by
    # what to call for each change when all are declared
    self.declared: list[tuple[Change, Callable[[], None]]] = []
    # matchers that will be rebound, by owner and name: several rules of one may change
    self.matchers: dict[tuple[int, str], Any] = {}
    # owner, name, what it was, what it is now
    self.rebound: list[tuple[Any, str, Any, Any]] = []

  def __enter__(self) -> Changes: return self
  def __exit__(self, error:type[BaseException]|None, *_) -> None:
    if error is not None: return
    for change,rebind in self.declared:
      rebind()
      made[change] = None

  # *** functions and methods, known by the names of their parameters

  def expect(self, owner:Any, name:str, *parameters:str) -> Any:
    """Returns `owner.name`, which is used and not replaced: a callable with just these parameters, decorators apart."""
    found = getattr(owner, name, None)
    have = find_parameters(found)
    shape = describe(owner, name) if have is None else list_parameters(have)
    check(have == parameters, owner, name, list_parameters(parameters), shape)
    return found

  def replace(self, owner:Any, name:str, new:Callable, *parameters:str) -> Any:
    """`new` takes the place of a function or a method. Returns what is there."""
    old = self.expect(owner, name, *parameters)
    self.declare(owner, name, "replaced", list_parameters(parameters), lambda: self.set_attribute(owner, name, new))
    return old

  def wrap(self, owner:Any, name:str, around:Callable, *parameters:str) -> None:
    """For who observes: `around` is called with the function or method that is there and the arguments, calls it and returns what it returns."""
    stock = self.expect(owner, name, *parameters)
    @functools.wraps(stock)
    def calling(*args, **kwargs): return around(stock, *args, **kwargs)
    self.declare(owner, name, "wrapped", list_parameters(parameters), lambda: self.set_attribute(owner, name, calling))

  # *** values, known by their type

  def replace_value(self, owner:Any, name:str, kind:type, make:Callable[[Any], Any]) -> Any:
    """What `make` returns for a value takes its place. Returns what is there."""
    old = getattr(owner, name, None)
    check(isinstance(old, kind), owner, name, kind.__name__, describe(owner, name))
    self.declare(owner, name, "value", kind.__name__, lambda: self.set_attribute(owner, name, make(old)))
    return old

  def add(self, owner:Any, name:str, new:Any, bind:Callable[[Any, str, Any], None]|None=None) -> None:
    """tinygrad has nothing of this name. `bind` puts it there, where it takes more than to set the attribute."""
    check(not hasattr(owner, name), owner, name, "nothing", describe(owner, name))
    self.declare(owner, name, "added", "nothing", lambda: (bind or self.set_attribute)(owner, name, new))

  def add_entry(self, owner:Any, name:str, key:Any, value:Any) -> None:
    """A key that the dict has not gets a value; the dict stays the same object."""
    found = getattr(owner, name, None)
    expected = f"dict without {key}"
    check(isinstance(found, dict) and key not in found, owner, name, expected, describe(owner, name))
    self.declare(owner, name, "entry", expected, lambda: found.__setitem__(key, value))

  # *** rules of a PatternMatcher. It freezes its functions and their globals when it is built: a rebound name changes no matcher, so it is built anew

  def replace_rule(self, owner:Any, name:str, old:Callable, new:Callable) -> Any:
    """`new` takes the place of `old` in each rule that calls it, itself or in a lambda. Returns the new matcher.

    `new` must be a plain module-level function: closures are refused and wrappers bypassed.
    """
    def is_old(function:Callable) -> bool: return function is old or (function.__name__ == "<lambda>" and old.__name__ in function.__code__.co_names)
    expected = f"a PatternMatcher with a rule that calls {old.__name__}"
    matcher = self.find_matcher(owner, name, expected)
    check(any(is_old(function) for _,function in matcher.patterns), owner, name, expected, "one with no such rule")
    return self.rebuild(owner, name, f"rule {old.__name__}", expected, replace_rules(matcher, is_old, new))

  def add_rules(self, owner:Any, name:str, rules:Any, at:int|None=None) -> Any:
    """The matcher `rules` stands before the rule with the number `at`, None: after the last. Returns the new matcher."""
    expected = "a PatternMatcher" if not at else f"a PatternMatcher with {at} or more rules"
    matcher = self.find_matcher(owner, name, expected)
    at = len(matcher.patterns) if at is None else at
    check(len(matcher.patterns) >= at, owner, name, expected, f"one with {len(matcher.patterns)}")
    return self.rebuild(owner, name, "rules added", expected, type(matcher)(matcher.patterns[:at]+rules.patterns+matcher.patterns[at:]))

  def find_matcher(self, owner:Any, name:str, expected:str) -> Any:
    found = self.matchers.get((id(owner), name), getattr(owner, name, None))
    # not by its class: tinygrad.uop.ops is not imported yet when the first things are changed
    check(hasattr(found, "patterns"), owner, name, expected, describe(owner, name))
    return found

  def rebuild(self, owner:Any, name:str, kind:str, expected:str, matcher:Any) -> Any:
    self.matchers[(id(owner), name)] = matcher
    self.declare(owner, name, kind, expected, lambda: self.set_attribute(owner, name, matcher))
    return matcher

  # *** rebinding

  def declare(self, owner:Any, name:str, kind:str, expected:str, rebind:Callable[[], None]) -> None:
    self.declared.append((Change(self.by, locate(owner), name, kind, expected), rebind))

  def set_attribute(self, owner:Any, name:str, new:Any) -> None:
    # not by getattr, which would unpack a staticmethod and find what is inherited
    self.rebound.append((owner, name, vars(owner).get(name, NOTHING), new))
    setattr(owner, name, new)

  def undo(self) -> None:
    """Puts back what was there, except where somebody else has rebound it since. Not for `add_entry`, and `add` with a `bind` of its own."""
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

# what tinygrad's decorators that do not use functools.wraps call the function they stand around
DECORATED = ("fxn", "func", "fn")

def find_parameters(function:Any) -> tuple[str, ...]|None:
  """Returns the names of the parameters, seen through decorators that take `*args, **kwargs`; None for what has none that can be known."""
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
