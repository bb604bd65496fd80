"""Keeps what replays of TinyJit read and wrote, for the oracle to compute again. Runs in the child.

A replay makes no schedule: it runs the kernels of the call that was captured, with the buffers of other inputs in the
places of that call's. So it should get what the graphs of that call give for those inputs, and for what else they read
(weights, the state of random numbers) as it is now. What one schedule of the call writes and a later one reads is known
after the replay, if nothing has written there since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vmapdbg.child.evidence.graphs import BlobsFull, Evidence, pack_graph
from vmapdbg.child.record.lines import find_user_line

if TYPE_CHECKING:
    from vmapdbg.child.evidence.collector import Run

MOST_COMPARED = 3
"""Of one captured call so many replays are compared."""


@dataclass
class Call:
    """A call of a TinyJit that runs now: the buffers of its inputs, and the schedules it makes if it is captured."""

    tiny: Any
    inputs: list[Any] | None = None
    runs: list[Run] = field(default_factory=list)


@dataclass
class Captured:
    """A call that was captured: its CapturedJit, the buffers of its inputs, the schedules that it made with what they
    write, why its replays are not compared (None where they are), how many there were, and how many are compared."""

    jit: Any
    inputs: list[Any]
    runs: list[Run]
    written: list[set[int]]  # of each schedule, the ids of the buffers that it writes
    reason: str | None
    replays: int = 0
    compared: int = 0

    def find_time(self, number: int, buffer: Any) -> str | None:
        """When to read what a schedule reads in a buffer: `before` the replay or `after` it, None: at neither time."""
        writers = [i for i, written in enumerate(self.written) if id(buffer) in written]
        if all(i >= number for i in writers):
            return "before"
        return "after" if all(i < number for i in writers) else None

    def is_final(self, number: int, buffer: Any) -> bool:
        """Tells whether no later schedule writes what one has written."""
        return not any(id(buffer) in written for written in self.written[number + 1 :])


class ReplayWatcher:
    """Watches TinyJit: which schedules a captured call makes, and what its replays read and write."""

    def __init__(self) -> None:
        self.captured: dict[int, Captured] = {}  # by the id of its CapturedJit
        self.calls: list[Call] = []  # outermost first

    def watch(self) -> None:
        """Wraps what a call of TinyJit and a replay go through."""
        from tinygrad.engine import jit

        prepare, call, replay = jit._prepare_jit_inputs, jit.TinyJit.__call__, jit.CapturedJit.__call__

        def preparing(*arguments: Any) -> Any:
            prepared = prepare(*arguments)
            if self.calls and self.calls[-1].inputs is None:
                self.calls[-1].inputs = list(prepared[0])
            return prepared

        def calling(tiny: Any, *arguments: Any, **options: Any) -> Any:
            before = tiny.captured
            self.calls.append(Call(tiny))
            try:
                result = call(tiny, *arguments, **options)
            finally:
                ended = self.calls.pop()
            if tiny.captured is not before and ended.runs:
                self.captured[id(tiny.captured)] = make_captured(ended)
            return result

        def replaying(captured: Any, buffers: list[Any], variables: Any) -> Any:
            known = self.captured.get(id(captured))
            if known is None:
                return replay(captured, buffers, variables)
            known.replays += 1
            # what was an input of the captured call is one of this
            now = {id(before): after for before, after in zip(known.inputs, buffers, strict=True)}
            line = find_user_line()
            if known.reason is not None or known.replays > MOST_COMPARED:
                return replay(captured, buffers, variables)
            before = read(known, now, "before")
            result = replay(captured, buffers, variables)
            after = read(known, now, "after")
            if before is not None and after is not None:
                write_evidence(known, now, {**before, **after}, line)
            return result

        jit._prepare_jit_inputs = preparing
        jit.TinyJit.__call__ = calling  # type: ignore[method-assign]
        jit.CapturedJit.__call__ = replaying  # type: ignore[method-assign]

    def note_run(self, run: Run) -> None:
        """Takes note of a schedule: it may be that of a call that is being captured."""
        from tinygrad.engine.realize import capturing

        for call in self.calls:
            if call.tiny in capturing:
                call.runs.append(run)

    def close(self) -> None:
        """Says at the last schedule of each captured call how many of its replays were not compared."""
        for known in self.captured.values():
            if left := known.replays - known.compared:
                count = f"{left} of {known.replays} replays" if known.compared else f"{left} replay{'s' * (left != 1)}"
                reason = known.reason or f"no more than {MOST_COMPARED} of one call are compared"
                known.runs[-1].note_once(f"{count} of it by TinyJit: {reason}")
                known.runs[-1].write()


def make_captured(call: Call) -> Captured:
    written = [set(map(id, run.find_written())) for run in call.runs]
    known = Captured(call.tiny.captured, call.inputs or [], call.runs, written, None)
    if any(run.evidence.graph is None for run in call.runs):
        known.reason = "the call that was captured could not be compared"
    elif call.tiny.prune:
        known.reason = "prune=True runs some kernels once only"
    elif call.tiny.optimize:
        known.reason = "optimize=True moves its buffers"
    elif any(known.find_time(number, u.buffer) is None for number, run in enumerate(call.runs) for u in run.inputs):
        known.reason = "one of its schedules reads a buffer that others write before and after it"
    return known


def read(known: Captured, now: Mapping[int, Any], time: str) -> dict[tuple[int, Any], str] | None:
    """What the schedules of a replay read, and when it is to be looked at is now: (number, BUFFER) -> contents."""
    try:
        return {
            (number, u): run.keep(now.get(id(u.buffer), u.buffer))
            for number, run in enumerate(known.runs)
            for u in run.inputs
            if known.find_time(number, u.buffer) == time
        }
    except BlobsFull:
        known.reason = "there was no room for what they read"
        return None


def write_evidence(
    known: Captured, now: Mapping[int, Any], inputs: Mapping[tuple[int, Any], str], line: str | None
) -> None:
    """Writes what each schedule of a replay that has just run read and wrote."""
    for number, run in enumerate(known.runs):
        graph = pack_graph(run.roots, lambda u, n=number: inputs.get((n, u)))
        try:
            # an input that is assigned to is an output
            values = run.read_values(now)
        except BlobsFull:
            known.reason = "there was no room for what they wrote"
            return
        for place, buffer in enumerate(run.find_buffers()):
            if not known.is_final(number, buffer):
                values[place] = None
        run.collector.write(Evidence(run.evidence.schedule, line, graph, values, replay=known.replays))
    known.compared += 1
