"""The questions about a tinygrad whose answers differ from release to release."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vmapdbg.child.listen.lowering import CompiledKernel, compile_kernel
from vmapdbg.child.listen.renderers import make_renderer
from vmapdbg.child.listen.schedules import ScheduledKernel, find_kernels, kernel_of

UOp = Any


@dataclass(frozen=True)
class Need:
    """A part of the tool, and the names it may stand on: (module, name), of which tinygrad has at least one."""

    part: str
    names: tuple[tuple[str, str], ...]

    def find(self) -> tuple[str, str] | None:
        """Returns the first one that is there."""
        return next((place for place in self.names if _has(*place)), None)


_SCHEDULE_MODULES = ("tinygrad.schedule", "tinygrad.engine.schedule")
CREATED = Need("the list of kernels", tuple((module, "create_schedule") for module in _SCHEDULE_MODULES))
CACHE = Need("what came out of the schedule cache", tuple((module, "schedule_cache") for module in _SCHEDULE_MODULES))
_LOWERS = ("get_program", "to_program")
_SCHEDULES = ("linear_with_vars", "schedule_linear", "schedule_with_vars")
NEEDS = (
    CREATED,
    CACHE,
    Need("rendering", tuple(("tinygrad.codegen", name) for name in _LOWERS)),
    Need("scheduling what the snippet left lazy", tuple(("tinygrad.tensor", f"Tensor.{name}") for name in _SCHEDULES)),
)


class Adapter:
    """The tinygrad that is imported. `stage_op` is the op of a buffer that a rule may still remove."""

    # a tensor whose base is one of these has nothing left to compute
    settled_ops: frozenset[str] = frozenset({"BUFFER", "CONST", "BUFFER_VIEW", "MSTACK", "PARAM", "AFTER"})

    @functools.cached_property
    def stage_op(self) -> str:
        from tinygrad.uop import Ops

        return "STAGE" if hasattr(Ops, "STAGE") else "BUFFERIZE"

    @functools.cached_property
    def missing(self) -> list[str]:
        """A line for each part that is switched off. Looked up when it is asked for, since modules are imported."""
        lost = [need for need in NEEDS if need.find() is None]
        return [f"{need.part} is switched off: this tinygrad has no {'.'.join(need.names[0])}" for need in lost]

    def make_renderer(self, target: str) -> Any:
        """Returns the renderer of a target, made without its device or compiler. Raises RendererMissing."""
        return make_renderer(target)

    def find_kernels(self, created: Any) -> list[ScheduledKernel]:
        """Returns the launches of what `create_schedule` returned, in order."""
        return list(find_kernels(created))

    def kernel_of(self, uop: UOp) -> tuple[UOp, tuple[UOp, ...]] | None:
        """Returns (AST, what it is called with) of a kernel in a graph of kernels, None for any other UOp."""
        return kernel_of(uop)

    def compile(self, ast: UOp, target: str) -> CompiledKernel:
        """Renders the AST of a compute kernel for a target. Raises what tinygrad raises, and RendererMissing."""
        return compile_kernel(ast, target)

    def first_element(self, buffer: UOp, is_stored: bool) -> UOp:
        """Returns the first element of a placeholder, to be loaded or to be stored."""
        from tinygrad.dtype import dtypes
        from tinygrad.uop.ops import UOp

        # while dtypes had pointers, an index said whether it is one
        if "ptr" not in inspect.signature(UOp.index).parameters:
            return buffer.index(0)
        index: Any = getattr(dtypes, "index", None) or dtypes.weakint  # type: ignore[attr-defined]  # not in 0.12
        return buffer.index(UOp.const(index, 0), ptr=is_stored)

    def schedule(self, tensors: Sequence[Any]) -> None:
        """Has tinygrad schedule tensors together, and not run them."""
        # schedule() and schedule_linear() refuse bound variables; the schedule itself is the same
        schedule = next(getattr(tensors[0], name) for name in _SCHEDULES if hasattr(tensors[0], name))
        schedule(*tensors[1:])

    def forget_schedules(self) -> None:
        """Empties tinygrad's schedule cache, so that a schedule which was made before is made again."""
        found = CACHE.find()
        if found is not None:
            importlib.import_module(found[0]).schedule_cache.clear()

    def is_settled(self, tensor: Any) -> bool:
        """Whether there is nothing left to schedule for a tensor."""
        return tensor.uop.base.op.name in self.settled_ops or tensor.uop.is_realized


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


@functools.cache
def find_adapter() -> Adapter:
    """Returns the adapter of the tinygrad that is importable. It imports tinygrad's ops."""
    return Adapter()
