"""Watches what the snippet realizes, for a comparison with the reference, in the child. It keeps the graph and its
inputs before `Tensor.realize`, and what the tensors hold after it. A buffer is read right after the launch that writes
it, because tinygrad gives its memory to the next buffer."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from vmapdbg.child.evidence.evidence import EvidenceFolder
from vmapdbg.child.evidence.filling import watch_allocations
from vmapdbg.child.evidence.gradient_calls import GradientCalls
from vmapdbg.child.evidence.program_order import ProgramOrder
from vmapdbg.child.evidence.realize_call import RealizeCall
from vmapdbg.child.evidence.replays import ReplayWatcher
from vmapdbg.child.evidence.tensor_calls import TensorCalls
from vmapdbg.child.failures.diagnose import read_nodes
from vmapdbg.child.failures.endless import EndlessRewrite
from vmapdbg.child.listen import launches
from vmapdbg.child.listen.guard import watching
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.listen.releases import is_complete
from vmapdbg.child.listen.user_lines import find_user_line

UOp = Any
_PART = "evidence for check"


class Collector:
    """Hooks into tinygrad, of any release, and passes what happens on: to the running call of `Tensor.realize` and to
    the replays of TinyJit. Launches or replays are left out if an observed tinygrad has another shape there."""

    def __init__(self, folder: Path, recorder: Recorder, with_gradients: bool = False):
        self.folder, self.recorder, self.with_gradients = EvidenceFolder(folder), recorder, with_gradients
        self.call: RealizeCall | None = None
        self.replays = ReplayWatcher(self.folder, recorder.tally.left)
        self.tensors, self.gradients = TensorCalls(), GradientCalls(self.folder, recorder.tally)
        self.order = ProgramOrder()

    def watch(self, tensor_module: ModuleType) -> None:
        """Wraps `Tensor.realize`, what it schedules and runs, and TinyJit. Raises UnknownShape for `Tensor.realize`."""
        with watching(_PART) as changes:
            changes.wrap(tensor_module.Tensor, "realize", self.on_realize, "self", "lst", "do_update_stats")
            self.tensors.declare(changes, tensor_module)
        with self.recorder.leaving_out("the order of writes"), watching(_PART) as changes:
            self.order.declare(changes, tensor_module)
        with self.recorder.leaving_out("memory that nothing has written"):
            watch_allocations()
        if self.with_gradients:
            with self.recorder.leaving_out("gradients"):
                self.gradients.watch(tensor_module)
        with self.recorder.leaving_out("the buffers between kernels"), watching(_PART) as changes:
            launches.watch_schedules(changes, tensor_module, self.on_schedule)
            launches.watch_launches(changes, tensor_module, self)
        with self.recorder.leaving_out("replays by TinyJit"), watching(_PART) as changes:
            launches.watch_replays(changes, self.replays.on_call, self.replays.on_replay, self.replays.on_prepare)
            launches.watch_captures(changes, self.on_capture)
            launches.watch_replacements(changes, tensor_module, self.on_replace)

    def close(self) -> None:
        """Writes what is only known at the end of the snippet."""
        self.replays.close()

    def on_realize(self, realize: Callable[..., Any], tensor: Any, *others: Any, **options: Any) -> Any:
        asked = [t for t in (tensor, *others) if not is_complete(t)]
        if not asked or self.call is not None:
            return realize(tensor, *others, **options)
        self.call = call = RealizeCall(self.folder, asked)
        schedules = self.recorder.schedules
        before = len(schedules)
        try:
            with call.observed():
                self._start(call, asked)
            result = realize(tensor, *others, **options)
        except (Exception, EndlessRewrite) as error:
            with call.observed():
                call.fail(error, read_nodes(self.recorder), [schedule.passed for schedule in schedules[before:]])
            raise
        else:
            with call.observed():
                call.finish([schedule.passed for schedule in schedules[before:]])
        finally:
            self.call = None
            call.evidence.lost += self.order.after(asked)
            if len(schedules) > before:
                number = before if call.is_first else len(schedules) - 1
                call.evidence.schedule, call.evidence.line = number, schedules[number].line
            call.write()
        return result

    def _start(self, call: RealizeCall, asked: Sequence[Any]) -> None:
        first, *others = call.roots
        nodes = first.sink(*others).toposort()
        call.start(nodes, self.tensors.take_parts(nodes), self.replays.unwritten)
        call.evidence.unwritten += self.replays.find_unwritten(nodes)
        found = list(map(self.order.find_asked, asked))
        pending = {write for _, writes in found for write in writes}
        if call.is_compared:
            call.pending = list(self.order.list_pending(asked))
            meant = {number: meaning for number, (meaning, _) in enumerate(found) if meaning is not None}
            others = list(self.order.list_others([*asked, *call.held_tensors], nodes))
            self.order.before(nodes, asked, call.read_input)
            # what the tool realizes at the end of a snippet was not read
            if find_user_line() is not None:
                call.pack_meant(self.order, meant, others, nodes)
            call.folder.write_asked(call.evidence.graphs["asked"])
        call.evidence.lost += self.order.writes.take_lost(nodes, pending)
        call.evidence.cut += self.tensors.take_cut()
        call.evidence.gradients += self.gradients.take()

    def on_schedule(self, schedule: Callable[..., Any], asked: UOp) -> Any:
        made = schedule(asked)
        if self.call is not None:
            self.call.scheduled = asked
            self.call.launches.holds = self.replays.note_call(self.call)
        return made

    def on_capture(self, keep: Callable[..., Any], tiny: Any, linear: UOp, variables: Any) -> Any:
        if self.call is not None:
            # not the LINEAR itself: what a JitCall knows goes when the LINEAR goes
            self.call.captured = launches.list_written(linear)
        return keep(tiny, linear, variables)

    def on_replace(self, apply: Callable[..., Any], replaced: Any, *arguments: Any, **options: Any) -> Any:
        """Tensors get the BUFFERs of a schedule in the place of their values."""
        if self.call is not None and self.replays.is_captured():
            self.call.note_made(replaced)
        with self.order.writes.replacing(replaced):
            return apply(replaced, *arguments, **options)

    def begins(self, steps: Sequence[launches.PlannedLaunch]) -> None:
        if self.call is not None:
            schedules = self.recorder.schedules
            self.call.launches.begin(steps, schedules[-1].passed if schedules else None)

    def before(self, index: int, buffers: Sequence[Any]) -> None:
        if self.call is not None and self.call.is_compared:
            self.call.launches.before(index, buffers)

    def after(self, index: int, buffers: Sequence[Any], uops: Sequence[UOp]) -> None:
        if self.call is not None and self.call.is_compared:
            self.call.launches.after(index, buffers, uops)

    def fails(self, index: int) -> None:
        if self.call is not None:
            self.call.launches.failed = index
