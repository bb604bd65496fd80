"""Keeps what replays of TinyJit read and wrote, so that they can be compared. Runs in the child.

A replay makes no schedule: it runs the kernels of the captured call with the buffers of other inputs. So its results
should be those of the captured graphs for these inputs, and for the current contents of everything else that they read
(weights, the state of random numbers). If one schedule writes what a later schedule reads, it is read after the replay,
unless something has overwritten it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vmapdbg.child.evidence.evidence import BlobsFull, Evidence, EvidenceFolder, HeldBuffer
from vmapdbg.child.evidence.realize_call import RealizeCall
from vmapdbg.child.listen.launches import buffer_of, used_buffers_of, watch_replays
from vmapdbg.child.listen.user_lines import find_user_line
from vmapdbg.model.wording import format_plural

_Buffers = Mapping[int, Any]
"""The buffer of a replay for each input of the captured call, by the id of the input."""
_Read = dict[tuple[int, Any], str]
"""(index of a schedule, BUFFER that it reads) -> the name of the contents."""
MOST_COMPARED = 3
"""How many replays of one captured call are compared."""


@dataclass
class JitCall:
    """A call of a TinyJit: its object while the call runs, the buffers of its inputs, and the calls of `realize` in it
    that made a schedule.

    The other fields are for a captured call. `written` has the ids of the buffers that each schedule writes. `reason`
    says why its replays are not compared, None if they are. `memory` has the BUFFERs that its replays use, None if they
    use the BUFFERs of the call: replays may have memory of their own for BUFFERs that nothing else holds. For each
    schedule, `made` maps the BUFFERs of earlier schedules that no replay has to what is computed instead."""

    tiny: Any
    inputs: list[Any] | None = None
    realized: list[RealizeCall] = field(default_factory=list)
    jit: Any = None  # the CapturedJit, held, so that no other object gets its id
    written: list[set[int]] = field(default_factory=list)
    reason: str | None = None
    memory: set[Any] | None = None
    made: list[dict[Any, Any]] = field(default_factory=list)
    replays: int = 0
    compared: int = 0

    def capture(self) -> None:
        """Notes what its replays will use, and why they cannot be compared."""
        self.jit, self.inputs = self.tiny.captured, self.inputs or []
        self.written = [set(map(id, call.find_written())) for call in self.realized]
        self.memory = used_buffers_of(self.jit)
        found: dict[Any, Any] = {}
        for call in self.realized:
            self.made.append({u: root for u, root in found.items() if self.memory is not None and u not in self.memory})
            found |= call.made
        self.reason = self._find_reason()
        self.tiny = None
        if self.memory is not None:
            given = set(map(id, self.inputs))
            self.memory |= {u for _, u in self.list_read() if id(u.buffer) in given}
        for call in self.realized:
            call.keep_views(self.memory)

    def _find_reason(self) -> str | None:
        """Returns why its replays cannot be compared, None if they can."""
        # (index of a schedule, BUFFER that it reads) -> when to look at it in a replay
        reads = {(index, u): self.find_time(index, u.buffer) for index, u in self.list_read()}
        if any(hasattr(u.buffer, "bufs") for _, u in reads):
            return "one of its schedules reads what is sharded over devices"
        if any(call.packer is None for call in self.realized):
            return "the call that was captured could not be compared"
        if self.tiny.prune:
            return "prune=True runs some kernels once only"
        # not in 0.13
        if getattr(self.tiny, "optimize", False):
            return "optimize=True moves its buffers"
        if None in reads.values():
            return "one of its schedules reads a buffer that others write before and after it"
        if self.memory is None:
            return None
        # values that a replay has in other memory are computed instead
        later = [read for read, time in reads.items() if time == "after"]
        moved = [(index, u) for index, u in later if u not in self.memory]
        if any(u not in self.made[index] for index, u in moved):
            return "one of its schedules reads what another one writes, in memory of their own"
        # it is computed as of the earlier time: its sources must not have changed
        changed = {u for _, u in later} & {u for (_, u), time in reads.items() if time == "before"}
        if moved and changed:
            return "one of its schedules reads a buffer before and after another one writes it"
        return None

    def list_read(self) -> Iterator[tuple[int, Any]]:
        """Yields (index of a schedule, BUFFER) for each BUFFER that a schedule reads."""
        for index, call in enumerate(self.realized):
            for u in call.inputs:
                yield index, u

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
        return any(not written.isdisjoint((id(buffer), id(buffer.base))) for written in self.written)

    def has_variables(self, variables: Mapping[Any, int] | None) -> bool:
        """Returns whether the variables of a replay have the values of the call."""
        now = {getattr(variable, "expr", variable): value for variable, value in (variables or {}).items()}
        for call in self.realized:
            if any(call.variables.get(name, value) != value for name, value in now.items()):
                return False
        return True


class ReplayWatcher:
    """Watches TinyJit: which schedules a captured call makes, and what its replays read and write."""

    def __init__(self, folder: EvidenceFolder) -> None:
        self.folder = folder
        self.captured: dict[int, JitCall] = {}  # by the id of its CapturedJit
        self.calls: list[JitCall] = []  # outermost first

    def declare(self, changes: Any) -> None:
        """Wraps the functions of a call of TinyJit and of a replay."""
        from tinygrad.engine import jit

        changes.wrap(jit, "_prepare_jit_inputs", self.on_prepare, "args", "kwargs")
        watch_replays(changes, self.on_call, self.on_replay)

    def on_prepare(self, prepare: Callable[..., Any], *arguments: Any) -> Any:
        prepared = prepare(*arguments)
        if self.calls and self.calls[-1].inputs is None:
            self.calls[-1].inputs = list(map(buffer_of, prepared[0]))
        return prepared

    def on_call(self, call: Callable[..., Any], tiny: Any, *arguments: Any, **options: Any) -> Any:
        before = tiny.captured
        self.calls.append(JitCall(tiny))
        try:
            result = call(tiny, *arguments, **options)
        finally:
            ended = self.calls.pop()
        if tiny.captured is not before and ended.realized:
            ended.capture()
            self.captured[id(ended.jit)] = ended
        return result

    def note_call(self, call: RealizeCall) -> bool:
        """Adds a call of `realize` to the TinyJit calls that are being captured. Returns whether there is one."""
        from tinygrad.engine.realize import capturing

        captured = [running for running in self.calls if running.tiny in capturing]
        for running in captured:
            running.realized.append(call)
        return bool(captured)

    def on_replay(self, replay: Callable[..., Any], captured: Any, buffers: list[Any], variables: Any) -> Any:
        self.folder.begin_replay()
        known = self.captured.get(id(captured))
        if known is None:
            return replay(captured, buffers, variables)
        known.replays += 1
        if known.reason is None and not known.has_variables(variables):
            known.reason = "a variable has another value than in the call that was captured"
        if known.reason is not None or known.replays > MOST_COMPARED:
            return replay(captured, buffers, variables)
        pairs = zip(known.inputs or (), map(buffer_of, buffers), strict=True)
        now = {id(before): after for before, after in pairs}
        line = find_user_line()
        read = self.keep_read(known, now, "before")
        result = replay(captured, buffers, variables)
        read |= self.keep_read(known, now, "after")
        if known.reason is None:
            self.write(known, now, read, line)
        return result

    def keep_read(self, known: JitCall, now: _Buffers, time: str) -> _Read:
        """Keeps what the schedules of a replay read, as far as it is to be read at this `time`. Notes a reason if there
        is no room."""
        kept: _Read = {}
        try:
            for index, u in known.list_read():
                if u not in known.made[index] and known.find_time(index, u.buffer) == time:
                    kept[index, u] = self.folder.keep_buffer(now.get(id(u.buffer), u.buffer))
        except BlobsFull:
            known.reason = "there was no room for what they read"
        return kept

    def write(self, known: JitCall, now: _Buffers, read: _Read, line: str | None) -> None:
        """Writes what each schedule of a finished replay read and wrote."""
        for index, call in enumerate(known.realized):
            evidence = Evidence(call.evidence.schedule, line, replay=known.replays)
            try:
                # an input that is assigned to is an output
                call.keep_outputs(evidence, call.views, now)
                self._keep_held(evidence, known, index, read, now)
            except BlobsFull:
                known.reason = "there was no room for what they wrote"
                return
            for output, buffer in enumerate(call.buffers):
                if not known.is_final(index, buffer) and evidence.outputs.pop(output, None) is not None:
                    evidence.unchecked.append(f"output {output}: a later schedule of the call writes it again")
            if not evidence.outputs:
                evidence.graphs.pop("got")
            self.folder.write(evidence)
        known.compared += 1

    def _keep_held(self, evidence: Evidence, known: JitCall, index: int, read: _Read, now: _Buffers) -> None:
        """Packs the graph of schedule `index` of a replay. Keeps what the buffers hold that it assigns to, and the
        buffers that it read and that the replay overwrote without an assign in the call. Raises BlobsFull."""
        # also what only earlier schedules read
        ordered = sorted(read.items(), key=lambda one: one[0][0])
        contents = {u: (name,) for (reader, u), name in ordered if reader <= index}
        packer = known.realized[index].pack_asked(evidence, contents, known.made[index])
        if packer is None:
            return
        for u, slot in packer.add_assigned().items():
            if known.is_final(index, u.buffer) and (known.memory is None or u in known.memory):
                names = self.folder.keep_all(now.get(id(u.buffer), u.buffer))
                evidence.held.append(HeldBuffer(slot, names, "assigned"))
        touched = packer.find_touched()
        for u, before in contents.items():
            slot, buffer = packer.find_slot(u), now.get(id(u.buffer), u.buffer)
            if slot is None or u in touched or known.does_write(u.buffer) or not known.does_write(buffer):
                continue
            after = self.folder.keep_all(buffer)
            if after != before:
                number = next((i for i, one in enumerate(known.inputs or ()) if one is u.buffer), None)
                evidence.changed.append(HeldBuffer(slot, after, "input", input_number=number))

    def close(self) -> None:
        """Notes at the last schedule of each captured call how many of its replays were not compared."""
        for known in self.captured.values():
            if left := known.replays - known.compared:
                count = f"{left} of {known.replays} replays"
                if not known.compared:
                    count = format_plural(left, "replay")
                reason = known.reason or f"no more than {MOST_COMPARED} of one call are compared"
                known.realized[-1].note_once(f"{count} of it by TinyJit: {reason}")
                known.realized[-1].write()
