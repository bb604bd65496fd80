"""A call that TinyJit captured: its schedules, and why its replays cannot be compared. Runs in the child."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vmapdbg.child.evidence.realize_call import RealizeCall
from vmapdbg.child.listen.launches import buffer_of, used_buffers_of


@dataclass
class JitCall:
    """A running call of a TinyJit: the buffers of its inputs and, if it is captured, the calls of `realize` in it that
    made a schedule."""

    tiny: Any
    inputs: list[Any] | None = None
    realized: list[RealizeCall] = field(default_factory=list)


@dataclass
class CapturedCall:
    """A captured call of a TinyJit: its CapturedJit, the buffers of its inputs, and the calls of `realize` in it, with
    the buffers that each schedule writes. `reason` says why its replays are not compared, None if they are. `memory`
    has the BUFFERs that its replays use, None if they use the BUFFERs of the call: replays may have memory of their own
    for BUFFERs that nothing else holds."""

    jit: Any  # held, so that its id stays its own
    inputs: list[Any]
    realized: list[RealizeCall]
    written: list[set[int]]  # of each schedule, the ids of the buffers that it writes
    reason: str | None
    replays: int = 0
    compared: int = 0
    # for each schedule: the BUFFERs of earlier schedules that no replay has -> what is computed instead
    made: list[dict[Any, Any]] = field(default_factory=list)
    memory: set[Any] | None = None

    def find_time(self, index: int, buffer: Any) -> str | None:
        """Returns when a buffer holds what schedule `index` of a replay reads: `before` the replay or `after` it; None
        if at neither time."""
        writers = [i for i, written in enumerate(self.written) if id(buffer) in written]
        if all(i >= index for i in writers):
            return "before"
        if all(i < index for i in writers):
            return "after"
        return None

    def is_final(self, index: int, buffer: Any) -> bool:
        """Returns whether no schedule after `index` writes a buffer."""
        return not any(id(buffer) in written for written in self.written[index + 1 :])

    def does_write(self, buffer: Any) -> bool:
        """Returns whether a schedule of the call writes to a buffer, or to the memory around it."""
        return any(id(one) in written for written in self.written for one in (buffer, buffer.base))

    def match_inputs(self, buffers: list[Any]) -> dict[int, Any]:
        """Returns the buffer of a replay for each input of this call, by the id of the input."""
        return {id(before): after for before, after in zip(self.inputs, map(buffer_of, buffers), strict=True)}


def make_captured(call: JitCall) -> CapturedCall:
    """Returns the record of a newly captured call, with a reason if its replays cannot be compared."""
    written = [set(map(id, realized.find_written())) for realized in call.realized]
    known = CapturedCall(call.tiny.captured, call.inputs or [], call.realized, written, None)
    memory = used_buffers_of(call.tiny.captured)
    found: dict[Any, Any] = {}
    for realized in call.realized:
        known.made.append({u: root for u, root in found.items() if memory is not None and u not in memory})
        found |= realized.made
    known.reason = find_reason(call, known, memory)
    if memory is not None:
        own = set(map(id, known.inputs))
        memory |= {u for realized in call.realized for u in realized.inputs if id(u.buffer) in own}
    known.memory = memory
    for realized in call.realized:
        realized.keep_views(memory)
    return known


def find_reason(call: JitCall, known: CapturedCall, memory: set[Any] | None) -> str | None:
    """Returns why the replays of a call cannot be compared, None if they can. See `CapturedCall` for `memory`."""
    # (index of a schedule, BUFFER that it reads) -> when to look at it in a replay
    reads = {
        (index, u): known.find_time(index, u.buffer)
        for index, realized in enumerate(call.realized)
        for u in realized.inputs
    }
    if any(hasattr(u.buffer, "bufs") for _, u in reads):
        return "one of its schedules reads what is sharded over devices"
    if any(not realized.is_packed for realized in call.realized):
        return "the call that was captured could not be compared"
    if call.tiny.prune:
        return "prune=True runs some kernels once only"
    # not in 0.13
    if getattr(call.tiny, "optimize", False):
        return "optimize=True moves its buffers"
    if None in reads.values():
        return "one of its schedules reads a buffer that others write before and after it"
    if memory is None:
        return None
    # values that a replay has in other memory are computed instead
    later = [read for read, time in reads.items() if time == "after"]
    moved = [(index, u) for index, u in later if u not in memory]
    if any(u not in known.made[index] for index, u in moved):
        return "one of its schedules reads what another one writes, in memory of their own"
    # it is computed as of the earlier time: its sources must not have changed
    changed = {u for _, u in later} & {u for (_, u), time in reads.items() if time == "before"}
    if moved and changed:
        return "one of its schedules reads a buffer before and after another one writes it"
    return None
