"""Keeps what replays of TinyJit read and wrote, so that they can be compared. Runs in the child.

A replay makes no schedule: it runs the kernels of the captured call with the buffers of other inputs. So its results
should be those of the captured graphs for these inputs, and for the current contents of everything else that they read
(weights, the state of random numbers). If one schedule writes what a later schedule reads, it is read after the replay,
unless something has overwritten it.
"""

from __future__ import annotations

import functools
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
            # also what only earlier schedules read
            ordered = sorted(inputs.items(), key=lambda one: one[0][0])
            contents = {u: (name,) for (reader, u), name in ordered if reader <= index}
            try:
                # an input that is assigned to is an output
                call.keep_outputs(evidence, call.views, now)
                self._keep_held(evidence, known, index, contents, now)
            except BlobsFull:
                known.reason = "there was no room for what they wrote"
                return
            drop_overwritten(evidence, call, functools.partial(known.is_final, index))
            self.folder.write(evidence)
        known.compared += 1

    def _keep_held(
        self,
        evidence: Evidence,
        known: CapturedCall,
        index: int,
        contents: Mapping[Any, tuple[str, ...]],
        now: Mapping[int, Any],
    ) -> None:
        """Packs the graph of a schedule of a replay, which read `contents`. Keeps what the buffers hold that it assigns
        to, and the buffers that it read and that the replay overwrote without an assign in the call. Raises
        BlobsFull."""
        call = known.realized[index]
        packer = Packer(contents.get, call.variables, known.made[index])
        try:
            packer.graph.roots = [packer.pack(root) for root in call.roots]
        except CannotPack as error:
            evidence.refused = str(error)
            return
        evidence.graphs["asked"] = packer.graph
        for u, slot in packer.add_assigned().items():
            if known.is_final(index, u.buffer) and (known.memory is None or u in known.memory):
                names = self.folder.keep_all(now.get(id(u.buffer), u.buffer))
                evidence.held.append(HeldBuffer(slot, names, True))
        touched = packer.find_touched()
        for u, before in contents.items():
            slot, buffer = packer.find_slot(u), now.get(id(u.buffer), u.buffer)
            if slot is None or u in touched or known.does_write(u.buffer) or not known.does_write(buffer):
                continue
            after = self.folder.keep_all(buffer)
            if after != before:
                number = next((i for i, one in enumerate(known.inputs) if one is u.buffer), None)
                evidence.changed.append(ChangedInput(slot, after[0], number))

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
    before = [call.variables for call in known.realized]
    return all(one[name] == value for one in before for name, value in now.items() if name in one)


def drop_overwritten(evidence: Evidence, call: RealizeCall, is_final: Callable[[Any], bool]) -> None:
    """Removes outputs from the evidence of a replay if its later schedules write them again."""
    for output, buffer in enumerate(call.find_buffers()):
        if not is_final(buffer) and evidence.outputs.pop(output, None) is not None:
            evidence.unchecked.append(f"output {output}: a later schedule of the call writes it again")
    if not evidence.outputs:
        evidence.graphs.pop("got")
