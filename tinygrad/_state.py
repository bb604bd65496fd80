"""The overlay's state in this process: which patches are on, and who watches.

Both are set before tinygrad is imported and not changed after that: tinygrad's schedule cache does not know
about patches, so another state is another process.
"""
from __future__ import annotations
from typing import Any, Callable

patches: frozenset[str] = frozenset()
patches_spec: str = ""

# Who is told each decision; see vmapdbg/child/record/observer.py. The overlay calls it and never needs an answer: the decisions are the same
# with `nobody`, whose methods do nothing. The installer sets both.
nobody: Any = None
observer: Any = None

# returns the renderer whose limits the scheduler keeps to. None: that of the device; the tool renders for a target that need not be there.
find_renderer: Callable[[], Any]|None = None

def start(spec:str, nobody_there:Any) -> None:
  global patches, patches_spec, nobody, observer
  nobody = observer = nobody_there
  patches, patches_spec = frozenset(name for name in spec.split(",") if name not in ("", "none")), spec
