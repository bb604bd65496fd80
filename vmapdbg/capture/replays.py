"""Keeps what replays of TinyJit read and wrote, for the oracle to compute again. Runs in the child.

A replay makes no schedule: it runs the kernels of the call that was captured, with the buffers of other inputs in the
places of that call's. So it should get what the graph of that call gives for those inputs, and for what else it reads
(weights, the state of random numbers) as it is now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vmapdbg.capture.graphs import BlobsFull, Evidence, pack_graph
from vmapdbg.capture.lines import find_user_line

if TYPE_CHECKING:
    from vmapdbg.capture.evidence import Run

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
    """A call that was captured: its CapturedJit, the buffers of its inputs, the last schedule that it made, why its
    replays are not compared (None where they are), and how many there were."""

    jit: Any
    inputs: list[Any]
    run: Run
    reason: str | None
    replays: int = 0


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
            evidence = read_inputs(known, now)
            result = replay(captured, buffers, variables)
            if evidence is not None:
                read_outputs(known, now, evidence)
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
        """Says at the schedule of each captured call how many of its replays were not compared."""
        for known in self.captured.values():
            compared = min(known.replays, MOST_COMPARED) if known.reason is None else 0
            if left := known.replays - compared:
                count = f"{left} of {known.replays} replays" if compared else f"{left} replay{'s' * (left != 1)}"
                reason = known.reason or f"no more than {MOST_COMPARED} of one call are compared"
                known.run.note_once(f"{count} of it by TinyJit: {reason}")
                known.run.write()


def make_captured(call: Call) -> Captured:
    reason = None
    if len(call.runs) > 1:
        reason = f"the function makes {len(call.runs)} schedules"
    elif call.runs[0].evidence.graph is None:
        reason = "the call that was captured could not be compared"
    elif call.tiny.prune:
        reason = "prune=True runs some kernels once only"
    return Captured(call.tiny.captured, call.inputs or [], call.runs[-1], reason)


def read_inputs(known: Captured, now: dict[int, Any]) -> Evidence | None:
    """The evidence of a replay that is about to run: the graph of the captured call, and what it reads now."""
    if known.reason is not None or known.replays > MOST_COMPARED:
        return None
    run = known.run
    try:
        blobs = {u: run.keep(now.get(id(u.buffer), u.buffer)) for u in run.inputs}
    except BlobsFull:
        known.reason = "there was no room for what they read"
        return None
    graph = pack_graph(run.roots, blobs.get)
    return Evidence(run.evidence.schedule, find_user_line(), graph, replay=known.replays)


def read_outputs(known: Captured, now: dict[int, Any], evidence: Evidence) -> None:
    try:
        # an input that is assigned to is an output
        evidence.values = known.run.read_values(now)
    except BlobsFull:
        known.reason = "there was no room for what they wrote"
        return
    known.run.collector.write(evidence)
