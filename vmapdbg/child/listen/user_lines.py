"""Which frames and files are the user's: runs in the child."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from types import FrameType

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
