"""A schedule as tinygrad makes it: a list of ExecItems (0.12), or a LINEAR of CALLs (since March 2026)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

UOp = Any


@dataclass(frozen=True)
class ScheduledKernel:
    """One launch of a schedule.

    `ast` is what is compiled, a SINK for a compute kernel; `buffers` are its BUFFER (or PARAM) UOps in the order of
    its slots. `variables` has the values that the schedule itself gives to variables of this launch.
    """

    ast: UOp
    buffers: tuple[UOp, ...]
    is_compute: bool
    variables: dict[str, int] = field(default_factory=dict)


def find_kernels(created: Any) -> Iterable[ScheduledKernel]:
    """Yields the launches of what `create_schedule` returned, in order."""
    if isinstance(created, tuple):
        items, buffers = created
        for item, used in zip(items, buffers.src, strict=True):
            yield ScheduledKernel(item.ast, used.src, item.ast.op.name == "SINK", dict(item.fixedvars))
    else:
        for call in created.src:
            ast, *buffers = call.src
            if is_function(ast):
                continue
            yield ScheduledKernel(ast, tuple(buffers), ast.op.name == "SINK" and not is_copy(buffers))


def is_function(ast: UOp) -> bool:
    """Whether what is called is a graph of tensors, as an all-reduce is in 0.13: it gets a schedule of its own next."""
    return ast.op.name == "SINK" and ast.arg is None


def is_copy(buffers: Iterable[UOp]) -> bool:
    """From 0.14 on a SINK that stores what it loads from another device becomes a COPY when the schedule is made."""
    devices = {buffer.device for buffer in buffers if buffer.device is not None}
    return len(devices) > 1


def kernel_of(uop: UOp) -> tuple[UOp, tuple[UOp, ...]] | None:
    """Returns (AST, what it is called with) of a kernel in a graph of kernels, None for any other UOp."""
    if uop.op.name == "KERNEL":
        return uop.arg.ast, uop.src
    if uop.op.name == "CALL":
        return uop.src[0], uop.src[1:]
    return None
