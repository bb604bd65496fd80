"""The program of a kernel: a ProgramSpec, until that went in May 2026, then a PROGRAM UOp."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from vmapdbg.child.listen.renderers import make_renderer

UOp = Any

# what the CPU device renders with, by release: its source is that of the target c
_CLANG = ("ClangJITRenderer", "ClangRenderer")


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


def compile_kernel(ast: UOp, target: str) -> CompiledKernel:
    """Renders the AST of a compute kernel for a target. Raises what tinygrad raises, and RendererMissing."""
    import tinygrad.codegen
    from tinygrad.helpers import Context

    lower: Any = getattr(tinygrad.codegen, "get_program", None) or tinygrad.codegen.to_program  # type: ignore[attr-defined]
    program: Any = compiled_for_cpu()[ast.key] if is_compiled(ast, target) else None
    if program is None:
        # BEAM times kernels on the device; without the device there is nothing to time
        with Context(BEAM=0):
            program = lower(ast, make_renderer(target))
    if hasattr(program, "function_name"):
        return _describe(program, program.src, program.uops or ())
    made = {part.op.name: part for part in program.src}
    return _describe(program.arg, made["SOURCE"].arg, made["LINEAR"].src)


def is_compiled(ast: UOp, target: str) -> bool:
    """Tells whether the snippet compiled a kernel for the target while it ran."""
    return target == "c" and ast.key in compiled_for_cpu()


def _describe(info: Any, source: str, uops: Any) -> CompiledKernel:
    local_size = None if info.local_size is None else tuple(info.local_size)
    return CompiledKernel(
        info.function_name,
        source,
        tuple(info.global_size),
        local_size,
        tuple(info.outs),
        tuple(info.ins),
        tuple(uops),
    )


@functools.cache
def compiled_for_cpu() -> dict[bytes, Any]:
    """What the snippet compiled while it ran is not rendered again: key of an AST -> its program."""
    import tinygrad.codegen as codegen
    import tinygrad.engine.realize as realize

    runners: dict[Any, Any] = getattr(realize, "method_cache", {})
    programs: dict[Any, Any] = getattr(codegen, "to_program_cache", {})
    if runners:
        return {key[2]: runner.p for key, runner in runners.items() if _is_for_cpu(runner)}
    return {
        ast_key: program
        for (ast_key, renderer, target, *_), program in programs.items()
        if getattr(target, "device", "") == "CPU" and renderer.__name__ in _CLANG
    }


def _is_for_cpu(runner: Any) -> bool:
    is_cpu = runner.p.device.split(":")[0] == "CPU" and runner.p.uops is not None
    return is_cpu and type(runner.dev.renderer).__name__ in _CLANG
