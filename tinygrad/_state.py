"""The overlay's state in this process: which patches are on, and who watches.

Both are set before tinygrad is imported and not changed after that: tinygrad's schedule cache does not know
about patches, so another state is another process.
"""
from __future__ import annotations
from typing import Any, Callable

patches: frozenset[str] = frozenset()
patches_spec: str = ""

# the tool's observer, or None. It has one method for each decision the overlay reports; see vmapdbg/child/record/recorder.py.
# The overlay calls it and never needs an answer: with None the decisions are the same.
observer: Any = None

# returns the renderer whose limits the scheduler keeps to. None: that of the device; the tool renders for a target that need not be there.
find_renderer: Callable[[], Any]|None = None

def set_patches(spec:str) -> None:
  global patches, patches_spec
  patches, patches_spec = frozenset(name for name in spec.split(",") if name), spec
