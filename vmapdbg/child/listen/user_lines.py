"""Which line of the user's code made a UOp: runs in the child.

tinygrad notes for each UOp the Tensor method that made it (`Metadata`), and carries that note through its rewrites.
We put the user's line into the note's `caller`, which tinygrad leaves empty unless TRACEMETA is 2.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Callable
from types import FrameType, FunctionType, ModuleType
from typing import Any

from vmapdbg.install.overlay import load_patching

_INTERNAL: list[str] = [os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep]
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_INSTALLED = os.path.join(_STDLIB, "site-packages") + os.sep


def set_internal_folders(*folders: str) -> None:
    """Frames of files below these folders are not the user's."""
    _INTERNAL.extend(os.path.abspath(folder) + os.sep for folder in folders)
    find_user_file.cache_clear()


@functools.cache
def find_user_file(filename: str) -> str | None:
    """Returns the name to show for a user's file, relative below the working directory, or None for other code."""
    if filename.startswith("<frozen"):
        return None
    if filename.startswith("<"):
        return filename
    path = os.path.abspath(filename)
    if any(path.startswith(folder) for folder in _INTERNAL):
        return None
    if path.startswith(_STDLIB) and not path.startswith(_INSTALLED):
        return None
    return path.removeprefix(os.getcwd() + os.sep)


def find_user_line(frame: FrameType | None = None) -> str | None:
    """Returns `file:number` of the innermost frame that is the user's, or None: of those that call this function, or
    that another frame is called from."""
    frame = frame or sys._getframe(1)
    while frame is not None:
        file = find_user_file(frame.f_code.co_filename)
        if file is not None:
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def note_lines(tensor_module: ModuleType) -> None:
    """Puts a wrapper in the place of the one by which tinygrad notes a method of Tensor, so that its note has the
    user's line. Raises UnknownShape.

    With TRACEMETA=0 tinygrad notes nothing and there are no lines.
    """
    tensor = tensor_module.Tensor
    with load_patching().Changes("lines of the user") as changes:
        wrap = changes.expect(tensor_module, "_metadata_wrapper", "fn")
        note = changes.expect(tensor_module, "Metadata", "name", "caller", "backward")
        # all its wrappers have this code; what is wrapped by somebody else, as by the overlay, stays as it is
        wrapper = wrap(note_lines).__code__
        noting = functools.partial(_noting, tensor_module._METADATA, note)
        # a destructor makes no node, and there are many
        for name in [name for name in vars(tensor) if name != "__del__"]:
            if getattr(getattr(tensor, name), "__code__", None) is wrapper:
                changes.replace_value(tensor, name, FunctionType, noting)


def _noting(current: Any, note: Any, wrapped: Any) -> Callable[..., Any]:
    method = wrapped.__wrapped__

    @functools.wraps(method)
    def noting(*args: Any, **kwargs: Any) -> Any:
        # only the outermost method is the user's call
        if current.get() is not None:
            return method(*args, **kwargs)
        current.set(note(name=method.__name__, caller=find_user_line() or ""))
        try:
            return method(*args, **kwargs)
        finally:
            current.set(None)

    return noting
