"""How the overlay changes what is there: checks the shape of a thing, then rebinds it."""
from __future__ import annotations
import inspect
from typing import Any, Callable

class UnknownShape(ImportError):
  """A thing that the overlay replaces is not what tinygrad 0.12.0 has there."""

def expect(owner:Any, name:str, *parameters:str) -> Any:
  """Returns `owner.name` after checking that it is a callable with just these parameter names."""
  found = getattr(owner, name, None)
  have = tuple(inspect.signature(found).parameters) if callable(found) else None
  if have != parameters:
    raise UnknownShape(f"{owner.__name__}.{name} is not what tinygrad 0.12.0 has there: expected parameters {parameters}, found {have}")
  return found

def replace_function(owner:Any, name:str, new:Callable, *parameters:str) -> Callable:
  """Rebinds `owner.name`, of a module or a class, after checking its parameters. Returns what was there."""
  old = expect(owner, name, *parameters)
  setattr(owner, name, new)
  return old

def replace_rules(matcher:Any, is_old:Callable[[Callable], bool], new:Callable) -> Any:
  """Returns a PatternMatcher like `matcher` in which each rule whose function `is_old` accepts calls `new` instead.

  A PatternMatcher freezes its functions and their globals when it is built, so a rebound name changes no matcher. The
  new function must be a plain module-level function: closures are refused and wrappers bypassed.
  """
  if not any(is_old(function) for _,function in matcher.patterns):
    raise UnknownShape("a rule that the overlay replaces is not in its PatternMatcher: this is not tinygrad 0.12.0")
  return type(matcher)([(pattern, new if is_old(function) else function) for pattern,function in matcher.patterns])
