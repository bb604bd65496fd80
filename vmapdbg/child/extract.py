"""Turns what the recorder kept into the model. Runs in the child, after the snippet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import AxisType, UOp, renderer

from vmapdbg import model
from vmapdbg.child.program.accesses import find_accesses, find_open_loops
from vmapdbg.child.program.bounds import find_outside
from vmapdbg.child.program.programs import op_weight, render_program, target_limit
from vmapdbg.child.record.recorder import (
    BufferizeRecord,
    Disagreement,
    Launched,
    PassRecord,
    ScheduleRecord,
    explain_verdict,
)


def build_schedules(
    records: list[ScheduleRecord], target: str, told: Callable[[], object] | None = None
) -> tuple[model.Schedule, ...]:
    """Returns the schedules of a snippet in the order it made them, their kernels rendered for `target`. Calls `told`
    after each kernel."""
    built: dict[int, PassView] = {}
    schedules = []
    for index, record in enumerate(records):
        if record.passed is None:  # the graph was refused before the pass could look at it
            schedules.append(model.Schedule(index, record.line, 0, (), (), (), (), (), ()))
            continue
        if id(record.passed) not in built:
            built[id(record.passed)] = PassView(record.passed, target, told)
        schedules.append(built[id(record.passed)].build(index, record))
    return tuple(schedules)


class PassView:
    """The model's view of one run of the pass."""

    def __init__(self, record: PassRecord, target: str, told: Callable[[], object] | None = None):
        self.record, self.target, self.told = record, target, told
        self.ids = record.number_nodes()
        self.uops = list(self.ids)
        self.names: dict[UOp, str] = {}
        self.lines = self._find_lines()
        self.parts: dict[str, Any] | None = None
        # the layers of a network are one program many times
        self.accesses: dict[tuple[bytes, frozenset[str]], tuple[model.Access, ...]] = {}

    def build(self, index: int, asked: ScheduleRecord) -> model.Schedule:
        if self.parts is None:
            self.parts = {
                "nodes": tuple(self.build_node(u) for u in self.uops),
                "ranges": self.build_ranges(),
                "vmap_map": tuple(
                    model.VmapEntry(self.ids[u], self.render_all(ranges))
                    for u, ranges in self.record.context.vmap_map.items()
                    if u in self.ids
                ),
                "bufferizes": tuple(
                    self.build_bufferize(u, b) for u, b in self.record.bufferizes.items() if u in self.ids
                ),
                "kernels": tuple(self.build_kernels()),
                "copies": sum(launched.ast.op is not Ops.SINK for launched in self.record.kernels),
            }
        return model.Schedule(index=index, line=asked.line, outputs=tuple(asked.outputs), **self.parts)

    # *** names

    def render(self, u: UOp) -> str:
        """tinygrad's `render()`, remembering the parts: thousands of nodes share few index expressions."""
        if u not in self.names:
            for part in u.toposort(gate=lambda x: x not in self.names):
                self.names[part] = str(renderer.rewrite(part, ctx=self.names))
        return self.names[u]

    def render_all(self, ranges: Iterable[UOp]) -> tuple[str, ...]:
        return tuple(self.render(r) for r in ranges)

    def label(self, u: UOp) -> str:
        return f"{u.op.name} {self.ids[u]}" if u in self.ids else u.op.name

    def _find_lines(self) -> dict[UOp, str]:
        """node -> user's line. A node that tinygrad put in itself has the line of the first of its consumers."""
        lines: dict[UOp, str] = {}
        for u in reversed(self.uops):
            found = self._own_line(u)
            if found is None:
                consumers = self.record.consumers.get(u, {})
                found = next((lines[c] for c in consumers if c in lines), None)
            if found is not None:
                lines[u] = found
        return lines

    def _own_line(self, u: UOp) -> str | None:
        tags = [t for t in u.tag or () if isinstance(t, int) and t < len(self.record.notes)]
        notes = [note for t in tags for note in self.record.notes[t] or ()]
        return next((note.caller for note in notes if note.caller), None)

    # *** nodes

    def build_node(self, u: UOp) -> model.Node:
        ranges = self.record.context.range_map.get(u)
        return model.Node(
            id=self.ids[u],
            op=u.op.name,
            dtype=str(u.dtype).removeprefix("dtypes."),
            shape=_sizes(u._shape),
            src=tuple(self.ids[s] for s in u.src if s in self.ids),
            in_ranges=None if ranges is None else self.render_all(ranges[0]),
            out_ranges=None if ranges is None else self.render_all(ranges[1]),
            ambient=self.render_all(self.record.context.vmap_map.get(u, ())),
            realized=self.build_realized(u),
            line=self.lines.get(u),
            arg=self.describe_arg(u),
            outside=self.find_outside(ranges[0], u.src[0]._shape) if ranges is not None and u.src else (),
        )

    def find_outside(self, indices: Sequence[UOp], sizes: Sequence[Any] | None) -> tuple[model.Outside, ...]:
        """Returns the indices that leave their axes; `sizes` has those of the axes."""
        if sizes is None or len(sizes) != len(indices):
            return ()
        found = []
        for axis, (index, size) in enumerate(zip(indices, sizes, strict=True)):
            bounds = find_outside(index, size) if isinstance(size, int) else None
            if bounds is not None:
                found.append(model.Outside(axis, self.render(index), *bounds, size))
        return tuple(found)

    def find_outside_reads(self, record: BufferizeRecord) -> tuple[model.Outside, ...]:
        """The same for the indices of those who read a buffer."""
        found = (self.find_outside(index.src[1:], buffer.shape) for buffer, index in record.readers)
        return next((outside for outside in found if outside), ())

    def describe_arg(self, u: UOp) -> str:
        if u.op in GroupOp.Movement:
            return "(" + ", ".join(_describe_sizes(part) for part in u.marg) + ")"
        if u.op is Ops.REDUCE_AXIS:
            return f"{u.arg[0].name} {u.arg[1]}"
        if u.op.name in {"VMAPIN", "VMAPOUT"}:
            return "(" + ", ".join(self.render(v) for v in u.src[1:]) + ")"
        if u.op in {Ops.CONST, Ops.BUFFER, Ops.MSELECT, Ops.BIND, Ops.DEFINE_VAR} and u.arg is not None:
            return str(u.arg)
        if u.op is Ops.COPY:
            return str(u.device)
        return ""

    def build_realized(self, u: UOp) -> model.Realized | None:
        record = self.record
        if u in record.forced:
            reason, cause = record.forced[u]
            return model.Realized(tuple(range(len(u.shape))), reason, self.explain_forced(u, reason, cause))
        disagreement, ending = record.disagreements.get(u), record.endings.get(u)
        if disagreement is None and ending is None:
            if (stock_axes := record.context.realize_map.get(u)) is None:
                return None
            return model.Realized(tuple(stock_axes), "stock", "stock tinygrad does not say why")
        axes = record.context.realize_map.get(u) or []
        details = []
        if disagreement is not None:
            details.append(self.explain_disagreement(disagreement))
        if ending is not None:
            details.append(self.explain_ending(ending.ranges))
        reason = "consumers-disagree" if disagreement is not None else "ending-ranges"
        if (refusal := record.refusals.get(u)) is not None:
            reason = refusal.patch
            details.insert(0, refusal.detail)
        return model.Realized(tuple(sorted(axes)), reason, "; ".join(details))

    def explain_forced(self, u: UOp, reason: str, cause: UOp) -> str:
        if reason == "always":
            kept = " for a CONTIGUOUS over it" if u.op.name == "VMAPOUT" and u.arg is not None else ""
            return f"{u.op.name} is always realized{kept}"
        if reason == "output":
            return "an output of the schedule"
        if reason == "outer-reduce":
            return "a REDUCE over an OUTER range"
        if reason == "assign":
            return "an ASSIGN" if cause is u else f"the value of {self.label(cause)}"
        return f"source of {self.label(cause)}"

    def explain_disagreement(self, disagreement: Disagreement) -> str:
        shown: dict[str, str] = {}
        for consumer, r in disagreement.asked:
            shown.setdefault(self.render(r), self.label(consumer))
        where = disagreement.where if isinstance(disagreement.where, str) else self.render(disagreement.where)
        if len(shown) == 1:
            labels = [self.label(consumer) for consumer, _ in disagreement.asked]
            return f"{where}: {', '.join(labels[:3])} do not share one loop over {next(iter(shown))}"
        wants = [f"{label} asks {text}" for text, label in list(shown.items())[:3]]
        more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
        return f"{where}: {', '.join(wants)}{more}"

    def explain_ending(self, ranges: dict[UOp, UOp]) -> str:
        by_expand: dict[UOp, list[str]] = {}
        for r, expand in ranges.items():
            by_expand.setdefault(expand, []).append(self.render(r))
        parts = [f"{', '.join(names)} end{'s' * (len(names) == 1)} at {self.label(expand)}"
                 for expand, names in list(by_expand.items())[:3]]  # fmt: skip
        return "; ".join(parts)

    def build_ranges(self) -> tuple[model.Range, ...]:
        found: dict[UOp, None] = dict.fromkeys(sorted(self.record.scope_ranges, key=lambda r: -r.arg[0]))
        for ins, outs, *_ in self.record.context.range_map.values():
            for r in (*ins, *outs):
                found.update(r.ranges)
        for ambient in self.record.context.vmap_map.values():
            found.update(dict.fromkeys(ambient))
        return tuple(
            model.Range(self.render(r), _size(r.src[0]), r.arg[-1].name, r in self.record.scope_ranges) for r in found
        )

    # *** buffers

    def build_bufferize(self, node: UOp, record: BufferizeRecord) -> model.Bufferize:
        buffer = record.buffer
        size = math.prod(int(s) for s in buffer.shape)
        return model.Bufferize(
            node=self.ids[node],
            closed_ranges=self.render_all(buffer.src[1:]),
            ambient=self.render_all(record.ambient),
            size=size,
            bytes=size * buffer.dtype.itemsize,
            addrspace=buffer.arg.addrspace.name,
            outcome="kept" if record.stored else "removed",
            reason=self.explain_outcome(node, record),
            outside=self.find_outside_reads(record) if record.stored else (),
            left_open=self.render_all(r for r in record.left_open if r.arg[-1] is not AxisType.OUTER),
        )

    def explain_outcome(self, node: UOp, record: BufferizeRecord) -> str:
        if not self.record.kernels and not record.stored:
            return "the schedule failed before its buffers were made"
        if record.verdict is not None and record.verdict.kept == record.stored:
            return explain_verdict(record.verdict)
        if record.stored:
            return "an output of the schedule" if self._is_output(node) else "no rule removed it"
        return "folded: its reader has the same index, or its value is a constant"

    def _is_output(self, node: UOp) -> bool:
        return any(s.base is node for s in self.record.tsink.src)

    # *** kernels

    def build_kernels(self) -> Iterable[model.Kernel]:
        for launched in self.record.kernels:
            if launched.ast.op is Ops.SINK:
                yield self.build_kernel(launched)
            if self.told is not None:
                self.told()

    def build_kernel(self, launched: Launched) -> model.Kernel:
        ast, buffers, launches = launched.ast, launched.buffers, launched.count
        rendered = render_program(ast, self.target)
        program, work = rendered.spec, rendered.work
        uops = program.uops or []
        source = program.src.strip("\n") + "\n"
        program_key = ast.key, launched.variables
        if program_key not in self.accesses:
            self.accesses[program_key] = find_accesses(uops, source, launched.variables)
        nodes = self.find_computed(buffers)
        asked = sum(self.count_asked(u) for u in nodes)
        executed = work.ops * launches
        return model.Kernel(
            name=program.function_name,
            target=self.target,
            source=source,
            global_size=tuple(_size(s) for s in program.global_size),
            local_size=None if program.local_size is None else tuple(_size(s) for s in program.local_size),
            local_bytes=work.local_bytes,
            threads=work.threads,
            executed_ops=executed,
            bytes=work.bytes * launches,
            redundancy=round(executed / asked, 4) if asked else None,
            buffers=tuple(_buffer_args(uops, program.outs, program.ins)),
            nodes=tuple(sorted(self.ids[u] for u in nodes)),
            lines=tuple(sorted({self.lines[u] for u in nodes if u in self.lines}, key=_line_order)),
            outputs=tuple(self.ids[self.record.buffers[b]] for b in buffers[:1] if b in self.record.buffers),
            launches=launches,
            key=ast.key.hex(),
            accesses=self.accesses[program_key],
            fresh=self.is_fresh(buffers),
            open_loops=find_open_loops(uops),
            local_limit=target_limit(self.target),
        )

    def is_fresh(self, buffers: tuple[UOp, ...]) -> bool:
        """Most nodes get a new buffer. An ASSIGN writes into one that is there, an OUTER REDUCE adds to it."""
        node = self.record.buffers.get(buffers[0]) if buffers else None
        writers = sum(launched.buffers[:1] == buffers[:1] for launched in self.record.kernels)
        return node is not None and node.op not in {Ops.ASSIGN, Ops.REDUCE, Ops.STORE} and writers == 1

    def find_computed(self, buffers: tuple[UOp, ...]) -> list[UOp]:
        """The nodes a kernel computes: from the one it writes back to those whose buffers it reads."""
        written = [self.record.buffers[b] for b in buffers[:1] if b in self.record.buffers]
        read = {self.record.buffers[b] for b in buffers[1:] if b in self.record.buffers}
        if not written:
            return []
        found = written[0].toposort(gate=lambda u: u is written[0] or (u not in read and u.op is not Ops.KERNEL))
        return [u for u in found if u in self.ids and u.op is not Ops.BUFFER]

    def count_asked(self, u: UOp) -> int:
        """The ops the tensor graph asks for at this node: one an element, for each step of its ambient ranges."""
        if u.op is Ops.REDUCE_AXIS:
            op, elements = u.arg[0], _count_elements(u.src[0])
        elif u.op in GroupOp.ALU:
            op, elements = u.op, _count_elements(u)
        else:
            return 0
        batch = math.prod(int(r.vmax) + 1 for r in self.record.context.vmap_map.get(u, ()))
        operand = u.src[-1].dtype if u.op is not Ops.REDUCE_AXIS else u.dtype
        return elements * batch * op_weight(op, operand, self.target)


def _size(s: Any) -> int | str:
    if isinstance(s, UOp):
        return s.arg if s.op is Ops.CONST else s.render()
    return int(s)


def _sizes(shape: tuple[Any, ...] | None) -> tuple[int | str, ...] | None:
    return None if shape is None else tuple(_size(s) for s in shape)


def _describe_sizes(part: Any) -> str:
    if isinstance(part, tuple):
        return "(" + ", ".join(str(_size(s)) for s in part) + ")"
    return str(part) if isinstance(part, bool) else str(_size(part))


def _count_elements(u: UOp) -> int:
    return math.prod(int(s.vmax) if isinstance(s, UOp) else s for s in u.shape)


def _buffer_args(uops: list[UOp], outs: list[int], ins: list[int]) -> Iterable[model.BufferArg]:
    for u in sorted((u for u in uops if u.op is Ops.DEFINE_GLOBAL), key=lambda u: u.arg):
        size = u.ptrdtype.size
        access = "-".join(word for word, slots in (("read", ins), ("write", outs)) if u.arg in slots)
        dtype = str(u.dtype.base).removeprefix("dtypes.")
        yield model.BufferArg(f"data{u.arg}_{size}", size, dtype, access or "read")


def _line_order(line: str) -> tuple[str, int]:
    file, _, number = line.rpartition(":")
    return file, int(number)
