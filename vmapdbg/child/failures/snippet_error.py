"""How a snippet ended when it did not end well: its own traceback on stderr, and its error for the Capture."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Iterator
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
    """Prints the snippet's own traceback, and returns what it says, and what tinygrad was doing where it is
    tinygrad's. `nodes` are those of the last schedule."""
    print_traceback(error)
    device = find_closed_device(error)
    if device is not None:
        print(advise_target(device), file=sys.stderr)
    frames = [frame for frame in reversed(traceback.extract_tb(error.__traceback__)) if is_users(frame.filename)]
    # code that was never a file may be what tinygrad compiled
    frames.sort(key=lambda frame: frame.filename.startswith("<"))
    line = next((f"{frame.filename}:{frame.lineno}" for frame in frames), None)
    if isinstance(error, SyntaxError) and error.filename is not None:
        line = f"{error.filename}:{error.lineno}"
    return model.SnippetError(type(error).__name__, first_line(error), line, diagnose(error, nodes))


def is_users(file: str) -> bool:
    return find_user_file(file) is not None and not _is_ours(file)


def print_traceback(error: BaseException) -> None:
    """Has Python print the traceback, without the tool's frames: as it does without the tool, cut to its last 1,000
    lines of code where a recursion never ended."""
    shown = list(_walk_chain(error, set()))
    kept = [one.__traceback__ for one in shown]
    for one in shown:
        one.__traceback__ = strip_own_frames(one.__traceback__)
    try:
        sys.__excepthook__(type(error), error, error.__traceback__)
    finally:
        # what diagnoses the error looks at all of them
        for one, whole in zip(shown, kept, strict=True):
            one.__traceback__ = whole


def _walk_chain(error: BaseException | None, seen: set[int]) -> Iterator[BaseException]:
    """Yields an error and those that it comes from; a chain may go in a circle."""
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    yield error
    yield from _walk_chain(error.__cause__, seen)
    yield from _walk_chain(error.__context__, seen)


def strip_own_frames(whole: TracebackType | None) -> TracebackType | None:
    """Returns a traceback without the frames of the tool and the overlay."""
    kept: list[TracebackType] = []
    while whole is not None:
        if not _is_ours(whole.tb_frame.f_code.co_filename):
            kept.append(whole)
        whole = whole.tb_next
    stripped = None
    for one in reversed(kept):
        stripped = TracebackType(stripped, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return stripped


@functools.cache
def _is_ours(file: str) -> bool:
    folders = (Path(__file__).parents[2], overlay.overlay_dir())
    return os.path.abspath(file).startswith(tuple(f"{folder.resolve()}{os.sep}" for folder in folders))


def find_closed_device(error: BaseException) -> str | None:
    """Returns the device of tinygrad that could not be opened, where that is what the error is about."""
    found = error.__traceback__
    while found is not None:
        code = found.tb_frame.f_code
        if code.co_name.endswith(_OPENING) and code.co_filename.endswith(f"tinygrad{os.sep}device.py"):
            return str(found.tb_frame.f_locals.get("ix"))
        found = found.tb_next
    return None


def advise_target(device: str) -> str:
    """Returns the sentence that says how to see kernels of a device that is not there."""
    name = device.partition(":")[0]
    target = target_of(name)
    told = f"vmapdbg: tinygrad cannot open the device {device} here"
    if target not in TARGETS:
        return f"{told}; without it, --target shows the source for {', '.join(TARGETS)} on any machine"
    return f"{told}; run it on another device, and --target {target} shows its source for {device} on any machine"
