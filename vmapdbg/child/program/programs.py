"""Renders kernels for a target, without its device or compiler, and counts what they execute. Runs in the child."""

from __future__ import annotations

import functools
import importlib
import math
from dataclasses import dataclass, field
from typing import Any

from tinygrad.codegen import get_program
from tinygrad.dtype import AddrSpace, PtrDType, dtypes
from tinygrad.engine.realize import method_cache
from tinygrad.helpers import Context
from tinygrad.renderer import ProgramSpec, Renderer
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

from vmapdbg.job.targets import TARGETS


@functools.cache
def make_renderer(target: str) -> Renderer:
    """Returns the renderer of a target of `vmapdbg.job.targets`. Only the module of that target is imported."""
    wanted = TARGETS[target]
    kind = getattr(importlib.import_module(f"tinygrad.renderer.{wanted.module}"), wanted.renderer)
    if target == "hip":  # its constructor opens the compiler, which needs AMD's libraries
        kind = type(wanted.renderer, (kind,), {"__init__": _init_without_compiler})
    return kind() if wanted.arch is None else kind(wanted.arch)


def target_limit(target: str) -> int | None:
    """Returns the bytes of LOCAL memory that a group of threads has, None where the target has no such memory."""
    renderer = make_renderer(target)
    return renderer.shared_max if renderer.has_shared and renderer.has_local else None


def _init_without_compiler(self: Any, arch: str) -> None:
    self.arch, self.tensor_cores = arch, self.get_tensor_cores(arch)


@functools.cache
def _compiled_for_cpu() -> dict[bytes, ProgramSpec]:
    # what the snippet compiled while it ran is not rendered again
    return {
        ast_key: runner.p
        for (_, _, ast_key, _, _), runner in method_cache.items()
        if runner.p.device.split(":")[0] == "CPU" and runner.p.uops is not None and _has_clang_renderer(runner)
    }


def _has_clang_renderer(runner: Any) -> bool:
    return type(runner.dev.renderer).__name__ == "ClangJITRenderer"


@dataclass(frozen=True)
class Work:
    """What one launch of a program does: arithmetic ops, bytes moved between it and GLOBAL memory, bytes of LOCAL
    memory, threads."""

    ops: int
    bytes: int
    local_bytes: int
    threads: int


@dataclass(frozen=True)
class Program:
    """A rendered kernel and the work of one launch of it."""

    spec: ProgramSpec
    work: Work


def render_program(ast: UOp, target: str) -> Program:
    """Returns the program of a kernel's AST: its source, launch dimensions, linear UOps, and what it does."""
    return _render(ast.key, KeyedAST(ast), target)


@dataclass(frozen=True)
class KeyedAST:
    """An AST that counts as equal to every other one: its key is compared beside it."""

    ast: UOp = field(compare=False)


@functools.cache
def _render(key: bytes, keyed: KeyedAST, target: str) -> Program:
    spec = _compiled_for_cpu().get(key) if target == "c" else None
    if spec is None:
        # BEAM times kernels on the device; without the device there is nothing to time
        with Context(BEAM=0):
            spec = get_program(keyed.ast, make_renderer(target))
    return Program(spec, count_work(spec.uops or []))


def forget_programs(most: int) -> None:
    """Drops the rendered programs that are kept, where there are more than `most`."""
    if _render.cache_info().currsize > most:
        _render.cache_clear()


def count_work(uops: list[UOp]) -> Work:
    """Counts a linear program: each op times the trip counts of the loops around it times its threads.

    Arithmetic on addresses and gates is not counted. A trip count that depends on a variable is taken at its
    maximum. Both branches of an IF count.
    """
    threads = math.prod(int(u.src[0].vmax) for u in uops if u.op is Ops.SPECIAL)
    addresses = _address_arithmetic(uops)
    loops: list[int] = []
    ops = moved = local = 0
    for u in uops:
        if u.op is Ops.RANGE:
            loops.append(int(u.src[0].vmax))
        elif u.op is Ops.END:
            loops.pop()
        elif u.op in GroupOp.ALU and u not in addresses:
            ops += math.prod(loops) * u.dtype.count * (2 if u.op is Ops.MULACC else 1)
        elif u.op is Ops.WMMA:
            ops += math.prod(loops) * 2 * math.prod(u.arg[1]) // u.arg[5]
        elif u.op in {Ops.LOAD, Ops.STORE} and _is_global(u.src[0]):
            moved += math.prod(loops) * (u if u.op is Ops.LOAD else u.src[1]).dtype.itemsize
        elif u.op is Ops.DEFINE_LOCAL:
            local += u.ptrdtype.size * u.dtype.base.itemsize
    return Work(ops * threads, moved * threads, local, threads)


def _is_global(address: UOp) -> bool:
    return isinstance(address.dtype, PtrDType) and address.dtype.addrspace == AddrSpace.GLOBAL


def _address_arithmetic(uops: list[UOp]) -> set[UOp]:
    roots: list[UOp] = []
    for u in uops:
        if u.op is Ops.INDEX:
            roots += u.src[1:]
        elif u.op is Ops.IF:
            roots.append(u.src[0])
    return set(UOp.sink(*roots).toposort(gate=lambda x: x.op not in {Ops.RANGE, Ops.LOAD}))


@functools.cache
def op_weight(op: Ops, dtype: Any, target: str) -> int:
    """Returns how many ops the target executes for one `op` of the tensor graph.

    An op that the target has counts as one. One that it has not (EXP2 on the CPU is a polynomial) is measured: a
    kernel of that op alone is rendered and counted.
    """
    renderer = make_renderer(target)
    if op in renderer.code_for_op or op is Ops.MULACC:
        return 1
    try:
        with Context(BEAM=0, NOOPT=1):
            program = get_program(_kernel_of(op, dtype), renderer)
    except Exception:  # a dtype the target has not: what it does instead cannot be asked of this op alone
        return 1
    return max(1, count_work(program.uops or []).ops)


def _kernel_of(op: Ops, dtype: Any) -> UOp:
    groups = (GroupOp.Unary, GroupOp.Binary, GroupOp.Ternary)
    arity = next(count for count, group in enumerate(groups, 1) if op in group)
    zero = UOp.const(dtypes.index, 0)
    inputs = [UOp.placeholder((1,), dtype, slot).index(zero) for slot in range(1, arity + 1)]
    value = inputs[0].alu(op, *inputs[1:])
    output = UOp.placeholder((1,), value.dtype, 0)
    return output.index(zero, dtype=output.dtype).store(value).sink()
