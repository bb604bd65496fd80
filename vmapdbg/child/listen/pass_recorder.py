"""Records one run of the rangeify pass: its decisions, and the node of each buffer, store and kernel."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

from vmapdbg.child.identity import IdentityMap
from vmapdbg.child.listen.decisions import deciding_of, list_operands, read_decision
from vmapdbg.child.listen.guard import leaving_out
from vmapdbg.child.listen.records import BufferRecord, PassRecord, RealizeDecision, UOp, Verdict
from vmapdbg.child.listen.releases import find_under, kernel_of, list_launches, memory_of, stage_op

Axes = list[int] | None

# a rule's answer may wrap the buffer in these
_WRAPS = frozenset({"RESHAPE", "PERMUTE", "EXPAND", "SHRINK", "PAD", "FLIP", "INDEX", "CAST", "AFTER"})


class PassRecorder:
    """Fills in a pass's record until it has launches. `origin` maps what rewrites made to its tensor graph node."""

    def __init__(self, record: PassRecord) -> None:
        self.record = record
        self.origin: dict[UOp, UOp] = {u: u for u in record.toposort}
        # a buffer's options, which go with it through every rewrite -> its record
        self._buffers: IdentityMap[BufferRecord] = IdentityMap()
        # buffers of a source that a rewrite just made: the node of the source is known when the rewrite is done
        self._unplaced: list[tuple[BufferRecord, UOp]] = []
        # for rewrites at each depth: the UOps that rewrites inside them replaced, of unknown origin, and how many UOps
        # the outer rewrite had replaced before
        self._inner: dict[int, list[tuple[int, list[tuple[UOp, UOp]]]]] = {}

    # *** realized nodes

    @leaving_out("reasons of realized nodes")
    def node_put(self, node: UOp, axes: Axes, frame: FrameType) -> None:
        decision = read_decision(frame, frame.f_lineno)
        listed = tuple(axes) if axes is not None else None
        self.record.realized.setdefault(node, []).append(RealizeDecision(listed, decision))

    @leaving_out("reasons of realized nodes")
    def node_taken(self, node: UOp, frame: FrameType) -> None:
        # a rule may take a node out again; applying the pass takes out each STORE that is done
        if deciding_of(frame) is not None:
            self.record.realized.pop(node, None)

    # *** buffers

    def buffer_of(self, u: UOp) -> BufferRecord | None:
        """Returns the record of a buffer, None for an unknown buffer and for any other UOp."""
        return self._buffers.get(u.arg)

    def _add_buffer(self, record: BufferRecord) -> None:
        self.record.buffers.append(record)
        self._buffers.setdefault(record.stage.arg, record)

    @leaving_out("what rules decided about buffers")
    def rule_answered(self, frame: FrameType, line: int, answer: UOp | None) -> bool:
        """A rule about buffers answers. Returns whether the answer would remove a buffer that is forced."""
        function = deciding_of(frame)
        if function is None:
            return False
        kind = function.kind
        if kind == "makes":
            self._note_made(frame, line, answer)
            return False
        if kind in ("places", "returns"):
            if self.record.is_derived and answer is not None:
                self._note_placed(kind, frame, line, answer)
            return False
        operands = list(list_operands(frame).values())
        known = next(((u, record) for u in operands if (record := self.buffer_of(u)) is not None), None)
        if known is None:
            return False
        stage, record = known
        if kind == "stores":
            outcome = "stored"  # LOCAL: inside its kernel, when that is lowered
            record.stored = True
            if answer is not None and record.node is not None:
                record.buffer = memory_of(answer)
                self.record.held.setdefault(record.buffer, record.node)
                self.note_stores(record, answer)
        else:
            outcome = self._note_outcome(stage, record, answer)
        # the overlay may give the buffer other ranges before it asks
        indices = (u for u in operands if u.op.name == "INDEX" and u.src[0].op is stage.op)
        reader = next((u for u in indices if u.src[0].arg is stage.arg), None)
        if reader is not None:
            record.readers[stage, reader] = None
        # without a reader it is no matter of cost: the value is a constant, or in a buffer already
        if record.node in self.record.forced and reader is not None and outcome in ("removed", "narrowed"):
            return True
        # only a rule that looks at a reader can refuse to remove a buffer; any other rule does not apply
        if outcome != "same" and (outcome != "kept" or reader is not None):
            record.verdicts[outcome] = Verdict(stage, reader, read_decision(frame, line))
        return False

    def _note_outcome(self, stage: UOp, record: BufferRecord, answer: UOp | None) -> str:
        """Returns what a rule's answer does to a buffer: "same" if it changes nothing, else as in `Verdict`."""
        if answer is None:
            return "kept"
        value = find_under(answer, _WRAPS)
        if value.op is not stage.op:
            return "removed"
        if value.arg is not stage.arg and self.buffer_of(value) is not None:
            return "removed"  # a buffer that was there before
        if value.src == stage.src and value.arg == stage.arg:
            return "same"
        self._buffers.setdefault(value.arg, record)
        return "narrowed"

    def note_stores(self, record: BufferRecord, stored: UOp) -> None:
        """Notes the STOREs into which a rule turned a buffer, and the ENDs around them."""
        stored = find_under(stored, _WRAPS - {"AFTER"})
        for store in stored.src[1:] if stored.op.name == "AFTER" else ():
            while store.op.name in {"END", "BARRIER"}:
                self.origin[store] = record.node
                store = store.src[0]
            if store.op.name == "STORE":
                self.origin[store] = record.node

    def _note_placed(self, kind: str, frame: FrameType, line: int, answer: UOp) -> None:
        """Notes the node whose value a function of an unknown scheduler has put in memory."""
        if kind == "places":
            placed = answer.src[0].replace(tag=None)
        else:
            stores = (u for u in list_operands(frame).values() if u.op.name == "STORE")
            placed = next(stores, None) if answer.op.name == "END" else None
        node = self.origin.get(placed)
        if node is not None:
            self.record.realized.setdefault(node, []).append(RealizeDecision(None, read_decision(frame, line)))

    @leaving_out("ranges")
    def note_ranges(self, asked: Mapping[UOp, UOp | None]) -> None:
        """Notes ranges in an unknown scheduler: a node's from its INDEX, its source's from the INDEX of a rule."""
        if not self.record.is_derived:
            return
        for u, made in asked.items():
            is_index = u.op.name == "INDEX"
            node = self.origin.get(u.src[0] if is_index else u)
            if node is None or made is None or not (is_index or node.op.name in {"STORE", "REDUCE"}):
                continue
            outs = u.src[1:] if is_index else ()
            value = find_under(made, {"END"})
            indices = [s for s in (value, *value.src) if s.op.name == "INDEX"]
            if indices and len(outs) == len(node._shape or ()) * is_index:
                self.record.range_map.setdefault(node, (indices[-1].src[1:], outs))  # a STORE has its value last

    def _note_made(self, frame: FrameType, line: int, answer: UOp | None) -> None:
        """Notes the buffers that a rule put between an op and its sources."""
        before = next(iter(list_operands(frame).values()), None)
        if answer is None or before is None:
            return
        decision = read_decision(frame, line)
        for source, replaced in zip(before.src, answer.src, strict=False):
            stage = replaced.src[0] if replaced.op.name == "INDEX" else replaced
            if source is replaced or stage.op.name != stage_op() or self.buffer_of(stage) is not None:
                continue
            made = BufferRecord(self.origin.get(source), stage, decision)
            self._add_buffer(made)
            if made.node is None:
                self._unplaced.append((made, source))

    # *** rewrites

    @leaving_out("what the rewrites made")
    def rewritten(self, replaced: Mapping[UOp, UOp], around: Sequence[int] = ()) -> None:
        """A rewrite is done: `replaced` maps each UOp it went through to its replacement. For `around` see `Recorder`.
        The origins of what a rule replaces inside a rewrite are known when the rewrite around it is done."""
        origin = self.origin
        ops = type(self.record.tsink.op)
        stage, end = getattr(ops, stage_op()), ops.END
        inner, unknown = self._inner.pop(len(around), []), list[tuple[UOp, UOp]]()
        for number, (old, new) in enumerate(replaced.items()):
            while inner and inner[0][0] <= number:
                unknown += self._follow(inner.pop(0)[1])
            if old.op is stage:
                node = old.src[0]  # when the pass makes a buffer: still the node itself
                if self.record.is_derived:
                    node = origin.get(node, origin.get(old))
                known, ranged = self.buffer_of(old), find_under(new, {"RESHAPE"})
                if known is None and node in self.record.toposort:
                    self._add_buffer(BufferRecord(node, new if new.op is stage else old))
                elif known is not None and self.record.is_derived and ranged.op is stage and not known.stage.src[1:]:
                    known.stage = ranged  # it was placed before there were ranges
            elif old.op is end and old not in origin and old.src[0] in origin:
                origin[old] = origin[old.src[0]]
            unknown += self._follow([(old, new)])
        for _, pairs in inner:
            unknown += self._follow(pairs)
        if around and unknown:
            self._inner.setdefault(len(around) - 1, []).append((around[-1], unknown))
        for record, source in self._unplaced:
            record.node = origin.get(source)
        self._unplaced = [(record, source) for record, source in self._unplaced if record.node is None]

    def _follow(self, replaced: Iterable[tuple[UOp, UOp]]) -> list[tuple[UOp, UOp]]:
        """Returns the pairs whose origin is not known."""
        unknown: list[tuple[UOp, UOp]] = []
        for old, new in replaced:
            if old in self.origin:
                self.origin.setdefault(new, self.origin[old])
            elif old is not new and new not in self.origin:
                unknown.append((old, new))
        return unknown

    @leaving_out("the kernels of a schedule")
    def end(self, graph: UOp, created: Any) -> None:
        """Notes the launches that the graph of kernels became."""
        # AST -> the memory it writes -> node: layers of a network are one AST
        nodes: dict[UOp, dict[UOp | None, UOp]] = {}
        for uop in graph.toposort(is_outside_kernels):
            kernel, node = kernel_of(uop), self.origin.get(uop)
            if kernel is not None and node is not None:
                ast, arguments = kernel
                nodes.setdefault(ast, {})[memory_of(arguments[0]) if arguments else None] = node
        held = self.record.held
        for launch in list_launches(graph, created):
            of_ast = nodes.get(launch.ast, {})
            written = memory_of(launch.buffers[0]) if launch.buffers else None
            node = of_ast.get(written)
            if node is None and len(of_ast) == 1:
                node = next(iter(of_ast.values()))
            if node is None:
                node = held.get(written)  # its AST changed after the pass: its memory still names its node
            if node is not None and written is not None:
                held.setdefault(written, node)
            # what it writes may be a part of a node's value
            known = () if node is not None else (self.origin[u] for u in launch.ast.toposort() if u in self.origin)
            self.record.kernels.append(replace(launch, node=node, parts=tuple(dict.fromkeys(known))))


class RecordingMap(dict[Any, Any]):
    """A realize map: node -> realized axes (None: all). It reports each change with its frame. Forced nodes are in it
    from the start. It ignores a rule that asks for all axes of a released node; the pass may still realize some."""

    def __init__(self, recorder: PassRecorder) -> None:
        super().__init__(dict.fromkeys(recorder.record.forced))
        self._recorder = recorder

    def _put(self, node: UOp, axes: Axes, frame: FrameType) -> None:
        if axes is None and node in self._recorder.record.released:
            return
        # to list axes of a node that has all of them decides nothing
        if axes is None or self.get(node, ()) is not None:
            self._recorder.node_put(node, axes, frame)
        super().__setitem__(node, axes)

    def __setitem__(self, node: UOp, axes: Axes) -> None:
        self._put(node, axes, sys._getframe(1))

    def update(self, other: Iterable[tuple[UOp, Axes]], /) -> None:  # type: ignore[override]
        frame = sys._getframe(1)
        for node, axes in other:
            self._put(node, axes, frame)

    def __delitem__(self, node: UOp) -> None:
        self._recorder.node_taken(node, sys._getframe(1))
        super().__delitem__(node)


def find_ambient(toposort: Iterable[UOp], scope_ranges: frozenset[UOp]) -> dict[UOp, tuple[UOp, ...]]:
    """Maps a node to the RANGEs of vmap scopes that its value depends on, outer first: the RANGEs of its sources
    without the RANGEs that end at it. `UOp.ranges` is the same if tinygrad itself ends the RANGEs of a VMAPOUT."""
    found: dict[UOp, tuple[UOp, ...]] = {}
    for u in toposort if scope_ranges else ():
        inside = {r for s in u.src for r in found.get(s, ())}
        ended = u.src[1:] if u.op.name == "VMAPOUT" else u.ended_ranges
        inside = inside.union(scope_ranges.intersection(u.src)).difference(*(r.ranges for r in ended))
        if inside:
            found[u] = tuple(sorted(inside, key=lambda r: r.arg))
    return found


def is_outside_kernels(uop: UOp) -> bool:
    """A gate for `toposort`: the graph around kernels, without their ASTs."""
    return uop.op.name not in {"PROGRAM", "LINEAR"} and not (uop.op.name == "SINK" and uop.arg is not None)
