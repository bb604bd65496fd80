"""Memory that nothing has written yet. While `check` watches a snippet, such memory has a pattern, in place of what
chance or an earlier kernel left there. Where a buffer still has the pattern when it is read, nothing was written."""

from collections.abc import Callable
from typing import Any

import numpy as np

from vmapdbg.child.listen.guard import watching
from vmapdbg.reference.value import Mask

_DEVICES = {"CPU", "METAL"}  # devices whose memory Python can write to


def _make_pattern() -> bytes:
    """Returns a page of the pattern: a number between 0.125 and 2 in each dtype of floats but double, where it is
    small, and a large one in dtypes of integers."""
    page = np.random.default_rng(0).integers(0, 256, 4096, np.uint8)
    page[1::2] = 0x3E
    return page.tobytes()


_PATTERN = _make_pattern()


def watch_allocations() -> None:
    """Fills each buffer of a device in `_DEVICES` that tinygrad allocates. Raises UnknownShape."""
    from tinygrad.device import Buffer

    with watching("memory that nothing has written") as changes:
        changes.wrap(Buffer, "allocate", _on_allocate, "self", "opaque", "external_ptr")


def _on_allocate(allocate: Callable[..., Any], buffer: Any, *args: Any, **options: Any) -> Any:
    made = allocate(buffer, *args, **options)
    # a view has the memory of its base, and memory with options is somebody else's, or must be zero
    if buffer.base is buffer and buffer.options is None and not args and not options:
        fill(buffer)
    return made


def fill(buffer: Any) -> None:
    """Fills an allocated buffer, if Python can write to the memory of its device."""
    if buffer.device.split(":")[0] in _DEVICES:
        memory = buffer.allocator._as_buffer(buffer._buf)
        memory[: buffer.nbytes] = make_filling(buffer.nbytes)


def make_filling(size: int) -> bytes:
    """Returns what so many bytes of new memory hold."""
    return (_PATTERN * (size // len(_PATTERN) + 1))[:size]


def find_unwritten(data: bytes, itemsize: int) -> Mask:
    """Returns which elements of a buffer have the pattern. Elements of one or two bytes are looked at in groups of
    eight bytes: each of them could have it by chance."""
    step = 4 if itemsize == 4 else 8
    groups = np.frombuffer(data, f"u{step}", len(data) // step)
    is_same = groups == np.frombuffer(make_filling(groups.nbytes), groups.dtype)
    found = np.zeros(len(data) // itemsize, np.bool_)
    found[: is_same.size * step // itemsize] = np.repeat(is_same, step // itemsize)
    return found


def clear_unwritten(data: bytes, itemsize: int) -> bytes:
    """Returns what a buffer holds, with zeros in the elements that have the pattern."""
    cleared = np.frombuffer(bytearray(data), np.uint8)
    cleared.reshape(-1, itemsize)[find_unwritten(data, itemsize)] = 0
    return cleared.tobytes()
