"""How the faults are planted: each function takes a `pytest.MonkeyPatch` and breaks one thing in the scheduler.

Rules of a PatternMatcher hold frozen copies of their functions, so a matcher is rebuilt if one of its rules changes.
Faults of kernels are planted in the AST that the scheduler made, before it is lowered.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


def overlay(name: str) -> Any:
    """Returns a module of the overlay, after tinygrad has imported what it patches."""
    import tinygrad  # noqa: F401

    return sys.modules[f"tinygrad_overlay.{name}"]


# *** switches


def without_patches(*names: str) -> Plant:
    """Some patches off, as by --patches."""

    def plant(patch: Patch) -> None:
        state = overlay("_state")
        patch.setattr(state, "patches", frozenset(state.patches) - set(names))

    return plant


# *** the pass


def rebuild_apply(patch: Patch, **changed: Any) -> None:
    """Changes functions of the overlay's pass that `create_bufferize_and_index` calls, and rebuilds its matcher."""
    indexing, apply = overlay("schedule.indexing"), overlay("schedule._apply")
    for name, function in changed.items():
        patch.setattr(apply, name, function)
    rule = apply.create_bufferize_and_index
    fresh = types.FunctionType(rule.__code__, apply.__dict__, rule.__name__, rule.__defaults__)
    replaced = overlay("_patching").replace_rules(
        indexing.pm_apply_rangeify, lambda f: f.__name__ == "create_bufferize_and_index", fresh
    )
    patch.setattr(indexing, "pm_apply_rangeify", replaced)


def change_bufferize(change: Callable[[UOp, tuple[UOp, ...]], UOp]) -> Plant:
    """Changes BUFFERIZE and INDEX of the nodes that have ambient ranges."""

    def plant(patch: Patch) -> None:
        stock = overlay("schedule._apply").index_source

        def index_source(ctx: Any, x: UOp, s: UOp) -> UOp:
            result = stock(ctx, x, s)
            ambient = ctx.vmap_map.get(s, ())
            buffer = result.src[0] if result.op is Ops.INDEX else result
            if not ambient or buffer.op is not Ops.BUFFERIZE:
                return result
            return change(result, ambient)

        rebuild_apply(patch, index_source=index_source)

    return plant


def _with_ranges(result: UOp, closed: tuple[UOp, ...], index: tuple[UOp, ...]) -> UOp:
    buffer = result.src[0].replace(src=(result.src[0].src[0], *closed))
    return buffer.index(*index)


def drop_first_ambient(result: UOp, ambient: tuple[UOp, ...]) -> UOp:
    if result.op is not Ops.INDEX:
        return result
    return _with_ranges(result, result.src[0].src[2:], result.src[2:])


def swap_ambient_in_index(result: UOp, ambient: tuple[UOp, ...]) -> UOp:
    if result.op is not Ops.INDEX or len(ambient) < 2:
        return result
    return result.replace(src=(result.src[0], result.src[2], result.src[1], *result.src[3:]))


def close_ambient_twice(result: UOp, ambient: tuple[UOp, ...]) -> UOp:
    if result.op is not Ops.INDEX:
        return result
    return _with_ranges(result, (ambient[0], *result.src[0].src[1:]), (ambient[0], *result.src[1:]))


def read_first_row(result: UOp, ambient: tuple[UOp, ...]) -> UOp:
    if result.op is not Ops.INDEX:
        return result
    return result.replace(src=(result.src[0], result.src[1].const_like(0), *result.src[2:]))


def change_movement(op: Ops, change: Callable[..., tuple[UOp, ...]]) -> Plant:
    """Changes the input ranges of one movement op: `change(in_shape, arg, output ranges)`."""

    def plant(patch: Patch) -> None:
        indexing = overlay("schedule.indexing")
        stock = indexing.apply_movement_op

        def apply_movement_op(done: Ops, in_shape: Any, arg: Any, rngs: tuple[UOp, ...]) -> tuple[UOp, ...]:
            if done is op:
                return change(in_shape, arg, rngs)
            return stock(done, in_shape, arg, rngs)

        patch.setattr(indexing, "apply_movement_op", apply_movement_op)

    return plant


def change_input_ranges(op: Ops, change: Callable[..., tuple[UOp, ...]]) -> Plant:
    """Changes the input ranges of one op: `change(ctx, x, out_rngs, input ranges)`."""

    def plant(patch: Patch) -> None:
        assignment = overlay("schedule.indexing").RangeAssignment
        stock = assignment.input_ranges

        def input_ranges(self: Any, x: UOp, out_rngs: tuple[UOp, ...], ambient: dict[UOp, UOp]) -> tuple[UOp, ...]:
            rngs = stock(self, x, out_rngs, ambient)
            return change(self.ctx, x, out_rngs, rngs) if x.op is op else rngs

        patch.setattr(assignment, "input_ranges", input_ranges)

    return plant


def reduce_other_axis(ctx: Any, x: UOp, out_rngs: tuple[UOp, ...], rngs: tuple[UOp, ...]) -> tuple[UOp, ...]:
    return rngs[::-1]


def first_consumer_wins(patch: Patch) -> None:
    assignment = overlay("schedule.indexing").RangeAssignment
    patch.setattr(assignment, "merge_consumers", lambda self, x, consumer_rngs: consumer_rngs[0])


def no_ending_ranges(patch: Patch) -> None:
    """The realize point where ranges end is gone: nothing is realized for being read many times."""
    assignment = overlay("schedule.indexing").RangeAssignment
    patch.setattr(assignment, "end_ranges", lambda self, x, out_rngs, ambient: (out_rngs, ambient))


def partial_realize(patch: Patch) -> None:
    """PCONTIG at its most: whatever can be is kept in LOCAL memory, by no budget and no guard."""
    from tinygrad.helpers import PCONTIG

    patch.setattr(PCONTIG, "value", 3)


def guard_never_refuses(patch: Patch) -> None:
    """The patches of fusion are on, and their guard finds no loss."""
    state = overlay("_state")
    patch.setattr(state, "patches", frozenset(state.patches) | {"fuse-broadcast", "local-budget", "fusion-guard"})
    patch.setattr(overlay("schedule._policy"), "too_slow_for_local", lambda *arguments: None)
    patch.setattr(overlay("schedule._fusion"), "find_losses", lambda made, stock: {})


def remove_every_bufferize(patch: Patch) -> None:
    """The cost function never refuses: every buffer that may be removed is computed by its readers."""
    from tinygrad.schedule import rangeify as upstream

    for name in ("pm_const_buffer_folding", "pm_remove_bufferize"):
        changed = overlay("_patching").replace_rules(
            getattr(upstream, name), lambda f: f.__name__ == "remove_bufferize", always_remove
        )
        patch.setattr(upstream, name, changed)


def always_remove(src: UOp, buf: UOp, idx: UOp) -> UOp | None:
    from tinygrad.schedule import rangeify as upstream

    if src.op is Ops.CONTIGUOUS or not buf.arg.removable:
        return None
    ranges = {k: v for k, v in zip(buf.src[1:], idx.src[1:], strict=True) if k.op is Ops.RANGE}
    return src.substitute(ranges, extra_pm=upstream.pm_gate_substitute)


# *** stores


def change_stored(change: Callable[[UOp], UOp]) -> Plant:
    """Changes what `bufferize_to_store` makes of a GLOBAL buffer: AFTER(buffer, END(STORE))."""

    def plant(patch: Patch) -> None:
        rangeify = overlay("schedule.rangeify")
        stock = rangeify.stock_bufferize_to_store

        def bufferize_to_store(ctx: Any, x: UOp, idx: UOp, allow_locals: bool) -> UOp | None:
            stored = stock(ctx, x, idx, allow_locals)
            if stored is None or stored.op is not Ops.AFTER or stored.src[0].op is not Ops.BUFFER:
                return stored
            return change(stored)

        patch.setattr(rangeify, "stock_bufferize_to_store", bufferize_to_store)

    return plant


def shorten_buffer(stored: UOp) -> UOp:
    buffer = stored.src[0]
    return stored.substitute({buffer: buffer.replace(arg=buffer.arg - 1)})


def leave_open(patch: Patch) -> None:
    """close-ranges closes nothing, and thinks it did."""
    patch.setattr(overlay("schedule.rangeify"), "close_ranges", lambda after, x: after)


def end_one_less(stored: UOp) -> UOp:
    buffer, ended = stored.src
    return stored.replace(src=(buffer, ended.replace(src=ended.src[:-1]))) if len(ended.src) > 2 else stored


# *** the kernels' ASTs


def change_kernels(change: Callable[[UOp], UOp]) -> Plant:
    """Changes the AST of the schedule's last kernel."""

    def plant(patch: Patch) -> None:
        engine = overlay("engine.schedule")
        stock = engine.stock_create_schedule

        def create_schedule(sched_sink: UOp) -> tuple[list[Any], UOp]:
            items, buffers = stock(sched_sink)
            kernels = [item for item in items if item.ast.op is Ops.SINK]
            for item in kernels[-1:]:
                item.ast = change(item.ast)
            return items, buffers

        patch.setattr(engine, "stock_create_schedule", create_schedule)

    return plant


def _store(ast: UOp) -> UOp:
    return next(u for u in ast.toposort() if u.op is Ops.STORE)


def change_address(change: Callable[[UOp], UOp]) -> Callable[[UOp], UOp]:
    """Changes the address of the kernel's store."""

    def rewrite(ast: UOp) -> UOp:
        store = _store(ast)
        index = store.src[0]
        moved = index.replace(src=(index.src[0], change(index.src[1]), *index.src[2:]))
        return ast.substitute({store: store.replace(src=(moved, *store.src[1:]))})

    return rewrite


def change_load(change: Callable[[UOp], UOp]) -> Callable[[UOp], UOp]:
    """Changes the address of the kernel's first load."""

    def rewrite(ast: UOp) -> UOp:
        store = _store(ast)
        index = next(u for u in store.src[1].toposort() if u.op is Ops.INDEX)
        moved = index.replace(src=(index.src[0], change(index.src[1]), *index.src[2:]))
        return ast.substitute({index: moved})

    return rewrite


def change_stride(by: int) -> Callable[[UOp], UOp]:
    """The largest stride of an address is off by so much."""

    def change(address: UOp) -> UOp:
        products = [u for u in address.toposort() if u.op is Ops.MUL and u.src[1].op is Ops.CONST]
        widest = max(products, key=lambda u: u.src[1].arg)
        return address.substitute({widest: widest.src[0] * (widest.src[1].arg + by)})

    return change


def swap_ranges(address: UOp) -> UOp:
    a, b = sorted((u for u in address.toposort() if u.op is Ops.RANGE), key=lambda u: u.arg)[:2]
    apart = UOp.variable("apart", 0, int(a.vmax))
    return address.substitute({a: apart}).substitute({b: a}).substitute({apart: b})


def lose_range(address: UOp) -> UOp:
    lost = max((u for u in address.toposort() if u.op is Ops.RANGE), key=lambda u: u.vmax)
    return address.substitute({lost: lost.const_like(0)})


def resize_range(by: int, axis_type: AxisType = AxisType.LOOP) -> Callable[[UOp], UOp]:
    """A loop of the kernel runs so many steps more."""

    def rewrite(ast: UOp) -> UOp:
        found = [u for u in ast.toposort() if u.op is Ops.RANGE and u.arg[-1] is axis_type]
        widest = max(found, key=lambda u: u.vmax)
        return ast.substitute({widest: widest.replace(src=(UOp.const(dtypes.index, int(widest.vmax) + 1 + by),))})

    return rewrite


def read_own_output(ast: UOp) -> UOp:
    """An alias: the kernel reads the buffer that it writes."""
    store = _store(ast)
    output = store.src[0].src[0]
    index = next(u for u in store.src[1].toposort() if u.op is Ops.INDEX)
    return ast.substitute({index: index.replace(src=(output, *index.src[1:]))})


# *** lowering


def change_lowered(change: Callable[[UOp], dict[UOp, UOp]]) -> Plant:
    """Replaces UOps of a kernel that is lowered, before it becomes a linear program."""

    def plant(patch: Patch) -> None:
        from tinygrad import codegen

        stock = codegen.full_rewrite_to_sink

        def full_rewrite_to_sink(*args: Any, **kwargs: Any) -> UOp:
            sink = stock(*args, **kwargs)
            return sink.substitute(change(sink))

        patch.setattr(codegen, "full_rewrite_to_sink", full_rewrite_to_sink)

    return plant


def drop_barriers(sink: UOp) -> dict[UOp, UOp]:
    """The BARRIER between the stores to LOCAL memory and the loads of other threads is gone."""
    return {u: u.src[0] for u in sink.toposort() if u.op is Ops.BARRIER}


def drop_gates(sink: UOp) -> dict[UOp, UOp]:
    """Every thread of a group stores, not the first alone."""
    gated = [u for u in sink.toposort() if u.op is Ops.STORE and len(u.src[0].src) > 2]
    return {u: u.replace(src=(u.src[0].replace(src=u.src[0].src[:2]), *u.src[1:])) for u in gated}


def forget_group_memory(patch: Patch) -> None:
    """A reduce is split over a group of threads, and the memory that it needs is not counted."""
    from tinygrad.codegen.opt import Opt, OptOps, heuristic, postrange

    def group(k: Any) -> Any:
        k.apply_opt(Opt(OptOps.GROUPTOP, 0, 16384))
        return k

    patch.setattr(postrange, "check", lambda condition, message="": None)
    patch.setattr(heuristic, "hand_coded_optimizations", group)


def one_thread(patch: Patch) -> None:
    """No loop becomes a dimension of the launch: the kernel runs in one thread."""
    from tinygrad.codegen.opt import heuristic, postrange

    patch.setattr(postrange.Scheduler, "convert_loop_to_global", lambda self: None)
    patch.setattr(heuristic, "hand_coded_optimizations", lambda k: k)
