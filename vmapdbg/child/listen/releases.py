"""What differs between releases of tinygrad: chosen by what the imported tinygrad has, not by its version number."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Container, Iterable, Sequence
from typing import Any

from vmapdbg.child.listen.records import Launch, UOp
from vmapdbg.model.ops import STAGE_OPS

# the base of a tensor with nothing left to compute
_COMPUTED = frozenset({"BUFFER", "CONST", "BUFFER_VIEW", "MSTACK", "PARAM", "AFTER"})
_MEMORY = frozenset({"BUFFER", "PARAM", "DEFINE_GLOBAL", "BUFFER_VIEW"})


@functools.cache
def stage_op() -> str:
    """Returns the op of a buffer that a rule may still remove."""
    from tinygrad.uop import Ops

    return next((name for name in STAGE_OPS if hasattr(Ops, name)), "STAGE")


# *** schedules


def schedule_module() -> Any:
    """Returns the module with `create_schedule` and the schedule cache. Raises ImportError."""
    for name in ("tinygrad.schedule", "tinygrad.engine.schedule"):
        module = importlib.import_module(name)
        if hasattr(module, "create_schedule"):
            return module
    raise ImportError("this tinygrad has no create_schedule")


def schedule_tensors(tensors: Sequence[Any]) -> None:
    """Has tinygrad schedule tensors together, and not run them."""
    # schedule() and schedule_linear() refuse bound variables; the schedule itself is the same
    names = ("linear_with_vars", "schedule_linear", "schedule_with_vars")
    schedule = next(getattr(tensors[0], name) for name in names if hasattr(tensors[0], name))
    schedule(*tensors[1:])


def is_computed(tensor: Any) -> bool:
    """Whether there is nothing left to schedule for a tensor."""
    return tensor.uop.base.op.name in _COMPUTED or tensor.uop.is_realized


def list_launches(created: Any) -> list[Launch]:
    """Returns the launches of what `create_schedule` returned, in order: ExecItems (0.12), or CALLs of a LINEAR."""
    if isinstance(created, tuple):
        items, buffers = created
        pairs = zip(items, buffers.src, strict=True)
        return [Launch(item.ast, used.src, item.ast.op.name == "SINK", dict(item.fixedvars)) for item, used in pairs]
    launches = []
    for call in created.src:
        ast, *buffers = call.src
        if ast.op.name == "SINK" and ast.arg is None:
            # a graph of tensors, as an all-reduce is in 0.13: it gets a schedule of its own next
            continue
        # from 0.14 on a SINK that stores what it loads from another device becomes a COPY when the schedule is made
        devices = {buffer.device for buffer in buffers if buffer.device is not None}
        launches.append(Launch(ast, tuple(buffers), ast.op.name == "SINK" and len(devices) <= 1))
    return launches


def kernel_of(uop: UOp) -> tuple[UOp, tuple[UOp, ...]] | None:
    """Returns (AST, arguments) of a kernel in a graph of kernels, None for any other UOp."""
    if uop.op.name == "KERNEL":
        return uop.arg.ast, uop.src
    if uop.op.name == "CALL":
        return uop.src[0], uop.src[1:]
    return None


def find_under(u: UOp, ops: Container[str]) -> UOp:
    """Returns the UOp under some ops, along their first sources."""
    while u.op.name in ops and u.src:
        u = u.src[0]
    return u


def memory_of(pointer: UOp) -> UOp:
    """Returns the BUFFER or PARAM behind a pointer, a view or an argument of a kernel."""
    while pointer.op.name not in _MEMORY and pointer.src:
        pointer = pointer.src[0]
    return pointer


# *** UOps


def first_element(buffer: UOp, is_stored: bool) -> UOp:
    """Returns the first element of a placeholder, to be loaded or to be stored."""
    from tinygrad.dtype import dtypes
    from tinygrad.uop.ops import UOp

    # while dtypes had pointers, an index said whether it is one
    if "ptr" not in inspect.signature(UOp.index).parameters:
        return buffer.index(0)
    index: Any = getattr(dtypes, "index", None) or dtypes.weakint  # type: ignore[attr-defined]  # not in 0.12
    return buffer.index(UOp.const(index, 0), ptr=is_stored)


def find_inputs(scheduled: UOp, leaves: Iterable[UOp]) -> dict[UOp, UOp]:
    """Maps each leaf of a pass's graph to the BUFFER of the snippet that it replaces. `scheduled` is the scheduler's
    input: the scheduler puts other leaves in, to find schedules in its cache."""
    if scheduled.op.name == "CALL":
        slots = {u: getattr(u.arg, "slot", u.arg) for u in leaves if u.op.name == "PARAM"}
        return {u: scheduled.src[1 + slot] for u, slot in slots.items() if 0 <= slot < len(scheduled.src) - 1}
    from tinygrad.engine.schedule import pm_pre_sched_cache
    from tinygrad.uop.ops import graph_rewrite

    replaced: dict[UOp, UOp] = {}
    graph_rewrite(scheduled, pm_pre_sched_cache, ctx=(replaced, {}))
    return {new: old for old, new in replaced.items()}
