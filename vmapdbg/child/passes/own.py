"""Follows the own value of one node through the passes of the scheduler, into its kernels and its buffer. Runs in the
child.

What a node was before a pass, and what it is after it, is taken from what the rewrites of the pass have made of what.
Where they do not say it nothing stands for the node any more, and the path ends.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vmapdbg.check.value_path import Difference, NodePath, PassKind, PassStatus, PassValue
from vmapdbg.child.compare.wrong_buffer import align_buffer
from vmapdbg.child.evidence.packing import UNEXPECTED, CannotPack
from vmapdbg.child.passes.follow import ORDER, RUN, ScheduleFollower, doubt_first, settle
from vmapdbg.child.passes.forms import Form, find_buffers, find_memory, follow_forms, make_value
from vmapdbg.child.passes.inside import KernelValue, find_inside
from vmapdbg.child.passes.mixed_packer import MEMORY, find_base
from vmapdbg.child.passes.records import PassRun
from vmapdbg.child.passes.steps import describe_uop, find_range_map
from vmapdbg.reference.graph import Node, Unknown
from vmapdbg.reference.kinds import load
from vmapdbg.reference.value import Value
from vmapdbg.values.numbers import encode, make_plain

UOp = Any
INSIDE = "its kernel as the scheduler made it"
_MOST = 60
"""How long the expression is at most that stands for a node."""
_SHOWN = 8
"""How many elements are shown."""


class NodeFollower:
    """Follows nodes of one schedule, the outputs of which are followed."""

    def __init__(self, schedule: ScheduleFollower):
        self.schedule, self.packer, self.judge = schedule, schedule.packer, schedule.judge
        self.runs = [run for chain in schedule.chains for run in chain.runs]
        self._uops = {number: u for u, number in schedule.nodes.ids.items()}
        self._graphs: dict[UOp, dict[UOp, None]] = {}
        self._made_from: dict[int, dict[UOp, list[UOp]]] = {}
        ranged = (number for number, run in enumerate(self.runs) if find_range_map(run) is not None)
        self.ranged = next(ranged, None)

    def follow(self, number: int) -> NodePath:
        """Returns how the value of the node with an id goes through the passes."""
        u = self._uops.get(number)
        if self.ranged is None:
            reason = "tinygrad had the schedule in its cache: no pass gave its nodes ranges"
            return NodePath(number, (), "", (), reason=reason)
        if u is None or u not in self._list(self.runs[self.ranged].before):
            return NodePath(number, (), "", (), reason="the graph that was given ranges does not have it")
        return _OneNode(self, number, u).follow()

    def list_graph(self, run: PassRun) -> dict[UOp, None]:
        """Returns the UOps of the graph after a pass."""
        return self._list(run.after)

    def _list(self, sink: UOp) -> dict[UOp, None]:
        if sink not in self._graphs:
            self._graphs[sink] = dict.fromkeys(sink.toposort())
        return self._graphs[sink]

    def find_before(self, number: int, u: UOp) -> UOp | None:
        """Returns what a UOp was before a pass: the one that it was made of; of several, itself, or the one with its
        op. None where that is not known."""
        run = self.runs[number]
        if number not in self._made_from:
            made_from: dict[UOp, list[UOp]] = {}
            for old in self._list(run.before):
                made_from.setdefault(run.made.get(old), []).append(old)
            self._made_from[number] = made_from
        found = self._made_from[number].get(u, [])
        if u in found:
            return u
        if len(found) > 1:
            found = [old for old in found if old.op is u.op]
        return found[0] if len(found) == 1 else None


class _OneNode:
    """The path of one node: `u` is the UOp that the ranges are given to."""

    def __init__(self, follower: NodeFollower, number: int, u: UOp):
        self.follower, self.number, self.u = follower, number, u
        self.schedule, self.packer, self.judge = follower.schedule, follower.packer, follower.judge
        self.right = -1
        self.rows: list[PassValue] = []
        # for each row of a pass the run, and what was wrong with it
        self.wrong: dict[int, tuple[PassRun, Form]] = {}

    def follow(self) -> NodePath:
        history, begins = self._trace_back()
        if history[0].op.name == "STORE":
            return NodePath(self.number, (), "void", (), reason="it is a write, which has no value of its own")
        try:
            self.right = self.packer.pack(history[0])
            value = self.judge.evaluate([self.right])[0]
            if isinstance(value, Unknown):
                raise value
            if value.mask.all() and value.mask.size:
                raise Unknown("nobody has written its memory yet")
        except (CannotPack, Unknown, *UNEXPECTED) as error:
            return NodePath(self.number, (), str(self.u.dtype), (), reason=str(error))
        if begins:
            run = self.follower.runs[begins - 1]
            reason = "what the node was before it is not known"
            self.rows.append(PassValue(run.name, run.place, "unknown", reason=reason))
        for offset, u in enumerate(history[1:]):
            self._judge_pass(self.follower.runs[begins + offset], [Form("value", u, history[offset])])
        scopes = [self.packer.find_range(name) for name in value.ranges]
        ended = self._follow_on([r for r in scopes if r is not None])
        node = self.packer.graph.nodes[self.right]
        numbers, total = _show(value, node.dtype)
        steps = value.numbers.shape[: len(value.ranges)]
        passes = self._settle()
        path = NodePath(self.number, node.shape, node.dtype, passes, steps, numbers, total, ended=ended)
        return self._explain(path)

    def _trace_back(self) -> tuple[list[UOp], int]:
        """Returns what the node was, from the first graph in which that is known up to its ranges, and the number of
        the first pass that was given it."""
        assert self.follower.ranged is not None
        history = [self.u]
        for number in reversed(range(self.follower.ranged)):
            before = self.follower.find_before(number, history[0])
            if before is None or not _has_shape_of(before, history[0]):
                return history, number + 1
            history.insert(0, before)
        return history, 0

    def _follow_on(self, scopes: Sequence[UOp]) -> str | None:
        """Adds the rows from the pass on that gives ranges. Returns the pass after which nothing stands for the node.
        `scopes` are the ranges of the scopes that its value depends on."""
        follower = self.follower
        assert follower.ranged is not None
        first = follower.runs[follower.ranged]
        start = self._find_start(first, scopes)
        if start is None:
            return first.name
        forms = [start]
        inside: list[KernelValue] = []
        for number, run in enumerate(follower.runs[follower.ranged :]):
            graph = follower.list_graph(run)
            before = forms
            if number:
                forms = follow_forms(forms, run.made, graph)
            forms = find_buffers(forms, graph, self.packer)
            inside += find_inside(before, run)
            if forms:
                self._judge_pass(run, forms)
            elif not inside:
                return run.name
            else:
                break
        for one in inside:
            self._judge_inside(one)
        self._judge_buffer(forms)
        return None

    def _find_start(self, run: PassRun, scopes: Sequence[UOp]) -> Form | None:
        """Returns what stands for the node after the pass that gives ranges, None where nothing is known to."""
        range_map: Any = find_range_map(run)
        made = run.made.get(self.u)
        if made is None or made not in self.follower.list_graph(run):
            return None
        if made.op.name in MEMORY:
            # it keeps its axes
            return Form("value", made, self.u)
        if find_base(made).op.name == "AFTER":
            return Form("buffer", made, self.u)
        if self.u not in range_map:
            return None
        return make_value(self.u, made, range_map[self.u], scopes)

    # *** rows

    def _judge_pass(self, run: PassRun, forms: Sequence[Form]) -> None:
        judged = [(form, self._judge(run.name, "rewrite", functools.partial(self._compare, form))) for form in forms]
        form, value = _choose(judged)
        if value.status == "wrong":
            self.wrong[len(self.rows)] = (run, form)
        self.rows.append(replace(value, place=run.place, became=describe_uop(form.u, _MOST)))

    def _judge(self, name: str, kind: PassKind, compare: Callable[[], Difference | None]) -> PassValue:
        return self.schedule.judge_value(name, kind, compare)

    def _compare(self, form: Form) -> Difference | None:
        return self.judge.compare(*self._pack(form), with_more_ranges=True)

    def _pack(self, form: Form) -> tuple[int, int]:
        return self._fit(form.add_right(self.packer, self.right), self.packer.pack(form.u))

    def _fit(self, right: int, got: int) -> tuple[int, int]:
        """Returns a value and what was got in place of it, in the shape of the latter: memory has one axis."""
        nodes = self.packer.graph.nodes
        shape = nodes[got].shape
        if math.prod(nodes[right].shape) != math.prod(shape):
            raise CannotPack("what stands for it has another size")
        if nodes[right].shape != shape:
            right = self.packer.graph.add(Node("reshape", nodes[right].dtype, shape, (right,)))
        return right, got

    def _judge_inside(self, one: KernelValue) -> None:
        """Adds the value inside of a kernel."""
        kernel: int | None = None

        def compare() -> Difference | None:
            nonlocal kernel
            order = self.schedule.order
            if order is None:
                raise Unknown(self.schedule.order_refused)
            launch = one.find_launch(order)
            kernel = order.number_kernel(launch)
            right = one.form.add_right(self.packer, self.right)
            return self.judge.compare_value(right, one.evaluate(order, launch, self.packer, self.judge))

        value = self._judge(INSIDE, "kernel", compare)
        self.rows.append(replace(value, became=describe_uop(one.form.u, _MOST), kernel=kernel))

    def _judge_buffer(self, forms: Sequence[Form]) -> None:
        """Adds what the buffer of the node holds, when its kernel has run by numpy, and when it has run."""
        order = self.schedule.order
        held = next(((form, memory) for form in forms if (memory := find_memory(form)) is not None), None)
        if held is not None and order is not None:
            form, memory = held

            def compare() -> Difference | None:
                if len(order.list_writers(memory)) != 1:
                    raise Unknown("its buffer is written by several kernels")
                slot = order.held.get(memory)
                if slot is None:
                    raise Unknown("no kernel writes its buffer")
                return self.judge.compare(*self._fit(form.add_right(self.packer, self.right), slot), True)

            self.rows.append(self._judge(ORDER, "order", compare))
        written = [one for one in self.schedule.one.call.evidence.buffers if one.node == self.number]
        if len(written) == 1:
            self.rows.append(self._judge(RUN, "run", functools.partial(self._compare_written, written[0])))

    def _compare_written(self, buffer: Any) -> Difference | None:
        if buffer.is_memory:
            raise Unknown("its buffer holds other values, too")
        value = self.judge.evaluate([self.right])[0]
        if isinstance(value, Unknown):
            raise value
        dtype = self.packer.graph.nodes[self.right].dtype
        if dtype != buffer.dtype:
            raise Unknown(f"its buffer has another dtype: {buffer.dtype} instead of {dtype}")
        right = encode(value.numbers, dtype)
        got = align_buffer(buffer, self.schedule.read(buffer.blob), right, value.ranges)
        if isinstance(got, str):
            raise Unknown(got)
        return self.judge.compare_value(self.right, Value(load(got), value.ranges))

    def _settle(self) -> tuple[PassValue, ...]:
        """Returns the rows as they are told. A value in a kernel may be right, though what comes of it is not."""
        settled = iter(settle([row for row in self.rows if row.kind != "kernel"]))
        return tuple(row if row.kind == "kernel" else next(settled) for row in self.rows)

    # *** what makes it wrong

    def _explain(self, path: NodePath) -> NodePath:
        first = next((i for i, one in enumerate(path.passes) if one.status == "wrong"), None)
        if first is None or first not in self.wrong:
            return path
        run, form = self.wrong[first]
        rewrite, reason = self.schedule.find_step(run, form.before)
        return replace(path, rewrite=rewrite, reason=doubt_first(path.passes, first, reason))


_WEIGHTS: dict[PassStatus, int] = {"wrong": 2, "right": 1, "unknown": 0}


def _choose(judged: Sequence[tuple[Form, PassValue]]) -> tuple[Form, PassValue]:
    """Returns what is said of a pass, of all that stands for the node after it: the first that is wrong, or right."""
    return max(judged, key=lambda one: _WEIGHTS[one[1].status])


def _has_shape_of(u: UOp, other: UOp) -> bool:
    return u._shape == other._shape and u.dtype == other.dtype


def _show(value: Value, dtype: str) -> tuple[tuple[float | int | str, ...], int]:
    """Returns the first elements of a value as they are shown, and how many there are."""
    flat = value.numbers.reshape(-1)
    undefined = np.broadcast_to(value.mask, value.numbers.shape).reshape(-1)
    shown = ["undefined" if undefined[i] else make_plain(flat[i]) for i in range(min(_SHOWN, flat.size))]
    return tuple(shown), flat.size
