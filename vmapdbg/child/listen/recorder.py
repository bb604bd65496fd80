"""Records what tinygrad does while the snippet runs: each schedule, and each run of the rangeify pass."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from vmapdbg.child.listen import guard
from vmapdbg.child.listen.decisions import deciding_of
from vmapdbg.child.listen.pass_recorder import PassRecorder, RecordingMap, find_ambient, is_outside_kernels
from vmapdbg.child.listen.records import SCOPES, PassRecord, ScheduleRecord, UOp, Verdict, count_launches
from vmapdbg.child.listen.releases import is_whole
from vmapdbg.child.listen.tally import Tally
from vmapdbg.child.listen.user_lines import UserLines, find_user_line
from vmapdbg.install.overlay import OverlayError


class Recorder:
    """What the snippet scheduled, in order. `missing` has a line for each part that could not be observed. It is the
    overlay's observer, too (`tinygrad/_state.py`), with a current pass from `pass_starts` to `schedule_created`."""

    listens = True

    def __init__(self) -> None:
        # makes decisions in place of tinygrad's: given a pass that begins and the number of its schedule, it sets what
        # is forced and released in the pass, and returns a line if it cannot
        self.choose: Callable[[PassRecord, int], str | None] = lambda passed, schedule: None
        self.schedules: list[ScheduleRecord] = []
        self.missing: list[str] = []
        self.is_strict = False  # with the overlay a part that cannot be observed is an error: the release is known
        guard.report_to(self.missing)
        self.lines = UserLines()
        self.launches = 0  # of all schedules that were recorded
        self.tally = Tally(lambda: self.launches)
        self.switches: dict[str, Any] = {}  # the scheduler's switches, each with a `value`
        self._by_key: dict[bytes, PassRecord] = {}
        self._pass: PassRecorder | None = None
        self._graph: UOp = None  # the last graph of a schedule whose pass did not begin yet
        self._unsplit: dict[UOp, Any] = {}
        self.is_paused = False  # only the user's lines are recorded, as while the overlay tries something out

    @property
    def current(self) -> PassRecorder | None:
        """The current pass, None while the recorder is paused."""
        return None if self.is_paused else self._pass

    @contextmanager
    def leaving_out(self, part: str) -> Iterator[None]:
        """Leaves out a part if a hook in the block does not fit. Raises OverlayError if the recorder is strict."""
        try:
            yield
        except Exception as error:
            if self.is_strict:
                raise OverlayError(str(error)) from None
            why = error if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
            self.missing.append(f"{part}: {why}")

    @property
    def origin(self) -> Mapping[UOp, UOp]:
        """Maps what the rewrites of the current pass, or of the pass that failed, made to its node."""
        return {} if self._pass is None else self._pass.origin

    def forget(self) -> None:
        """Lets go of every UOp."""
        self.schedules, self._by_key, self._pass, self._unsplit = [], {}, None, {}
        self.lines.followed = {}

    def _read_settings(self) -> dict[str, Any]:
        return {name: switch.value for name, switch in self.switches.items()}

    # *** what the hooks report

    @guard.leaving_out("the schedules")
    def schedule_asked(self, key: bytes, cached: bool) -> None:
        """tinygrad looked a schedule up in its cache."""
        if self.is_paused:
            return
        schedule = ScheduleRecord(find_user_line(), key, cached)
        self.schedules.append(schedule)
        passed = schedule.passed = self._by_key.get(key) if cached else None
        self.launches += count_launches(passed)
        if passed is not None:
            now, then = self._read_settings(), passed.settings
            schedule.not_in_key = {name: (then.get(name), v) for name, v in now.items() if then.get(name) != v}

    def _derive_pass(self, graph: UOp) -> None:
        """Begins a pass whose function is not known, on the graph from which ranges are made."""
        self._graph = None
        if graph is not None:
            self.pass_starts(graph, is_derived=True)

    @property
    def _is_open(self) -> bool:
        """Whether a schedule was asked for and its pass did not begin yet."""
        return not self.is_paused and any(not s.cached and s.passed is None for s in self.schedules[-1:])

    @guard.leaving_out("the schedules")
    def pass_starts(
        self, tsink: UOp, context: Any = None, scope_ranges: frozenset[UOp] | None = None, is_derived: bool = False
    ) -> None:
        """The rangeify pass runs on the graph of `tsink`, for the schedule that was asked for last. The overlay gives
        its IndexingContext and the RANGEs of vmap scopes."""
        unsplit, self._unsplit = self._unsplit, {}
        if self.is_paused:
            return
        if self._pass is not None and self._pass.record.is_derived:
            self.schedules[-1].passed = None  # the function of the pass is known after all
        toposort = tsink.toposort(is_outside_kernels)
        if scope_ranges is None:
            scoped = (r for u in toposort if u.op.name in SCOPES for r in u.src[1:] if r.op.name == "RANGE")
            scope_ranges = frozenset(scoped)
        consumers: dict[UOp, dict[UOp, None]] = {u: {} for u in toposort}
        for consumer in toposort:
            for source in consumer.src:
                if source in consumers:
                    consumers[source][consumer] = None
        passed = PassRecord(tsink, toposort, consumers, scope_ranges=scope_ranges, is_derived=is_derived)
        passed.unsplit, passed.settings = unsplit, self._read_settings()
        passed.ambient = find_ambient(passed.toposort, passed.scope_ranges)
        passed.origins = self.lines.find_origins(passed.toposort, passed.consumers)
        if not self._is_open:
            self.schedules.append(ScheduleRecord(find_user_line(), b""))  # without its cache, tinygrad looks nothing up
        self.schedules[-1].passed = passed
        self._by_key[self.schedules[-1].key] = passed
        self._pass = PassRecorder(passed)
        self.missing += filter(None, [self.choose(passed, len(self.schedules) - 1)])
        if context is not None:
            self.context_made(context)

    @guard.leaving_out("reasons of realized nodes")
    def context_made(self, context: Any) -> None:
        """The pass made its IndexingContext: its realize map is replaced by a map that reports each change."""
        if self.current is not None:
            context.realize_map = RecordingMap(self.current)
            self.current.record.range_map = context.range_map
            # of the overlay, or of a tinygrad with scopes of its own
            self.current.record.vmap_map = getattr(context, "vmap_map", None)

    def pass_ends(self) -> None:
        """The rangeify pass is done: its buffers are made, and none is removed yet."""
        if self.current is not None:
            self.current.record.range_map = dict(self.current.record.range_map)  # later rewrites add to it

    def returned(self, line: int, answer: Any) -> Any:
        """A rule about buffers returns `answer` on a line. Returns it, or None if it would remove a forced buffer."""
        if self.current is None and self._is_open:
            function = deciding_of(sys._getframe(1))
            if function is not None and function.kind == "places":  # by itself, and not as a rule
                self._derive_pass(self._graph)
        if self.current is not None and self.current.rule_answered(sys._getframe(1), line, answer):
            return None
        return answer

    @guard.leaving_out("what the rewrites made")
    def rewritten(
        self, replaced: Mapping[UOp, UOp], root: UOp, asked: Mapping[UOp, UOp | None], around: Sequence[int]
    ) -> None:
        """A rewrite of the graph of `root` is done: `replaced` maps each UOp to its replacement, `asked` to what its
        first rule made. `around` counts the UOps that each rewrite around it has replaced by then, outermost first."""
        if self._is_open and is_whole(root):
            made = replaced.get(root, root)
            if _has_ranges(made) and not _has_ranges(root):
                self._derive_pass(root)
            else:
                self._graph = made
        if self.current is not None:
            self.current.rewritten(replaced, around)
            self.current.note_ranges(asked)
        else:
            self.lines.follow(replaced)

    def schedule_created(self, graph: UOp, created: Any) -> None:
        """The graph of kernels became a list of launches."""
        if self.current is None and self._is_open:
            self._derive_pass(self._graph)
        if self.current is not None:
            self.current.record.end = "scheduled"
            self.current.end(graph, created)
            self.launches += count_launches(self.current.record)
            self._pass = None

    def schedule_failed(self) -> None:
        """tinygrad raised while it made a schedule."""
        if self.current is not None:
            self.current.record.end = "failed"

    # *** what the overlay reports: only what it alone knows

    def pass_repeats(self) -> None:
        """The pass that was reported last was an attempt: the stages run again."""
        if not self.is_paused:
            self.schedules[-1].passed = None
        self._pass, self._unsplit = None, {}

    def loops_bound(self, loops: dict[UOp, UOp]) -> None:
        """The walk over the graph is done: it put these RANGEs of scopes in the place of its own loops over them."""
        if self.current is not None:
            self.current.record.loops = loops

    def fusion_refused(self, x: UOp, refusal: Any) -> None:
        """A realize point stays at `x`: `refusal` has the patch that asked for it, the rule and its numbers."""
        if self.current is not None:
            self.current.record.refusals[x] = refusal

    def split_left_out(self, reduce: UOp, whole: Any) -> None:
        """Stock would make two kernels of `reduce` in the next pass: `whole` has its gather axes and stock's shapes."""
        self._unsplit.setdefault(reduce, whole)  # the first report is of the reduce, later ones are of its two parts

    @guard.leaving_out("what the overlay decided about buffers")
    def removal_decided(self, buffer: UOp, index: UOp, result: UOp | None, rule: str, numbers: dict[str, Any]) -> None:
        """A rule of the overlay decided about `buffer`, a BUFFERIZE, for its reader `index`, in place of stock's cost
        function or with the same answer. `result` takes its place, None if it is kept."""
        if self.current is None or (record := self.current.buffer_of(buffer)) is None:
            return
        record.readers[buffer, index] = None
        outcome = "removed" if result is not None else "kept"
        record.verdicts[outcome] = Verdict(buffer, index, None, rule, dict(numbers))

    @guard.leaving_out("the ranges that a store closes")
    def store_closed(self, buffer: UOp, stored: UOp) -> None:
        """The GLOBAL BUFFERIZE `buffer` became a store, and the RANGEs that it closes are closed."""
        if self.current is not None and (record := self.current.buffer_of(buffer)) is not None:
            record.left_open = tuple(stored.ranges)
            self.current.note_stores(record, stored)


def _has_ranges(root: UOp) -> bool:
    return any(u.op.name == "RANGE" for u in root.toposort(is_outside_kernels))
