"""Keeps what replays of TinyJit read and wrote, so that they can be compared. Runs in the child.

A replay makes no schedule: it runs the kernels of the captured call with the buffers of other inputs. So its results
should be those of the captured graphs for these inputs, and for the current contents of everything else that they read
(weights, the state of random numbers). If one schedule writes what a later schedule reads, it is read after the replay,
unless something has overwritten it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vmapdbg.child.evidence.captured import CapturedCall, JitCall, make_captured
from vmapdbg.child.evidence.folder import BlobsFull, EvidenceFolder
from vmapdbg.child.evidence.graphs import ChangedInput, Evidence, HeldBuffer
from vmapdbg.child.evidence.packer import CannotPack, Packer
from vmapdbg.child.evidence.realize_call import RealizeCall
from vmapdbg.child.listen.launches import buffer_of, watch_replays
from vmapdbg.child.listen.user_lines import find_user_line
from vmapdbg.model.wording import format_plural

MOST_COMPARED = 3
"""How many replays of one captured call are compared."""


class ReplayWatcher:
    """Watches TinyJit: which schedules a captured call makes, and what its replays read and write."""

    def __init__(self, folder: EvidenceFolder) -> None:
        self.folder = folder
        self.captured: dict[int, CapturedCall] = {}  # by the id of its CapturedJit
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
            self.captured[id(tiny.captured)] = make_captured(ended)
        return result

    def on_replay(self, replay: Callable[..., Any], captured: Any, buffers: list[Any], variables: Any) -> Any:
        known = self.captured.get(id(captured))
        if known is None:
            return replay(captured, buffers, variables)
        known.replays += 1
        if known.reason is None and not has_same_variables(known, variables):
            known.reason = "a variable has another value than in the call that was captured"
        if known.reason is not None or known.replays > MOST_COMPARED:
            return replay(captured, buffers, variables)
        now = known.match_inputs(buffers)
        line = find_user_line()
        before = self.read(known, now, "before")
        result = replay(captured, buffers, variables)
        after = self.read(known, now, "after")
        if before is not None and after is not None:
            self.write(known, now, {**before, **after}, line)
        return result

    def note_call(self, call: RealizeCall) -> bool:
        """Adds a call of `realize` to the TinyJit calls that are being captured. Returns whether there is one."""
        from tinygrad.engine.realize import capturing

        captured = [running for running in self.calls if running.tiny in capturing]
        for running in captured:
            running.realized.append(call)
        return bool(captured)

    def read(self, known: CapturedCall, now: Mapping[int, Any], time: str) -> dict[tuple[int, Any], str] | None:
        """Keeps what the schedules of a replay read, as far as it is to be read at this `time`. Returns (index of the
        schedule, BUFFER) -> contents, None if there is no room."""
        try:
            return {
                (index, u): self.folder.keep_buffer(now.get(id(u.buffer), u.buffer))
                for index, call in enumerate(known.realized)
                for u in call.inputs
                if u not in known.made[index] and known.find_time(index, u.buffer) == time
            }
        except BlobsFull:
            known.reason = "there was no room for what they read"
            return None

    def write(
        self, known: CapturedCall, now: Mapping[int, Any], inputs: Mapping[tuple[int, Any], str], line: str | None
    ) -> None:
        """Writes what each schedule of a finished replay read and wrote."""
        for index, call in enumerate(known.realized):
            evidence = Evidence(call.evidence.schedule, line, replay=known.replays)
            contents = find_contents(inputs, index)
            packer = pack_replay(evidence, call, known.made[index], contents)
            try:
                # an input that is assigned to is an output
                call.keep_outputs(evidence, now)
                if packer is not None:
                    evidence.held += self.keep_held(known, index, packer, now)
                    evidence.changed += self.keep_changed(known, packer, contents, now)
            except BlobsFull:
                known.reason = "there was no room for what they wrote"
                return
            drop_overwritten(evidence, call, lambda buffer, index=index: known.is_final(index, buffer))
            self.folder.write(evidence)
        known.compared += 1

    def keep_held(self, known: CapturedCall, index: int, packer: Packer, now: Mapping[int, Any]) -> list[HeldBuffer]:
        """Returns what the buffers hold that a schedule of a replay assigns to once. Raises BlobsFull."""
        found = []
        for u, writes in packer.find_writes().items():
            # the second of two writes may go to memory of its own, which its tensor then has
            if len(writes) == 1 and known.is_final(index, u.buffer) and known.has_memory(u):
                names = self.folder.keep_all(now.get(id(u.buffer), u.buffer))
                found.append(HeldBuffer(packer.add_after(u, writes), names, True))
        return found

    def keep_changed(
        self, known: CapturedCall, packer: Packer, contents: Mapping[Any, tuple[str, ...]], now: Mapping[int, Any]
    ) -> list[ChangedInput]:
        """Returns the buffers that a schedule of a replay read, that the replay overwrote without an assign in the
        call, and that have changed; `contents` has what it read. Raises BlobsFull."""
        found = []
        touched = packer.find_touched()
        for u, before in contents.items():
            slot, buffer = packer.find_slot(u), now.get(id(u.buffer), u.buffer)
            if slot is None or u in touched or known.does_write(u.buffer) or not known.does_write(buffer):
                continue
            after = self.folder.keep_all(buffer)
            if after != before:
                found.append(ChangedInput(slot, after[0], known.find_number(u.buffer)))
        return found

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


def has_same_variables(known: CapturedCall, variables: Mapping[Any, int]) -> bool:
    """Returns whether the variables of a replay have the values of the captured call."""
    now = {getattr(variable, "expr", variable): value for variable, value in (variables or {}).items()}
    before = [call.reference.variables for call in known.realized]
    return all(one[name] == value for one in before for name, value in now.items() if name in one)


def find_contents(inputs: Mapping[tuple[int, Any], str], index: int) -> dict[Any, tuple[str, ...]]:
    """Returns the contents that a schedule of a replay reads, and those that only earlier schedules read."""
    ordered = sorted(inputs.items(), key=lambda one: one[0][0])
    return {u: (name,) for (reader, u), name in ordered if reader <= index}


def pack_replay(
    evidence: Evidence, call: RealizeCall, made: Mapping[Any, Any], inputs: Mapping[Any, tuple[str, ...]]
) -> Packer | None:
    """Packs the graph of a captured schedule for other contents of its inputs; `made` has the inputs that are computed.
    Returns the packer, None if there is no graph."""
    if not call.is_packed:
        return None
    packer = Packer(inputs.get, call.reference.variables, made)
    try:
        packer.graph.roots = [packer.pack(root) for root in call.roots]
    except CannotPack as error:
        evidence.reference_refused = str(error)
        return None
    evidence.reference = packer.graph
    return packer


def drop_overwritten(evidence: Evidence, call: RealizeCall, is_final: Callable[[Any], bool]) -> None:
    """Removes outputs from the evidence of a replay if its later schedules write them again."""
    for output, buffer in enumerate(call.find_buffers()):
        if is_final(buffer):
            continue
        evidence.values[output] = None
        if evidence.got_roots.pop(output, None) is not None:
            evidence.unchecked.append(f"output {output}: a later schedule of the call writes it again")
    if evidence.got is not None and not evidence.got_roots:
        evidence.values = []
