"""Which of tinygrad's methods the user called: the frames that run now, up to his own."""
from __future__ import annotations
import sys

# who observes the methods stands between them, too
INSIDE = ("tinygrad.", "tinygrad_overlay.", "contextlib", "functools", "vmapdbg.")

def called_methods() -> list[str]:
  """The Tensor methods that run now, and TinyJit; the one that the user called last.

  The note of who makes an op (_METADATA) would say it too, but not for TinyJit, and only the one that the user called.
  """
  frame, names = sys._getframe(1), []
  while frame is not None and (module:=frame.f_globals.get("__name__", "")).startswith(INSIDE):
    name = frame.f_code.co_name
    if module == "tinygrad.tensor" and hasattr(frame.f_globals["Tensor"], name): names.append(f"Tensor.{name}")
    if module == "tinygrad.engine.jit" and name == "__call__": names.append("TinyJit")
    frame = frame.f_back
  return names
