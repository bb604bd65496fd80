"""Watches what the snippet realizes on a tinygrad that is observed, of any release, so that the numpy reference can
compute it again. Runs in the child.

`Tensor.realize` is looked at, before and after: the graph and its inputs, and then what the tensors hold; and between
the two each launch of its schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from vmapdbg.child.adapters.launches import Step, find_inputs, watch_launches, watch_schedules
from vmapdbg.child.evidence.folder import ROOM, BlobsFull, EvidenceFolder
from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.child.evidence.launches import LaunchKeeper
from vmapdbg.child.evidence.obstacles import find_no_values
from vmapdbg.child.evidence.packer import Packer
from vmapdbg.child.evidence.passed import find_observed, pack_buffers
from vmapdbg.child.evidence.reference_evidence import ReferenceEvidence
from vmapdbg.child.extract.observed_view import find_nodes
from vmapdbg.child.record.observe import ObservedPass, ObservingRecorder
from vmapdbg.model.wording import first_line
from vmapdbg.overlay import load_patching

UOp = Any


class ObservedCollector:
    """Writes the evidence of each call of `Tensor.realize` that makes a schedule to a folder."""

    def __init__(self, folder: Path, recorder: ObservingRecorder):
        self.folder, self.recorder = EvidenceFolder(folder), recorder
        self._call: ObservedCall | None = None
        self._last: Evidence | None = None
        self._replays = 0

    def watch(self, tensor_module: ModuleType) -> None:
        """Wraps `Tensor.realize` and calls of TinyJit. Raises UnknownShape."""
        from tinygrad.engine import jit

        # in 0.14 TinyJit is a function that makes one
        kind = getattr(jit, "_TinyJit", jit.TinyJit)
        with load_patching().Changes("evidence for check") as changes:
            changes.wrap(tensor_module.Tensor, "realize", self.on_realize, "self", "lst", "do_update_stats")
            changes.wrap(kind, "__call__", self.on_jit, "self", "args", "kwargs")
        try:
            with load_patching().Changes("evidence for check") as changes:
                watch_schedules(changes, tensor_module, self.on_schedule)
                watch_launches(changes, tensor_module, self)
        except ImportError as unknown:
            self.recorder.lost.append(f"the buffers between kernels: {unknown}")

    def on_jit(self, call: Callable[..., Any], tiny: Any, *arguments: Any, **options: Any) -> Any:
        # a call that is captured already makes no schedule
        self._replays += tiny.captured is not None
        return call(tiny, *arguments, **options)

    def close(self) -> None:
        """The snippet is done: says at the last schedule what made none, and was not compared."""
        if self._last is not None and self._replays:
            replays = "1 replay" if self._replays == 1 else f"{self._replays} replays"
            self._last.unchecked.append(f"{replays} by TinyJit: on an observed tinygrad they are not compared")
            self.folder.write(self._last)

    def on_realize(self, realize: Callable[..., Any], tensor: Any, *others: Any, **options: Any) -> Any:
        asked = [t for t in (tensor, *others) if not _is_settled(t)]
        if not asked or self._call is not None:
            return realize(tensor, *others, **options)
        self._call = call = ObservedCall(self.folder, asked)
        before = len(self.recorder.schedules)
        try:
            call.start()
            result = realize(tensor, *others, **options)
        except Exception as error:
            call.evidence.failed = f"{type(error).__name__}: {first_line(error)}"
            raise
        else:
            made = self.recorder.schedules[before:]
            call.finish(made[0].passed if len(made) == 1 else None)
        finally:
            self._call = None
            if len(self.recorder.schedules) > before:
                call.evidence.schedule = len(self.recorder.schedules) - 1
                call.evidence.line = self.recorder.schedules[-1].line
                self.folder.write(call.evidence)
                self._last = call.evidence
        return result

    def on_schedule(self, schedule: Callable[..., Any], asked: Any) -> Any:
        if self._call is not None:
            self._call.scheduled = asked
        return schedule(asked)

    # *** launches

    def begins(self, steps: Sequence[Step]) -> None:
        if self._call is not None and self._call.is_kept:
            self._call.launches.begins(steps)

    def before(self, index: int, buffers: Sequence[Any]) -> None:
        if self._call is not None and self._call.is_kept:
            self._call.launches.before(index, buffers)

    def after(self, index: int, buffers: Sequence[Any]) -> None:
        if self._call is not None and self._call.is_kept:
            self._call.launches.after(index, buffers)


class ObservedCall:
    """One call: what it is asked for, and what comes of it."""

    def __init__(self, folder: EvidenceFolder, asked: list[Any]):
        self.folder, self.asked = folder, asked
        self.evidence = Evidence(-1, None, refused="this tinygrad is observed: it runs in no other process")
        self.reference = ReferenceEvidence(folder, self.evidence)
        # BUFFER of the snippet -> its contents, on each of its devices
        self.inputs: dict[UOp, tuple[str, ...]] = {}
        self.launches = LaunchKeeper(folder)
        # what the scheduler was given
        self.scheduled: UOp = None

    @property
    def is_kept(self) -> bool:
        """Whether there is something to compare."""
        return self.evidence.reference is not None

    def start(self) -> None:
        """Nothing has run."""
        roots = [t.uop for t in self.asked]
        sink = roots[0].sink(*roots[1:])
        reason = find_no_values(sink)
        if reason is None and _is_capturing():
            reason = "TinyJit captures it, and runs it later"
        if reason is None:
            try:
                buffers = [u for u in sink.toposort() if u.op.name == "BUFFER" and not getattr(u, "is_variable", False)]
                self.inputs = {u: self.folder.keep_all(u.buffer) for u in buffers}
                self.launches.note_inputs((u.buffer, names) for u, names in self.inputs.items())
                self.reference.start(sink, roots, self.inputs)
            except BlobsFull:
                reason = f"its inputs do not fit: the buffers that are kept of one run have {ROOM >> 20} MB together"
        if reason is not None:
            self.evidence.unchecked.append(reason)

    def finish(self, passed: ObservedPass | None) -> None:
        """The call returns; `passed` is the one run of the pass that it made, None where it made others."""
        if not self.is_kept:
            return
        self.evidence.values = [None] * len(self.asked)
        try:
            self.reference.finish([t.uop for t in self.asked])
        except BlobsFull:
            self.evidence.reference = None
            self.evidence.unchecked.append("its outputs do not fit: there was no room")
            return
        # the kernels of a schedule that tinygrad makes in another way are not those of the pass
        if passed is not None and self.scheduled is not None and len(passed.kernels) == len(self.launches.steps):
            self._pack_passed(passed)

    def _pack_passed(self, passed: ObservedPass) -> None:
        if self.launches.is_full:
            self.evidence.unchecked.append("buffers between its kernels were not kept: there was no room")
        inputs = find_inputs(self.scheduled, passed.toposort)
        ids = {u: number for number, u in enumerate(find_nodes(passed))}
        found = list(find_observed(passed, ids, self.launches.written))
        packer = Packer(lambda u: self.inputs.get(inputs.get(u)), self.reference.variables)
        pack_buffers(self.evidence, found, self.launches, packer)


def _is_settled(tensor: Any) -> bool:
    """Tells whether tinygrad has nothing to realize for a tensor, as it does."""
    u = tensor.uop
    if getattr(u, "is_virtual", False) or u.device is None:
        return True
    ask = getattr(u, "has_buffer_identity", None) or u.is_contiguous
    return ask()


def _is_capturing() -> bool:
    """Tells whether a TinyJit captures what is realized; 0.12 runs it at once, later releases when the call is done."""
    from tinygrad.engine import realize
    from tinygrad.uop import Ops

    return hasattr(Ops, "CALL") and bool(getattr(realize, "capturing", ()))
