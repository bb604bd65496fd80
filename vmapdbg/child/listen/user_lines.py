"""Which frames and files are the user's: not tinygrad's, the standard library's or vmapdbg's."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Mapping
from types import FrameType

from vmapdbg.child.listen.records import Origin

_INTERNAL: list[str] = [os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep]
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_INSTALLED = os.path.join(_STDLIB, "site-packages") + os.sep
# a frame with this name is an import: what a module makes at that time belongs to no line
_IMPORT = "<frozen importlib._bootstrap>"


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
    """Returns `file:number` of the innermost frame that is the user's, from `frame` or from here outwards; None if no
    frame is, and while a module is imported."""
    origin = find_origin({}, frame or sys._getframe(1))
    return origin and origin.line


def find_origin(methods: Mapping[str, str], frame: FrameType | None) -> Origin | None:
    """Returns that line, and the outermost method of Tensor inside of it. `methods` has the names of methods by the
    qualified names of their code."""
    method = None
    while frame is not None:
        code = frame.f_code
        filename = code.co_filename
        if filename == _IMPORT:
            return None
        file = find_user_file(filename)
        if file is not None and (filename[0] != "<" or _is_users_text(frame)):
            return _make_origin(file, frame.f_lineno, method)
        method = methods.get(code.co_qualname, method)
        frame = frame.f_back
    return None


def _is_users_text(frame: FrameType) -> bool:
    """Whether code without a file is the user's, as its module is; a compiled pattern of tinygrad has no module."""
    return not frame.f_globals.get("__name__", "tinygrad").startswith("tinygrad")


@functools.cache
def _make_origin(file: str, line: int, method: str | None) -> Origin:
    # a few for thousands of UOps
    return Origin(f"{file}:{line}", method)
