"""What differs between releases of tinygrad: chosen by what the imported tinygrad has, not by its version number."""

import functools
import importlib
import inspect
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from vmapdbg.child.listen.records import Launch, UOp
from vmapdbg.child.memory import name_dtype
from vmapdbg.model.ops import STAGE_OPS, STORES

# the base of a tensor with nothing left to compute
_COMPUTED = frozenset({"BUFFER", "CONST", "BUFFER_VIEW", "MSTACK", "PARAM", "AFTER"})
SHARDED = frozenset({"MULTI", "UNSHARD"})
"""The ops that make one tensor of the shards of several devices."""
_VIEWS = SHARDED | {"RESHAPE", "EXPAND", "PERMUTE", "PAD", "SHRINK", "FLIP", "BITCAST", "DETACH", "AFTER", "ASSIGN"}
_MEMORY = frozenset({"BUFFER", "PARAM", "DEFINE_GLOBAL", "BUFFER_VIEW"})


@functools.cache
def stage_op() -> str:
    """Returns the op of a buffer that a rule may still remove."""
    from tinygrad.uop import Ops

    return next((name for name in STAGE_OPS if hasattr(Ops, name)), "STAGE")


# *** schedules


DEVICE_NUMBER = "_device_num"
"""The variable with another value on each device of a sharded tensor."""
CREATORS = ("create_schedule", "create_schedule_with_vars")
"""The function that makes launches of a graph of kernels: its name since December 2025, and before."""


def schedule_module() -> Any:
    """Returns the module with `create_schedule` and the schedule cache. Raises ImportError."""
    for name in ("tinygrad.schedule", "tinygrad.engine.schedule"):
        module = importlib.import_module(name)
        if any(hasattr(module, creator) for creator in CREATORS):
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


def is_complete(tensor: Any) -> bool:
    """Whether `Tensor.realize` has nothing to do for a tensor."""
    u = tensor.uop
    ask = getattr(u, "has_buffer_identity", None) or u.is_contiguous
    return getattr(u, "is_virtual", False) or u.device is None or ask()


def list_launches(graph: UOp, created: Any) -> Iterator[Launch]:
    """Yields the launches that `create_schedule` made of a graph, in order: of items (until 0.12), or of CALLs."""
    if isinstance(created, (tuple, list)):
        for item, arguments in _pair_items(graph, created):
            variables = {name: value for name, value in item.fixedvars.items() if name != DEVICE_NUMBER}
            yield Launch(item.ast, arguments, item.ast.op.name == "SINK", variables)
        return
    for call in created.src:
        ast, *buffers = call.src
        if ast.op.name == "SINK" and ast.arg is None:
            continue  # a graph of tensors, as an all-reduce in 0.13: it gets its own schedule next
        # from 0.14 on a SINK that stores what it loads from another device becomes a COPY when the schedule is made
        devices = {device for buffer in buffers if (device := device_of(buffer)) is not None}
        yield Launch(ast, tuple(buffers), ast.op.name == "SINK" and len(devices) <= 1)


def _pair_items(graph: UOp, created: Any) -> Iterator[tuple[Any, tuple[UOp, ...]]]:
    """Yields the items of a schedule, each with the UOps of its arguments. Before 0.12.0 an item has Buffers instead,
    and a kernel on several devices has an item for each: the first is taken."""
    if isinstance(created, tuple) and hasattr(created[1], "src"):
        items, arguments = created
        yield from zip(items, (used.src for used in arguments.src), strict=True)
        return
    kernels: dict[Any, tuple[UOp, ...]] = {}
    for u in graph.toposort():
        if (kernel := kernel_of(u)) is not None:
            ast, sources = kernel
            used = [source.buf_uop.buffer for source in sources if source.op.name != "BIND"]
            kernels[ast, tuple(id(getattr(one, "bufs", [one])[0]) for one in used)] = sources
    for item in created[0] if isinstance(created, tuple) else created:
        arguments = kernels.get((item.ast, tuple(map(id, item.bufs))))
        if arguments is not None:
            yield item, arguments


def kernel_of(uop: UOp) -> tuple[UOp, tuple[UOp, ...]] | None:
    """Returns (AST, arguments) of a kernel in a graph of kernels, None for any other UOp."""
    if uop.op.name == "KERNEL":
        return uop.arg.ast, uop.src
    if uop.op.name == "CALL":
        return uop.src[0], uop.src[1:]
    return None


def device_of(u: UOp) -> Any:
    """Returns the device of a UOp, or those it is spread over; None if it has none, as a variable has."""
    try:
        return u.device
    except AssertionError:
        return None


def find_under(u: UOp, ops: Container[str]) -> UOp:
    """Returns the UOp under some ops, along their first sources."""
    while u.op.name in ops and u.src:
        u = u.src[0]
    return u


def list_buffers_under(view: UOp) -> tuple[UOp, ...]:
    """Returns the BUFFER under a view, in 0.12 that of each device; nothing if the view is over something else."""
    found = find_under(view, _VIEWS)
    parts = found.src if found.op.name == "MSTACK" else (found,)
    return parts if all(part.op.name == "BUFFER" for part in parts) else ()


def buffer_under(view: UOp) -> UOp | None:
    """Returns the BUFFER under a view, of the first device if each has its own; None if it is over something else."""
    return next(iter(list_buffers_under(view)), None)


def list_writes(nodes: Iterable[UOp]) -> Iterator[tuple[UOp, UOp]]:
    """Yields (BUFFER, write) for each write of a graph to a BUFFER."""
    for u in nodes:
        if u.op.name in STORES:
            for buffer in list_buffers_under(u.src[0]):
                yield buffer, u


def find_assigned(roots: Iterable[UOp], nodes: Iterable[UOp]) -> set[UOp]:
    """Returns the BUFFERs that the graph of some tensors assigns to, without those that several writes change and that
    are all of a tensor: they are compared as this output. In 0.14 a variable gets its value by a write, too."""
    writes = Counter(buffer for buffer, _ in list_writes(nodes))
    shown = (find_under(root, SHARDED | {"RESHAPE", "AFTER", "ASSIGN"}) for root in roots)
    whole = {buffer for u in shown if u.op.name in {"BUFFER", "MSTACK"} for buffer in list_buffers_under(u)}
    found = {u for u, count in writes.items() if count == 1 or u not in whole}
    return {u for u in found if not getattr(u, "is_variable", False)}


def memory_of(pointer: UOp) -> UOp:
    """Returns the BUFFER or PARAM behind a pointer, a view or an argument of a kernel."""
    while pointer.op.name not in _MEMORY and pointer.src:
        pointer = pointer.src[0]
    return pointer


def list_shards(u: UOp) -> list[UOp]:
    """Returns the parts of a sharded tensor that have BUFFERs of their own, as in 0.12; else the tensor itself."""
    stacked = find_under(u, _VIEWS | {"MULTI"})
    return list(stacked.src) if stacked.op.name == "MSTACK" else [u]


# *** UOps

INDICES = frozenset({"index", "weakint"})
"""The dtypes of indices, which are no values of the program."""


def is_whole(root: UOp) -> bool:
    """Returns whether a UOp is the root of a graph of values; a simplification of indices has a root of indices."""
    return root.op.name == "SINK" and any(name_dtype(u.dtype) not in INDICES for u in root.src)


def first_element(buffer: UOp, is_stored: bool) -> UOp:
    """Returns the first element of a placeholder, to be loaded or to be stored."""
    from tinygrad.dtype import dtypes
    from tinygrad.uop.ops import UOp

    # with dtypes of pointers, an index says whether it is one
    if "ptr" not in inspect.signature(UOp.index).parameters:
        return buffer.index(0)
    index: Any = getattr(dtypes, "index", None) or dtypes.weakint  # type: ignore[attr-defined]  # not in 0.12
    return buffer.index(UOp.const(index, 0), ptr=is_stored)


def find_inputs(scheduled: UOp, leaves: Iterable[UOp]) -> dict[UOp, UOp]:
    """Maps leaves of a pass's graph to the snippet's BUFFERs, which the scheduler replaced to find cached schedules."""
    if scheduled.op.name == "CALL":
        slots = {u: getattr(u.arg, "slot", u.arg) for u in leaves if u.op.name == "PARAM"}
        return {u: scheduled.src[1 + slot] for u, slot in slots.items() if 0 <= slot < len(scheduled.src) - 1}
    from tinygrad.uop.ops import graph_rewrite

    rules = getattr(schedule_module(), "pm_pre_sched_cache", None)
    if rules is None:
        return {u: u for u in leaves}  # before there was a cache
    replaced: dict[UOp, UOp] = {}
    try:
        graph_rewrite(scheduled, rules, ctx=(replaced, {}, [0], [0]))  # later it counts, too
    except AttributeError:
        graph_rewrite(scheduled, rules, ctx=replaced)  # before 0.12
    return {new: old for old, new in replaced.items()}
