"""tinygrad 0.13: a schedule is a LINEAR of CALLs, a program a PROGRAM UOp, a buffer of a kernel a PARAM."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from vmapdbg.child.adapters.base import Adapter, CompiledKernel, ScheduledKernel, UOp


class Calls(Adapter):
    family = "0.13"
    needs = (
        ("tinygrad.schedule", "create_schedule", "the list of kernels"),
        ("tinygrad.schedule", "schedule_cache", "what came out of the schedule cache"),
        ("tinygrad.codegen", "to_program", "rendering"),
        ("tinygrad.tensor", "Tensor.schedule_linear", "scheduling what the snippet left lazy"),
    )

    def find_kernels(self, created: Any) -> list[ScheduledKernel]:
        return [ScheduledKernel(call.src[0], call.src[1:], self.is_compute(call)) for call in created.src]

    def is_compute(self, call: UOp) -> bool:
        return call.src[0].op.name == "SINK"

    def compile(self, ast: UOp, target: str) -> CompiledKernel:
        from tinygrad.codegen import to_program  # type: ignore[attr-defined]  # not in 0.12
        from tinygrad.helpers import Context

        program: Any = compiled_for_cpu().get(ast.key) if target == "c" else None
        if program is None:
            # BEAM times kernels on the device; without the device there is nothing to time
            with Context(BEAM=0):
                program = to_program(ast, self.make_renderer(target))
        made = {part.op.name: part for part in program.src}
        info = program.arg
        local_size = None if info.local_size is None else tuple(info.local_size)
        return CompiledKernel(
            info.function_name,
            made["SOURCE"].arg,
            tuple(info.global_size),
            local_size,
            tuple(info.outs),
            tuple(info.ins),
            made["LINEAR"].src,
        )

    def schedule(self, tensors: Sequence[Any]) -> None:
        # schedule_linear() refuses bound variables; the schedule itself is the same
        with_vars = getattr(tensors[0], "linear_with_vars", None)
        if with_vars is None:
            tensors[0].schedule_linear(*tensors[1:])
        else:
            with_vars(*tensors[1:])

    def kernel_of(self, uop: UOp) -> tuple[UOp, tuple[UOp, ...]] | None:
        return (uop.src[0], uop.src[1:]) if uop.op.name == "CALL" else None


@functools.cache
def compiled_for_cpu() -> dict[bytes, Any]:
    """What the snippet compiled while it ran is not rendered again: key of an AST -> its program."""
    import tinygrad.codegen

    programs: dict[Any, Any] = getattr(tinygrad.codegen, "to_program_cache", {})
    return {
        ast_key: program
        for (ast_key, renderer, target, *_), program in programs.items()
        if target.device == "CPU" and renderer.__name__ in _CLANG
    }


_CLANG = ("ClangJITRenderer", "ClangRenderer")
