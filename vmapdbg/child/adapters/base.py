"""What every adapter answers, and how: the parts that are the same for all releases are here."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vmapdbg.child.adapters.renderers import RendererMissing, make_renderer

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


@dataclass(frozen=True)
class CompiledKernel:
    """A rendered kernel: `outs` and `ins` are the slots of the buffers it writes and reads, `uops` its linear program.
    Sizes are ints, or UOps where they depend on a variable; `local_size` is None on targets without groups."""

    name: str
    source: str
    global_size: tuple[Any, ...]
    local_size: tuple[Any, ...] | None
    outs: tuple[int, ...]
    ins: tuple[int, ...]
    uops: tuple[UOp, ...]


class Adapter:
    """One family of tinygrad releases. `missing` has a line for each part that is switched off."""

    family = ""
    # the op of a buffer that a rule may still remove; the ops of a reduce in the tensor graph
    stage_op = "STAGE"
    reduce_ops: frozenset[str] = frozenset({"REDUCE"})
    # the modules that create a schedule, and what each must have
    needs: tuple[tuple[str, str, str], ...] = ()
    # a tensor whose base is one of these has nothing left to compute
    settled_ops: frozenset[str] = frozenset({"BUFFER", "CONST", "BUFFER_VIEW", "MSTACK", "PARAM", "AFTER"})

    @functools.cached_property
    def missing(self) -> list[str]:
        """Looked up when it is asked for, since the modules are imported for it."""
        return [
            f"{part} is switched off: this tinygrad has no {module}.{name}"
            for module, name, part in self.needs
            if not _has(module, name)
        ]

    def make_renderer(self, target: str) -> Any:
        """Returns the renderer of a target, made without its device or compiler. Raises RendererMissing."""
        return make_renderer(target)

    def has_target(self, target: str) -> str | None:
        """Returns None where `target` can be rendered, else the line that says why not."""
        try:
            self.make_renderer(target)
        except RendererMissing as error:
            return f"target {target} is switched off: {error}"
        return None

    def find_kernels(self, created: Any) -> list[ScheduledKernel]:
        """Returns the launches of what `create_schedule` returned, in order."""
        raise NotImplementedError

    def compile(self, ast: UOp, target: str) -> CompiledKernel:
        """Renders the AST of a compute kernel for a target. Raises what tinygrad raises, and RendererMissing."""
        raise NotImplementedError

    def first_element(self, buffer: UOp, is_stored: bool) -> UOp:
        """Returns the first element of a placeholder, to be loaded or to be stored."""
        from tinygrad.dtype import dtypes
        from tinygrad.uop.ops import UOp

        index: Any = getattr(dtypes, "index", None) or dtypes.weakint  # type: ignore[attr-defined]  # not in 0.12
        return buffer.index(UOp.const(index, 0), ptr=is_stored)

    def schedule(self, tensors: Sequence[Any]) -> None:
        """Has tinygrad schedule tensors together, and not run them."""
        raise NotImplementedError

    def forget_schedules(self) -> None:
        """Empties tinygrad's schedule cache, so that a schedule which was made before is made again."""
        for module, name, _ in self.needs:
            if name == "schedule_cache" and _has(module, name):
                importlib.import_module(module).schedule_cache.clear()

    def is_settled(self, tensor: Any) -> bool:
        """Whether there is nothing left to schedule for a tensor."""
        return tensor.uop.base.op.name in self.settled_ops or tensor.uop.is_realized

    def kernel_of(self, uop: UOp) -> tuple[UOp, tuple[UOp, ...]] | None:
        """Returns (AST, what it is called with) of a kernel in a graph of kernels, None for any other UOp."""
        raise NotImplementedError


def _has(module: str, name: str) -> bool:
    try:
        found: Any = importlib.import_module(module)
    except ImportError:
        return False
    for part in name.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True
