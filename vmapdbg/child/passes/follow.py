"""Evaluates the outputs of a schedule after each pass of the scheduler. Runs in the child."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from vmapdbg.check.result import (
    Comparison,
    Difference,
    OutputCheck,
    OutputPath,
    PassKind,
    PassValue,
    SchedulePath,
    WrongRewrite,
)
from vmapdbg.child.compare.schedule_checker import ScheduleChecker
from vmapdbg.child.evidence.folder import EvidenceFolder
from vmapdbg.child.evidence.loop_packer import LoopPacker
from vmapdbg.child.evidence.packer import UNEXPECTED, CannotPack, find_argument_sizes
from vmapdbg.child.failures.diagnose import KnownNodes
from vmapdbg.child.listen.releases import find_inputs
from vmapdbg.child.passes.compare import Judge
from vmapdbg.child.passes.order import OrderedKernels
from vmapdbg.child.passes.outputs import BufferFollower, Followed, choose_chains, follow_outputs
from vmapdbg.child.passes.steps import MOST_SECONDS, Progress, StepFinder
from vmapdbg.child.passes.watch import FollowedCall, PassRun
from vmapdbg.model.wording import first_line
from vmapdbg.reference.graph import Unknown

UOp = Any
MOST_SECONDS_IN_ALL = 120
"""How long the values of a schedule are evaluated, without the steps of a wrong pass."""
_NO_STEP = "no single step of it that can be evaluated changes a value"
ORDER = "the kernels in their order, by numpy"
RUN = "the kernels as they ran"


PackAfter = Callable[[Followed, "OrderedKernels | None"], tuple[int, int]]
"""Packs a value after a pass, or after the kernels in their order: returns the slots of what it should be, and of what
it is. Raises CannotPack."""


class ScheduleFollower:
    """Follows one schedule."""

    def __init__(self, one: FollowedCall, nodes: KnownNodes, folder: EvidenceFolder, progress: Progress):
        self.one, self.nodes, self.folder, self.progress = one, nodes, folder, progress
        self._end = time.monotonic() + MOST_SECONDS_IN_ALL
        self.chains = choose_chains(one.seen)
        self.packer = make_packer(one)
        self.judge = Judge(self.packer.graph, folder.read_data)
        # how the real results compare
        self.checks: list[OutputCheck] = []
        # the outputs in the graph before the first pass
        self.outputs: dict[int, UOp] = {}
        self.followed: list[Followed] = []
        self.order: OrderedKernels | None = None
        self.order_refused = "the order of the kernels was not seen"
        # until 0.12 the scheduler replaces the BUFFERs of the snippet
        self._before: dict[UOp, UOp] = {}
        if one.scheduled.op.name != "CALL":
            self._before = find_inputs(one.scheduled, [])

    def follow(self, line: str | None) -> SchedulePath:
        """Follows the outputs, and the buffers of the snippet that are wrong after the last kernel."""
        if not self.chains:
            return SchedulePath(self.one.schedule, line, reason="tinygrad had it in its cache: no pass ran")
        if self.one.is_sharded:
            return SchedulePath(self.one.schedule, line, reason="its values are spread over several devices")
        self.outputs, self.followed = follow_outputs(self.chains)
        self.packer.find_memory(one.run.after for one in self.followed)
        self._run_in_order()
        evidence = self.one.call.evidence
        if evidence.failed is None and "asked" in evidence.graphs:
            self.progress(f"schedule {self.one.schedule}: {RUN}")
            checker = ScheduleChecker(evidence, self.folder)
            self.checks = checker.check_outputs(checker.open(evidence.graphs["asked"]))
        paths = [self.follow_output(number, u) for number, u in self.outputs.items()]
        return SchedulePath(self.one.schedule, line, (*paths, *self._follow_buffers()))

    def follow_output(self, number: int, u: UOp) -> OutputPath:
        try:
            right = self.packer.pack(u)
        except CannotPack as error:
            return OutputPath(number, (), str(u.dtype), (), reason=str(error))
        first_memory = next((i for i, one in enumerate(self.followed) if one.is_memory), None)

        def pack_after(one: Followed, order: OrderedKernels | None) -> tuple[int, int]:
            found = one.outputs.get(number)
            if found is None:
                raise CannotPack("it is not found in the graph")
            memory = right
            if first_memory is not None and one.is_memory:
                # all that the buffer of the output should hold
                memory = self.packer.pack_memory(self.followed[first_memory - 1].outputs[number])
            if order is not None:
                return memory, order.find_slot(found, one.is_memory)
            if one.is_memory:
                return memory, self.packer.pack_memory(found)
            return memory, self.packer.pack(found)

        passes = [*self._judge_passes(pack_after), self._judge_run(number)]
        node = self.packer.graph.nodes[right]
        node_id = self._find_node(number, u)
        return self._explain(OutputPath(number, node.shape, node.dtype, without_doubtful(passes), node_id))

    def _find_node(self, number: int, u: UOp) -> int | None:
        """Returns the id of an output's node, None if unknown."""
        states = [u, *(one.outputs[number] for one in self.followed if number in one.outputs)]
        # `find` also finds a state of memory by its buffer, which is another node
        found = [self.nodes.ids.get(state) for state in states] + [self.nodes.find(state) for state in states]
        return next((node for node in found if node is not None), None)

    # *** buffers of the snippet

    def _follow_buffers(self) -> Iterator[OutputPath]:
        """Yields the buffers that hold wrong values when the kernels have run."""
        first = self.chains[0].runs[0].before
        follower = BufferFollower(self.packer, self._find_own)
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

    def _follow_buffer(self, follower: BufferFollower, check: OutputCheck, buffer: UOp, right: int) -> OutputPath:
        def pack_after(one: Followed, order: OrderedKernels | None) -> tuple[int, int]:
            if order is None:
                return right, follower.pack_memory(one.run.after, buffer)
            leaf = next((u for u in order.held if self._find_own(u) is buffer), None)
            if leaf is None:
                return right, self.packer.pack(buffer)
            return right, order.held[leaf]

        passes = [*self._judge_passes(pack_after), make_run_value(check.comparison)]
        node = self.packer.graph.nodes[right]
        path = OutputPath(check.number, node.shape, node.dtype, without_doubtful(passes), of="buffer")
        for one, value in zip(self.followed, path.passes, strict=False):
            if value.difference is not None:
                return replace(path, rewrite=follower.explain(one.run, buffer, value.difference, self.nodes))
        return path

    def _find_own(self, leaf: UOp) -> UOp | None:
        """Returns the BUFFER of the snippet that a leaf of a graph replaces, None for another leaf."""
        inputs = self.one.call.inputs
        if leaf in inputs:
            return leaf
        found = self._before.get(leaf)
        if leaf.op.name == "PARAM":
            found = find_inputs(self.one.scheduled, [leaf]).get(leaf)
        return found if found in inputs else None

    # *** one row

    def _judge_passes(self, pack: PackAfter) -> list[PassValue]:
        """Returns the rows of the passes, and the row of the kernels in their order."""
        passes: list[PassValue] = []
        for one in self.followed:
            value = self._judge(one.run.name, "rewrite", functools.partial(pack, one, None))
            passes.append(replace(value, place=one.run.place))
        if self.order is None:
            passes.append(PassValue(ORDER, None, "unknown", reason=self.order_refused, kind="order"))
        else:
            passes.append(self._judge(ORDER, "order", functools.partial(pack, self.followed[-1], self.order)))
        return passes

    def _judge(self, name: str, kind: PassKind, pack: Callable[[], tuple[int, int]]) -> PassValue:
        """Returns the row of a value; `pack` returns the slots of what it should be and of what it is."""
        if time.monotonic() > self._end:
            reason = f"the schedule takes more than {MOST_SECONDS_IN_ALL} s to evaluate"
            return PassValue(name, None, "unknown", reason=reason, kind=kind)
        self.progress(f"schedule {self.one.schedule}: {name}")
        try:
            found = self.judge.compare(*pack())
        except (CannotPack, Unknown, *UNEXPECTED) as error:
            return PassValue(name, None, "unknown", reason=str(error), kind=kind)
        if found is None:
            return PassValue(name, None, "right", kind=kind)
        return PassValue(name, None, "wrong", found, kind=kind)

    def _judge_run(self, number: int) -> PassValue:
        for check in self.checks:
            if (check.of, check.number) == ("output", number):
                return make_run_value(check.comparison)
        reason = "what it holds was not kept"
        if self.one.call.evidence.failed is not None:
            reason = "it did not run to the end"
        return PassValue(RUN, None, "unknown", reason=reason, kind="run")

    def _run_in_order(self) -> None:
        seen = self.one.seen
        if all(chain.function == "transform_to_call" for chain in seen.chains):
            self.order_refused = "tinygrad had the schedule in its cache"
        if len(seen.created) != 1:
            return
        order = OrderedKernels(seen.created[0], self.packer)
        try:
            order.run()
        except (CannotPack, *UNEXPECTED) as error:
            self.order_refused = str(error)
        else:
            self.order = order

    # *** what made it wrong

    def _explain(self, path: OutputPath) -> OutputPath:
        """Returns the path with the step of the first wrong pass that makes it wrong."""
        first = next((i for i, value in enumerate(path.passes) if value.status == "wrong"), None)
        if first is None:
            return path
        kind = path.passes[first].kind
        if kind == "rewrite":
            return self._explain_pass(path, first)
        if kind == "order" and self.order is not None:
            return replace(path, read=self.order.find_wrong_read(self.nodes))
        return path

    def _explain_pass(self, path: OutputPath, first: int) -> OutputPath:
        before = [self.outputs, *(one.outputs for one in self.followed)]
        output = before[first].get(path.number)
        if output is None:
            return replace(path, reason="the output is not found in the graph before it")
        rewrite, reason = self.find_step(self.followed[first].run, output)
        if rewrite is not None:
            return replace(path, rewrite=rewrite)
        return replace(path, reason=doubt_first(path.passes, first, reason))

    def find_step(self, run: PassRun, u: UOp) -> tuple[WrongRewrite | None, str | None]:
        """Returns the first step of a pass that changes the value of a UOp, or why no step is known."""
        finder = StepFinder(run, u, self.packer, self.judge, self.progress)
        try:
            rewrite = finder.find(self.nodes)
        except Exception as error:  # tinygrad may refuse to make a step again
            return None, f"its steps cannot be looked at: {type(error).__name__}: {first_line(error)}"
        if rewrite is not None:
            return rewrite, None
        if finder.is_over:
            return None, f"its steps take more than {MOST_SECONDS} s to evaluate"
        return None, _NO_STEP


def doubt_first(passes: Sequence[PassValue], first: int, reason: str | None) -> str | None:
    """Returns why no step of pass number `first` makes a value wrong: it may be an earlier pass that is unknown."""
    if reason == _NO_STEP and first and passes[first - 1].status == "unknown":
        return f"{reason}, and the value before it is not known: it may be an earlier pass"
    return reason


def without_doubtful(passes: Sequence[PassValue]) -> tuple[PassValue, ...]:
    """Returns the values of passes without wrong values before a right value. No pass repairs a value: such a value was
    only evaluated wrongly."""
    last = max((i for i, one in enumerate(passes) if one.status == "right"), default=0)
    return (*map(_doubt, passes[:last]), *passes[last:])


def _doubt(one: PassValue) -> PassValue:
    if one.status != "wrong":
        return one
    reason = "it was evaluated wrongly: it is right again after a later pass"
    return replace(one, status="unknown", difference=None, reason=reason)


def make_packer(one: FollowedCall) -> LoopPacker:
    """Returns the packer of the graphs of a schedule, with the contents of its buffers."""
    inputs, scheduled = one.call.inputs, one.scheduled
    variables = one.call.variables | find_argument_sizes(scheduled)
    if scheduled.op.name == "CALL":
        return LoopPacker(lambda u: inputs.get(u) or inputs.get(find_inputs(scheduled, [u]).get(u)) or None, variables)
    before = find_inputs(scheduled, [])
    return LoopPacker(lambda u: inputs.get(u) or inputs.get(before.get(u)) or None, variables)


def make_run_value(found: Comparison) -> PassValue:
    """Returns the row of a real result."""
    if found.status != "wrong" or found.index is None:
        return PassValue(RUN, None, "right", kind="run")
    assert found.got is not None
    assert found.expected is not None
    difference = Difference(found.index, found.got, found.expected, found.wrong, found.total)
    return PassValue(RUN, None, "wrong", difference, kind="run")
