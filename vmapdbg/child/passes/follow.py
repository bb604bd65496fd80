"""The child of `vmapdbg why --value`, started as `python -m vmapdbg.child.passes.follow REQUEST` by
`shared/children.py`: runs the snippet, evaluates each schedule's outputs after each pass, and writes its result after
each schedule."""

import functools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from vmapdbg.check import result
from vmapdbg.child.compare.schedule_checker import ScheduleChecker
from vmapdbg.child.evidence.loop_packer import LoopPacker
from vmapdbg.child.evidence.packer import UNEXPECTED, CannotPack, find_argument_sizes
from vmapdbg.child.failures.diagnose import KnownNodes
from vmapdbg.child.failures.endless import Watcher
from vmapdbg.child.listen.releases import find_inputs
from vmapdbg.child.passes.codegen import CodegenPath, find_codegen_path
from vmapdbg.child.passes.outputs import BufferFollower, OrderedKernels, choose_chains, note_outputs
from vmapdbg.child.passes.steps import MOST_SECONDS, StepFinder, ValueComparer
from vmapdbg.child.passes.watch import FollowedCall, FollowingCollector, PassRun
from vmapdbg.child.run_snippet import Mode, run_in
from vmapdbg.install.job import ValueRequest, load_request
from vmapdbg.install.system import hold
from vmapdbg.model import capture as model
from vmapdbg.model.schedule_index import find_named
from vmapdbg.model.store import dump_compact, write_atomically
from vmapdbg.model.wording import first_line
from vmapdbg.reference.graph import Unknown

UOp = Any
MOST_SECONDS_IN_ALL = 120  # how long the values of a schedule are evaluated, without the steps of a wrong pass
_NO_STEP = "no single step of it that can be evaluated changes a value"
ORDER = "the kernels in their order, by numpy"
RUN = "the kernels as they ran"
PackAfter = Callable[[PassRun, OrderedKernels | None], tuple[int, int]]
"""Packs a value after a pass, or after the kernels in their order: returns the slots of what it should be, and of what
it is. Raises CannotPack."""


class ScheduleFollower:
    """Follows one schedule."""

    def __init__(self, one: FollowedCall, nodes: KnownNodes, collector: FollowingCollector):
        self.one, self.nodes, self.folder = one, nodes, collector.folder
        self.watch_lowering = collector.watch_lowering
        self._end = time.monotonic() + MOST_SECONDS_IN_ALL
        self.chains = choose_chains(one)
        self._before: dict[UOp, UOp] = {}  # until 0.12 the scheduler replaces the BUFFERs of the snippet
        if one.scheduled.op.name != "CALL":
            self._before = find_inputs(one.scheduled, [])
        inputs = one.call.inputs
        variables = one.call.variables | find_argument_sizes(one.scheduled)
        self.packer = LoopPacker(lambda u: inputs.get(self._snippet_buffer_of(u)) or None, variables)
        self.comparer = ValueComparer(self.packer.graph, self.folder.read_data)
        self.checks: list[result.OutputCheck] = []  # how the real results compare
        self.outputs: dict[int, UOp] = {}  # the outputs in the graph before the first pass
        self.followed: list[PassRun] = []
        self.order: OrderedKernels | None = None
        self.order_refused = "the order of the kernels was not seen"

    def follow(self, line: str | None) -> result.SchedulePath:
        """Follows the outputs, and the buffers of the snippet that are wrong after the last kernel."""
        path = result.SchedulePath(self.one.schedule, line, asked=self.one.call.evidence.asked.get("outputs", 0))
        if not self.chains:
            return replace(path, reason="tinygrad had it in its cache: no pass ran")
        if self.one.is_sharded:
            return replace(path, reason="its values are spread over several devices")
        self.outputs = note_outputs(self.chains)
        self.followed = [run for chain in self.chains for run in chain.runs]
        self.packer.find_memory(run.after for run in self.followed)
        self._run_in_order()
        evidence = self.one.call.evidence
        if evidence.failed is None and "asked" in evidence.graphs:
            self.checks = ScheduleChecker(evidence, self.folder).check_values(evidence.graphs["asked"])
        paths = [self.follow_output(number, u) for number, u in self.outputs.items()]
        return replace(path, outputs=(*paths, *self._follow_buffers()))

    def follow_output(self, number: int, u: UOp) -> result.OutputPath:
        try:
            right = self.packer.pack(u)
        except CannotPack as error:
            return result.OutputPath(number, (), str(u.dtype), (), reason=str(error))
        first_memory = next((i for i, run in enumerate(self.followed) if run.is_memory), None)

        def pack_after(run: PassRun, order: OrderedKernels | None) -> tuple[int, int]:
            found = run.outputs.get(number)
            if found is None:
                raise CannotPack("it is not found in the graph")
            memory = right
            if first_memory is not None and run.is_memory:
                # all that the buffer of the output should hold
                memory = self.packer.pack_memory(self.followed[first_memory - 1].outputs[number])
            if order is not None:
                return memory, order.find_slot(found, run.is_memory)
            pack = self.packer.pack_memory if run.is_memory else self.packer.pack
            return memory, pack(found)

        passes = [*self._compare_passes(pack_after), self._compare_run(number)]
        node = self.packer.graph.nodes[right]
        states = [u, *(run.outputs[number] for run in self.followed if number in run.outputs)]
        # `find` also finds a state of memory by its buffer, which is another node
        found = list(map(self.nodes.ids.get, states)) + list(map(self.nodes.find, states))
        node_id = next((known for known in found if known is not None), None)
        path = result.OutputPath(number, node.shape, node.dtype, without_doubtful(passes), node_id)
        first = path.first_wrong
        if first is None or first.kind != "run":
            return self._explain(path)
        rows, rewrite, reason, optimizations = self.codegen
        passes = (*path.passes[:-1], *rows, first)
        return replace(path, passes=passes, rewrite=rewrite, reason=reason, optimizations=tuple(optimizations))

    @functools.cached_property
    def codegen(self) -> CodegenPath:
        """The stages of the first wrong kernel."""
        launches = self.one.created[0] if len(self.one.created) == 1 else []
        return find_codegen_path(self.one.call.evidence, self.folder, launches, self.watch_lowering)

    # *** buffers of the snippet

    def _follow_buffers(self) -> Iterator[result.OutputPath]:
        """Yields the buffers that hold wrong values when the kernels have run."""
        first = self.chains[0].runs[0].before
        follower = BufferFollower(self.packer, self._snippet_buffer_of)
        buffers = list(self.one.call.held)
        for check in self.checks:
            if check.comparison.status != "wrong" or check.of not in {"assigned", "input"}:
                continue
            buffer = buffers[check.number]
            try:
                right = follower.pack_memory(first, buffer)
            except (CannotPack, *UNEXPECTED):
                continue
            yield self._follow_buffer(follower, check, buffer, right)

    def _follow_buffer(
        self, follower: BufferFollower, check: result.OutputCheck, buffer: UOp, right: int
    ) -> result.OutputPath:
        def pack_after(run: PassRun, order: OrderedKernels | None) -> tuple[int, int]:
            if order is None:
                return right, follower.pack_memory(run.after, buffer)
            leaf = next((u for u in order.held if self._snippet_buffer_of(u) is buffer), None)
            if leaf is None:
                return right, self.packer.pack(buffer)
            return right, order.held[leaf]

        passes = [*self._compare_passes(pack_after), make_run_value(check.comparison)]
        node = self.packer.graph.nodes[right]
        path = result.OutputPath(check.number, node.shape, node.dtype, without_doubtful(passes), of="buffer")
        for run, value in zip(self.followed, path.passes, strict=False):
            if value.difference is not None:
                return replace(path, rewrite=follower.explain(run, buffer, value.difference, self.nodes))
        return path

    def _snippet_buffer_of(self, leaf: UOp) -> UOp | None:
        """Returns the BUFFER of the snippet that a leaf of a graph replaces, None for another leaf."""
        inputs = self.one.call.inputs
        if leaf in inputs:
            return leaf
        found = self._before.get(leaf)
        if self.one.scheduled.op.name == "CALL":
            found = find_inputs(self.one.scheduled, [leaf]).get(leaf)
        return found if found in inputs else None

    # *** one row

    def _compare_passes(self, pack: PackAfter) -> list[result.PassValue]:
        """Returns the rows of the passes, and the row of the kernels in their order."""
        rows = [self._compare(run.name, run.place, "rewrite", partial(pack, run, None)) for run in self.followed]
        if self.order is None:
            return [*rows, result.PassValue(ORDER, None, "unknown", reason=self.order_refused, kind="order")]
        return [*rows, self._compare(ORDER, None, "order", partial(pack, self.followed[-1], self.order))]

    def _compare(
        self, name: str, place: str | None, kind: result.PassKind, pack: Callable[[], tuple[int, int]]
    ) -> result.PassValue:
        """Returns the row of a value; `pack` returns the slots of what it should be and of what it is."""
        try:
            if time.monotonic() > self._end:
                raise Unknown(f"the schedule takes more than {MOST_SECONDS_IN_ALL} s to evaluate")
            found = self.comparer.compare(*pack())
        except (CannotPack, Unknown, *UNEXPECTED) as error:
            return result.PassValue(name, place, "unknown", reason=str(error), kind=kind)
        return result.PassValue(name, place, "right" if found is None else "wrong", found, kind=kind)

    def _compare_run(self, number: int) -> result.PassValue:
        for check in self.checks:
            if (check.of, check.number) == ("output", number):
                return make_run_value(check.comparison)
        reason = "what it holds was not kept"
        if self.one.call.evidence.failed is not None:
            reason = "it did not run to the end"
        return result.PassValue(RUN, None, "unknown", reason=reason, kind="run")

    def _run_in_order(self) -> None:
        if all(chain.function == "transform_to_call" for chain in self.one.chains):
            self.order_refused = "tinygrad had the schedule in its cache"
        if len(self.one.created) != 1:
            return
        try:
            self.order = OrderedKernels(self.one.created[0], self.packer)
        except (CannotPack, *UNEXPECTED) as error:
            self.order_refused = str(error)

    # *** what made it wrong

    def _explain(self, path: result.OutputPath) -> result.OutputPath:
        """Returns the path with the step of the first wrong pass that makes it wrong."""
        first = next((i for i, value in enumerate(path.passes) if value.status == "wrong"), None)
        if first is None or path.passes[first].kind != "rewrite":
            return path
        before = [self.outputs, *(run.outputs for run in self.followed)]
        output = before[first].get(path.number)
        if output is None:
            return replace(path, reason="the output is not found in the graph before it")
        rewrite, reason = self._find_step(self.followed[first], output)
        if reason == _NO_STEP and first and path.passes[first - 1].status == "unknown":
            reason = f"{reason}, and the value before it is not known: it may be an earlier pass"
        return replace(path, rewrite=rewrite, reason=reason)

    def _find_step(self, run: PassRun, u: UOp) -> tuple[result.WrongRewrite | None, str | None]:
        """Returns the first step of a pass that changes the value of a UOp, or why no step is known."""
        finder = StepFinder(run, u, self.packer, self.comparer)
        try:
            rewrite = finder.find(self.nodes)
        except Exception as error:  # tinygrad may refuse to make a step again
            return None, f"its steps cannot be looked at: {type(error).__name__}: {first_line(error)}"
        if rewrite is not None:
            return rewrite, None
        if finder.is_over:
            return None, f"its steps take more than {MOST_SECONDS} s to evaluate"
        return None, _NO_STEP


def without_doubtful(passes: Sequence[result.PassValue]) -> tuple[result.PassValue, ...]:
    """Returns the values of passes. A wrong value before a right one is unknown: no pass repairs a value."""
    last = max((i for i, one in enumerate(passes) if one.status == "right"), default=0)
    values = list(passes)
    for i, one in enumerate(passes[:last]):
        if one.status == "wrong":
            reason = "it was evaluated wrongly: it is right again after a later pass"
            values[i] = replace(one, status="unknown", difference=None, reason=reason)
    return tuple(values)


def make_run_value(found: result.Comparison) -> result.PassValue:
    """Returns the row of a real result."""
    difference = found.difference
    return result.PassValue(RUN, None, "right" if difference is None else "wrong", difference, kind="run")


# *** the process


def main() -> None:
    request = load_request(ValueRequest, sys.argv[1])
    hold(request.lifeline)
    mode: Any = Mode(request)
    watcher = Watcher()
    watcher.start()
    mode.collector_kind = FollowingCollector
    error = run_in(mode, request)
    chosen: list[tuple[FollowedCall, KnownNodes]] = []
    for one in getattr(mode.collector, "followed", []):
        if one.schedule >= 0 and request.schedule in (None, one.schedule):
            passed = mode.recorder.schedules[one.schedule].passed
            chosen.append((one, KnownNodes(one.schedule, passed, one.origin)))
    capture = mode.build(error)
    watcher.stop()
    if request.subject is not None:
        schedules = [s for s in capture.schedules if request.schedule in (None, s.index)]
        asked = {named.schedule.index for named in find_named(schedules, request.subject)}
        chosen = [(one, known) for one, known in chosen if one.schedule in asked]
    paths: list[result.SchedulePath] = []
    _write(request, capture, paths, stopped=bool(chosen))
    for number, (one, known) in enumerate(chosen, start=1):
        schedule = capture.schedules[one.schedule]
        write_atomically(request.progress, f"schedule {one.schedule}")
        try:
            path = ScheduleFollower(one, known, mode.collector).follow(schedule.line)
        except Exception as unexpected:  # the other schedules are followed all the same
            reason = f"its graphs cannot be read: {type(unexpected).__name__}: {first_line(unexpected)}"
            asked = one.call.evidence.asked.get("outputs", 0)
            path = result.SchedulePath(one.schedule, schedule.line, (), reason, asked)
        paths.append(_add_lines(path, schedule))
        _write(request, capture, paths, stopped=number < len(chosen))


def _add_lines(path: result.SchedulePath, schedule: model.Schedule) -> result.SchedulePath:
    lines: dict[int | None, str | None] = {node.id: node.line for node in schedule.nodes}
    outputs: list[result.OutputPath] = []
    for output in path.outputs:
        rewrite = output.rewrite and replace(output.rewrite, line=lines.get(output.rewrite.node))
        outputs.append(replace(output, rewrite=rewrite, line=lines.get(output.node)))
    return replace(path, outputs=tuple(outputs))


def _write(request: ValueRequest, capture: model.Capture, paths: list[result.SchedulePath], stopped: bool) -> None:
    """Writes what is known so far. `stopped`: there is more to come, which Ctrl-C may prevent."""
    found = {"capture": capture, "report": result.ValueReport(tuple(paths), stopped)}
    write_atomically(request.output, dump_compact(found))


if __name__ == "__main__":
    main()
