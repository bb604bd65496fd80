"""tinygrad 0.12: a schedule is a list of ExecItems, a program a ProgramSpec, a kernel a KERNEL UOp."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from vmapdbg.child.adapters.base import Adapter, CompiledKernel, ScheduledKernel, UOp


class ExecItems(Adapter):
    family = "0.12"
    stage_op = "BUFFERIZE"
    reduce_ops = frozenset({"REDUCE_AXIS", "REDUCE"})
    needs = (
        ("tinygrad.engine.schedule", "create_schedule", "the list of kernels"),
        ("tinygrad.engine.schedule", "schedule_cache", "what came out of the schedule cache"),
        ("tinygrad.codegen", "get_program", "rendering"),
        ("tinygrad.tensor", "Tensor.schedule_with_vars", "scheduling what the snippet left lazy"),
    )

    def find_kernels(self, created: Any) -> list[ScheduledKernel]:
        items, buffers = created
        return [
            ScheduledKernel(item.ast, used.src, item.ast.op.name == "SINK", dict(item.fixedvars))
            for item, used in zip(items, buffers.src, strict=True)
        ]

    def compile(self, ast: UOp, target: str) -> CompiledKernel:
        from tinygrad.codegen import get_program
        from tinygrad.helpers import Context

        spec: Any = compiled_for_cpu().get(ast.key) if target == "c" else None
        if spec is None:
            # BEAM times kernels on the device; without the device there is nothing to time
            with Context(BEAM=0):
                spec = get_program(ast, self.make_renderer(target))
        local_size = None if spec.local_size is None else tuple(spec.local_size)
        return CompiledKernel(
            spec.function_name,
            spec.src,
            tuple(spec.global_size),
            local_size,
            tuple(spec.outs),
            tuple(spec.ins),
            tuple(spec.uops or ()),
        )

    def schedule(self, tensors: Sequence[Any]) -> None:
        # schedule() refuses bound variables; the schedule itself is the same
        tensors[0].schedule_with_vars(*tensors[1:])

    def kernel_of(self, uop: UOp) -> tuple[UOp, tuple[UOp, ...]] | None:
        return (uop.arg.ast, uop.src) if uop.op.name == "KERNEL" else None


@functools.cache
def compiled_for_cpu() -> dict[bytes, Any]:
    """What the snippet compiled while it ran is not rendered again: key of an AST -> its program."""
    from tinygrad.engine.realize import method_cache

    return {
        ast_key: runner.p
        for (_, _, ast_key, _, _), runner in method_cache.items()
        if runner.p.device.split(":")[0] == "CPU" and runner.p.uops is not None and _has_clang_renderer(runner)
    }


def _has_clang_renderer(runner: Any) -> bool:
    return type(runner.dev.renderer).__name__ == "ClangJITRenderer"
