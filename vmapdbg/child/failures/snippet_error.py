"""Reports how a snippet failed: its traceback goes to stderr, its error to the Capture."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from pathlib import Path
from types import TracebackType

from vmapdbg.child.failures.diagnose import diagnose
from vmapdbg.child.failures.known_nodes import KnownNodes
from vmapdbg.child.listen.user_lines import find_user_file
from vmapdbg.install import overlay
from vmapdbg.install.targets import TARGETS, target_of
from vmapdbg.model import capture as model
from vmapdbg.model.wording import first_line

_OPENING = "get_canonicalized_item"
"""The function of tinygrad's device.py that opens a device, on every release."""


def explain_exit(ended: SystemExit) -> model.SnippetError | None:
    """Returns the error of an exit with another status than 0."""
    status = ended.code
    if status in (None, 0):
        return None
    # as Python does: a message goes to stderr, and the status is 1
    if not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    return model.SnippetError("SystemExit", str(status), None)


def explain_error(error: BaseException, nodes: KnownNodes) -> model.SnippetError:
    """Prints the snippet's traceback, and returns the error, with what tinygrad was doing if it raised the error.
    `nodes` are the nodes of the last schedule."""
    print_traceback(error)
    device = find_closed_device(error)
    if device is not None:
        print(advise_target(device), file=sys.stderr)
    frames = [
        frame
        for frame in reversed(traceback.extract_tb(error.__traceback__))
        if find_user_file(frame.filename) is not None and not _is_ours(frame.filename)
    ]
    # tinygrad compiles code without a file, too
    frames.sort(key=lambda frame: frame.filename.startswith("<"))
    line = next((f"{frame.filename}:{frame.lineno}" for frame in frames), None)
    if isinstance(error, SyntaxError) and error.filename is not None:
        line = f"{error.filename}:{error.lineno}"
    return model.SnippetError(type(error).__name__, first_line(error), line, diagnose(error, nodes))


def print_traceback(error: BaseException) -> None:
    """Prints the traceback as Python does, without the frames of the tool."""
    # error -> its whole traceback; the causes may form a circle
    whole: dict[BaseException, TracebackType | None] = {}
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is not None and one not in whole:
            whole[one] = one.__traceback__
            todo += [one.__cause__, one.__context__]
    for one in whole:
        one.__traceback__ = strip_our_frames(one.__traceback__)
    try:
        sys.__excepthook__(type(error), error, error.__traceback__)
    finally:
        # `diagnose` needs all frames
        for one, frames in whole.items():
            one.__traceback__ = frames


def strip_our_frames(whole: TracebackType | None) -> TracebackType | None:
    """Returns a traceback without the frames of the tool and the overlay."""
    links: list[TracebackType] = []
    while whole is not None:
        links.append(whole)
        whole = whole.tb_next
    stripped = None
    for one in reversed(links):
        if not _is_ours(one.tb_frame.f_code.co_filename):
            stripped = TracebackType(stripped, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return stripped


@functools.cache
def _is_ours(file: str) -> bool:
    folders = (Path(__file__).parents[2], overlay.overlay_dir())
    return os.path.abspath(file).startswith(tuple(f"{folder.resolve()}{os.sep}" for folder in folders))


def find_closed_device(error: BaseException) -> str | None:
    """Returns the device of tinygrad that could not be opened, if the error is about one."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if code.co_name.endswith(_OPENING) and code.co_filename.endswith(f"tinygrad{os.sep}device.py"):
            return str(frame.f_locals.get("ix"))
    return None


def advise_target(device: str) -> str:
    """Returns the sentence that says how to see kernels of a missing device."""
    target = target_of(device.partition(":")[0])
    closed = f"vmapdbg: tinygrad cannot open the device {device} here"
    if target not in TARGETS:
        return f"{closed}; without it, --target shows the source for {', '.join(TARGETS)} on any machine"
    return f"{closed}; run it on another device, and --target {target} shows its source for {device} on any machine"
