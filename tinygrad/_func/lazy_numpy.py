"""Imports numpy on first use: only the sparse part of tinygrad.func needs it."""
from __future__ import annotations
import importlib
from typing import Any

class LazyNumpy:
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
