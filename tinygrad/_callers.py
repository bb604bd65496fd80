"""Finds the tinygrad methods that the user called: the frames on the stack, up to the user's frame."""
from __future__ import annotations
import sys

# an observer's frames may be between tinygrad's frames
INSIDE = ("tinygrad.", "tinygrad_overlay.", "contextlib", "functools", "vmapdbg.")

def called_methods() -> list[str]:
  """Returns the Tensor methods (and TinyJit) on the stack, innermost first: the last name is the method that the user called.

  tinygrad's _METADATA has only the method that the user called, and never TinyJit.
  """
  frame, names = sys._getframe(1), []
  while frame is not None and (module:=frame.f_globals.get("__name__", "")).startswith(INSIDE):
    name = frame.f_code.co_name
    if module == "tinygrad.tensor" and hasattr(frame.f_globals["Tensor"], name): names.append(f"Tensor.{name}")
    if module == "tinygrad.engine.jit" and name == "__call__": names.append("TinyJit")
    frame = frame.f_back
  return names
