"""Ambient ranges of a buffer, and those that get lost in it."""

from __future__ import annotations

from vmapdbg.model import Bufferize, Schedule


def find_ambient(schedule: Schedule, bufferize: Bufferize | None) -> tuple[str, ...]:
    """Returns the ambient ranges of a BUFFERIZE's node, from wherever the capture has them."""
    if bufferize is None:
        return ()
    node = next((n for n in schedule.nodes if n.id == bufferize.node), None)
    mapped = [name for entry in schedule.vmap_map if entry.node == bufferize.node for name in entry.ranges]
    return tuple(dict.fromkeys([*(node.ambient if node else ()), *mapped, *bufferize.ambient]))


def find_lost(schedule: Schedule, bufferize: Bufferize | None) -> tuple[str, ...]:
    """Returns the ambient ranges whose iterations overwrite each other: a kept GLOBAL buffer does not close them.

    LOOP and OUTER alike: the kernel that reads the buffer starts when all iterations have written it. A LOCAL buffer
    lives inside one iteration, and a removed BUFFERIZE has no buffer: there an ambient range may stay open.
    """
    if bufferize is None or bufferize.outcome != "kept" or bufferize.addrspace != "GLOBAL":
        return ()
    return tuple(name for name in find_ambient(schedule, bufferize) if name not in bufferize.closed_ranges)
