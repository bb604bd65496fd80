"""Keeps what the hooks tell while the snippet runs: the decisions, and which node each buffer and kernel belongs to."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from vmapdbg.child.listen.adapter import Adapter, find_adapter
from vmapdbg.child.listen.decisions import find_deciding, find_operands, read_decision
from vmapdbg.child.listen.known_buffers import KnownBuffers
from vmapdbg.child.listen.origins import UserLines
from vmapdbg.child.listen.outcomes import find_memory, find_outcome, find_stores, find_written
from vmapdbg.child.listen.realize_map import Axes, RecordingMap
from vmapdbg.child.listen.recording import Recording
from vmapdbg.child.listen.records import (
    ObservedBuffer,
    ObservedKernel,
    ObservedPass,
    ObservedSchedule,
    RealizeDecision,
    UOp,
    Verdict,
)
from vmapdbg.install.import_hook import OverlayError
from vmapdbg.install.observer import Observer

Choose = Callable[[ObservedPass, int], str | None]
"""Given a pass that begins and the number of its schedule: sets what is forced and released in it, and returns a line
where it cannot."""


def guarded(report: Callable[..., Any]) -> Callable[..., Any]:
    """What goes wrong in taking a report is said in `missing`: the user's program must not fail of being observed."""

    @functools.wraps(report)
    def taken(recorder: ObservingRecorder, *args: Any) -> Any:
        try:
            return report(recorder, *args)
        except Exception as error:
            line = f"{report.__name__.strip('_')} was not observed: {type(error).__name__}: {str(error)[:200]}"
            if line not in recorder.lost:
                recorder.lost.append(line)
            return None

    return taken


class ObservingRecorder(Recording[ObservedSchedule], Observer):
    """What the snippet scheduled, in order. `missing` has a line for each part that could not be observed.

    `choose` makes decisions in place of tinygrad's own. Between `pass_starts` and `schedule_created` there is a
    current pass. While it lasts, `_origin` maps what the rewrites made to the node of the tensor graph that it stands
    for: values, stores, and at the end kernels.
    """

    listens = True

    def __init__(self, choose: Choose = lambda passed, schedule: None) -> None:
        self.choose = choose
        self.schedules: list[ObservedSchedule] = []
        # what hooks found missing; with what the adapter misses it is `missing`
        self.lost: list[str] = []
        # with the overlay a part that cannot be observed is an error: the release is known
        self.is_strict = False
        self.lines: UserLines | None = None
        self.read_settings: Callable[[], dict[str, Any]] = dict
        self._by_key: dict[bytes, ObservedPass] = {}
        self._current: ObservedPass | None = None
        self._origin: dict[UOp, UOp] = {}
        self._buffers = KnownBuffers()
        self._unsplit: dict[UOp, Any] = {}
        # how often the overlay paused it, and the pass that was the current one before
        self._pauses = 0
        self._paused: ObservedPass | None = None

    @functools.cached_property
    def adapter(self) -> Adapter:
        """That of the tinygrad that is observed; there is one when tinygrad is imported."""
        return find_adapter()

    @property
    def missing(self) -> list[str]:
        return [*self.lost, *self.adapter.missing]

    def leave_out(self, part: str, why: object) -> None:
        """Notes that a part of tinygrad cannot be observed. Raises OverlayError if the recorder is strict."""
        if self.is_strict:
            raise OverlayError(str(why))
        self.lost.append(f"{part}: {why}")

    @property
    def origin(self) -> Mapping[UOp, UOp]:
        """What the rewrites of the schedule that is being made, or that failed, made: the node that it stands for."""
        return self._origin

    def forget(self) -> None:
        """Lets go of every UOp."""
        self.schedules, self._by_key, self._current = [], {}, None
        self._origin, self._buffers, self._unsplit = {}, KnownBuffers(), {}
        if self.lines is not None:
            self.lines.followed = {}

    def _find_line(self) -> str | None:
        return None if self.lines is None else self.lines.find_user_line()

    # *** schedules

    @guarded
    def schedule_asked(self, key: bytes, cached: bool) -> None:
        """tinygrad looked a schedule up in its cache."""
        schedule = ObservedSchedule(self._find_line(), key, cached)
        self.schedules.append(schedule)
        if not cached:
            return
        schedule.passed = self._by_key.get(key)
        if schedule.passed is not None:
            now, then = self.read_settings(), schedule.passed.settings
            schedule.not_in_key = {name: (then.get(name), v) for name, v in now.items() if then.get(name) != v}

    def stock_pass_starts(self, tsink: UOp) -> None:
        """The rangeify pass of stock tinygrad runs on the graph of `tsink`."""
        toposort = tsink.toposort(_is_outside_kernels)
        consumers: dict[UOp, dict[UOp, None]] = {u: {} for u in toposort}
        for consumer in toposort:
            for source in consumer.src:
                if source in consumers:
                    consumers[source][consumer] = None
        self._begin(ObservedPass(tsink, toposort, consumers))

    @guarded
    def _begin(self, passed: ObservedPass) -> None:
        """A pass starts: it belongs to the schedule that was asked for last."""
        toposort, consumers = passed.toposort, passed.consumers
        passed.settings = self.read_settings()
        if self.lines is not None:
            passed.origins = self.lines.find_origins(toposort, consumers)
        if not self.schedules or self.schedules[-1].cached or self.schedules[-1].passed is not None:
            # with its cache switched off, tinygrad does not look a schedule up
            self.schedules.append(ObservedSchedule(self._find_line(), b""))
        self.schedules[-1].passed = passed
        self._by_key[self.schedules[-1].key] = passed
        self._current = passed
        self._origin = {u: u for u in toposort}
        self._buffers = KnownBuffers()
        self._choose(passed)

    @guarded
    def _choose(self, passed: ObservedPass) -> None:
        missing = self.choose(passed, len(self.schedules) - 1)
        if missing is not None:
            self.lost.append(missing)

    @guarded
    def context_made(self, context: Any) -> None:
        """The pass made its IndexingContext: its realize map becomes one that tells who puts a node in."""
        if self._current is not None:
            self._watch_context(self._current, context)

    def _watch_context(self, passed: ObservedPass, context: Any) -> None:
        context.realize_map = RecordingMap(self._node_put, self._node_taken, passed.forced, passed.released)
        passed.range_map = context.range_map

    @guarded
    def pass_ends(self) -> None:
        """The rangeify pass is done: its buffers are made, and none is removed yet."""
        if self._current is not None:
            # the rewrites that follow go on to add to it
            self._current.range_map = dict(self._current.range_map)

    @guarded
    def schedule_created(self, graph: UOp, created: Any) -> None:
        """The graph of kernels became a list of launches."""
        passed, adapter = self._current, self.adapter
        self._current = None
        if passed is None:
            return
        # AST -> the memory it writes -> node: layers of a network are one AST
        nodes: dict[UOp, dict[UOp | None, UOp]] = {}
        for uop in graph.toposort(_is_outside_kernels):
            kernel, node = adapter.kernel_of(uop), self._origin.get(uop)
            if kernel is not None and node is not None:
                ast, arguments = kernel
                nodes.setdefault(ast, {})[find_written(arguments)] = node
        for launch in adapter.find_kernels(created):
            written = find_written(launch.buffers)
            found = nodes.get(launch.ast, {})
            node = found.get(written)
            if node is None and len(found) == 1:
                node = next(iter(found.values()))
            if node is None and written is not None:
                # a kernel whose AST changed after the pass: the memory that it writes still names its node
                node = passed.held.get(written)
            if node is not None and written is not None:
                passed.held.setdefault(written, node)
            kernel = ObservedKernel(launch.ast, launch.buffers, launch.is_compute, launch.variables, node)
            passed.kernels.append(kernel)
        self._origin, self._buffers = {}, KnownBuffers()

    # *** what the overlay reports

    def pause(self) -> None:
        if not self._pauses:
            self._paused, self._current = self._current, None
        self._pauses += 1

    def resume(self) -> None:
        self._pauses -= 1
        if not self._pauses:
            self._current, self._paused = self._paused, None

    @property
    def is_paused(self) -> bool:
        return self._pauses > 0

    @guarded
    def pass_starts(
        self,
        tsink: UOp,
        toposort: dict[UOp, None],
        consumers: dict[UOp, dict[UOp, None]],
        context: Any,
        scope_ranges: frozenset[UOp],
    ) -> None:
        passed = ObservedPass(tsink, toposort, consumers, ambient=context.vmap_map, scope_ranges=scope_ranges)
        passed.unsplit, self._unsplit = self._unsplit, {}
        self._begin(passed)
        self._watch_context(passed, context)

    def pass_repeats(self) -> None:
        self.schedules[-1].passed = None
        self._current, self._unsplit = None, {}

    @guarded
    def loops_bound(self, loops: dict[UOp, UOp]) -> None:
        if self._current is not None:
            self._current.loops = loops

    @guarded
    def fusion_refused(self, x: UOp, refusal: Any) -> None:
        if self._current is not None:
            self._current.refusals[x] = refusal

    @guarded
    def split_left_out(self, reduce: UOp, whole: Any) -> None:
        # tinygrad looks again at the two reduces that one became: the first report is about the one that stock splits
        self._unsplit.setdefault(reduce, whole)

    @guarded
    def removal_decided(self, buffer: UOp, index: UOp, result: UOp | None, rule: str, numbers: dict[str, Any]) -> None:
        record = self._buffers.find(buffer)
        if record is None or self._current is None:
            return
        record.readers[buffer, index] = None
        outcome = "kept" if result is None else "removed"
        name = rule, 0, outcome
        record.verdicts.pop(name, None)
        record.verdicts[name] = Verdict(outcome, buffer, index, None, rule, dict(numbers))

    @guarded
    def store_closed(self, buffer: UOp, stored: UOp) -> None:
        record = self._buffers.find(buffer)
        if record is None or self._current is None:
            return
        record.left_open = tuple(stored.ranges)
        for store in find_stores(stored):
            self._origin[store] = record.node

    # *** decisions

    @guarded
    def _node_put(self, node: UOp, axes: Axes, frame: FrameType) -> None:
        if self._current is not None:
            decision = read_decision(frame, frame.f_lineno)
            decided = RealizeDecision(node, None if axes is None else tuple(axes), decision)
            self._current.realized.setdefault(node, []).append(decided)

    @guarded
    def _node_taken(self, node: UOp, frame: FrameType) -> None:
        # a rule may take a node out again; that a STORE is taken out when the pass is applied only says that it is done
        if self._current is not None and find_deciding(frame) is not None:
            self._current.realized.pop(node, None)

    def returned(self, line: int, answer: Any) -> Any:
        """A rule about buffers returns `answer`, on this line of it. Returns the answer, or None where it would remove
        a buffer that is forced."""
        if self._current is not None and self._rule_answered(sys._getframe(1), line, answer):
            return None
        return answer

    @guarded
    def _rule_answered(self, frame: FrameType, line: int, answer: Any) -> bool:
        """Returns whether the answer is refused."""
        function = find_deciding(frame)
        if function is not None and function.kind == "makes":
            self._buffers_made(frame, line, answer)
        elif function is not None:
            return self._judged(frame, line, answer, stores=function.kind == "stores")
        return False

    def _judged(self, frame: FrameType, line: int, answer: UOp | None, stores: bool) -> bool:
        """Returns whether the answer would remove a buffer that is forced."""
        operands = find_operands(frame)
        known = ((u, self._buffers.find(u)) for u in operands.values())
        stage, record = next(((u, r) for u, r in known if r is not None), (None, None))
        if stage is None or record is None or self._current is None:
            return False
        outcome, instead = find_outcome(stage, answer, self._buffers)
        if stores:
            # a LOCAL buffer is stored inside its kernel, when that is lowered
            outcome = "stored"
            self._stored(record, answer)
        elif outcome == "narrowed" and instead is not None:
            self._buffers.know(instead, record)
        reader = next((u for u in operands.values() if _reads(u, stage)), None)
        # without a reader it is no matter of cost: the value is a constant, or in a buffer already
        if record.node in self._current.forced and reader is not None and outcome in ("removed", "narrowed"):
            record.readers[stage, reader] = None
            return True
        if reader is not None:
            record.readers[stage, reader] = None
        # only a rule that looks at a reader can refuse to remove a buffer; any other one does not apply
        if outcome == "same" or (outcome == "kept" and reader is None):
            return False
        verdict = Verdict(outcome, stage, reader, read_decision(frame, line))
        name = frame.f_code.co_name, frame.f_code.co_firstlineno, outcome
        record.verdicts.pop(name, None)
        record.verdicts[name] = verdict
        return False

    def _stored(self, record: ObservedBuffer, answer: UOp | None) -> None:
        record.stored = True
        if answer is None or record.node is None or self._current is None:
            return
        record.buffer = find_memory(answer)
        self._current.held.setdefault(record.buffer, record.node)
        for store in find_stores(answer):
            self._origin[store] = record.node

    def _buffers_made(self, frame: FrameType, line: int, answer: UOp | None) -> None:
        """A rule put buffers between an op and its sources."""
        before = next(iter(find_operands(frame).values()), None)
        if answer is None or before is None or self._current is None:
            return
        decision = read_decision(frame, line)
        for source, instead in zip(before.src, answer.src, strict=False):
            stage = instead.src[0] if instead.op.name == "INDEX" else instead
            is_new = source is not instead and stage not in self._buffers
            if is_new and stage.op.name == self.adapter.stage_op:
                made = ObservedBuffer(self._origin.get(source), stage, decision)
                self._add_buffer(made)
                if made.node is None:
                    self._buffers.await_node(made, source)

    # *** following

    def _add_buffer(self, record: ObservedBuffer) -> None:
        if self._current is not None:
            self._current.buffers.append(record)
            self._buffers.know(record.stage, record)

    @guarded
    def rewritten(self, replaced: Mapping[UOp, UOp]) -> None:
        """A rewrite is done: `replaced` maps each UOp it went through to what took its place."""
        if self._pauses:
            return
        if self._current is None:
            if self.lines is not None:
                self.lines.follow(replaced)
            return
        origin = self._origin
        ops = type(self._current.tsink.op)
        stage, end = getattr(ops, self.adapter.stage_op), ops.END
        for old, new in replaced.items():
            if old.op is stage:
                # when the pass makes a buffer, its source is still the node itself
                if old not in self._buffers and old.src[0] in self._current.toposort:
                    self._add_buffer(ObservedBuffer(old.src[0], new if new.op is stage else old))
            elif old.op is end and old not in origin and old.src[0] in origin:
                origin[old] = origin[old.src[0]]
            if old is not new and old in origin and new not in origin:
                origin[new] = origin[old]
        self._buffers.place(origin)


def _reads(u: UOp, stage: UOp) -> bool:
    """Whether `u` is the INDEX of a buffer. The overlay may give the buffer other ranges before it asks."""
    return u.op.name == "INDEX" and u.src[0].op is stage.op and u.src[0].arg is stage.arg


def _is_outside_kernels(uop: UOp) -> bool:
    """A gate for `toposort`: the graph around kernels, not what they compute."""
    return uop.op.name not in {"PROGRAM", "LINEAR"} and not (uop.op.name == "SINK" and uop.arg is not None)
