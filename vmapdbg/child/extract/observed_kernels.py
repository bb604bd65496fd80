"""The kernels of an observed schedule, rendered for a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from vmapdbg.child.adapters import Adapter, CompiledKernel
from vmapdbg.child.extract.observed_view import ObservedView
from vmapdbg.child.extract.view import UOp, size_of
from vmapdbg.child.program.linear import LinearProgram
from vmapdbg.child.program.linear_reader import read_linear
from vmapdbg.child.record.observe import ObservedKernel
from vmapdbg.model import capture as model
from vmapdbg.model.vocabulary import ArgumentAccess

_MEMORY = frozenset({"BUFFER", "PARAM"})


@dataclass(frozen=True)
class Launched:
    """A kernel of a schedule, and how often it is launched."""

    kernel: ObservedKernel
    count: int


def count_launches(kernels: list[ObservedKernel]) -> list[Launched]:
    """Launches of one kernel that differ only in the value of a variable are counted as one that is launched often."""
    found: dict[Any, list[ObservedKernel]] = {}
    for index, kernel in enumerate(kernels):
        number = None if kernel.variables else index
        found.setdefault((kernel.ast, kernel.buffers, number), []).append(kernel)
    return [Launched(launches[0], len(launches)) for launches in found.values()]


class KernelBuilder:
    """Builds the kernels of one run of the pass."""

    def __init__(self, view: ObservedView, adapter: Adapter, target: str):
        self.view, self.adapter, self.target = view, adapter, target
        self.launched = count_launches(view.passed.kernels)
        # the layers of a network are one program many times
        self.compiled: dict[bytes, CompiledKernel] = {}

    @property
    def copies(self) -> int:
        return sum(not launched.kernel.is_compute for launched in self.launched)

    def build_all(self, progress: Callable[[], object]) -> Iterable[model.Kernel]:
        """Yields the compute kernels in the order of the schedule; calls `progress` after each kernel or copy."""
        for launched in self.launched:
            if launched.kernel.is_compute:
                yield self.build_kernel(launched)
            progress()

    def build_kernel(self, launched: Launched) -> model.Kernel:
        kernel = launched.kernel
        compiled = self.compile(kernel.ast)
        program = read_linear(compiled.uops)
        nodes = self.find_computed(kernel)
        lines = {self.view.lines[u] for u in nodes if u in self.view.lines}
        return model.Kernel(
            name=compiled.name,
            target=self.target,
            source=compiled.source.strip("\n") + "\n",
            global_size=tuple(size_of(s) for s in compiled.global_size),
            local_size=None if compiled.local_size is None else tuple(size_of(s) for s in compiled.local_size),
            local_bytes=sum(b.size * b.itemsize for b in program.buffers if b.space == "local"),
            threads=math.prod(loop.trips for loop in program.threads),
            executed_ops=0,
            bytes=0,
            redundancy=None,
            buffers=tuple(_build_arguments(program, compiled)),
            nodes=tuple(sorted(self.view.ids[u] for u in nodes)),
            lines=tuple(sorted(lines, key=_line_order)),
            outputs=tuple(self.view.ids[u] for u in self.find_written(kernel)),
            launches=launched.count,
            key=kernel.ast.key.hex(),
        )

    def compile(self, ast: UOp) -> CompiledKernel:
        if ast.key not in self.compiled:
            self.compiled[ast.key] = self.adapter.compile(ast, self.target)
        return self.compiled[ast.key]

    def find_written(self, kernel: ObservedKernel) -> list[UOp]:
        return [kernel.node] if kernel.node in self.view.ids else []

    def find_computed(self, kernel: ObservedKernel) -> list[UOp]:
        """The nodes a kernel computes: from the one it writes back to those whose buffers it reads."""
        written = self.find_written(kernel)
        if not written:
            return []
        held = self.view.passed.held
        read = {held[b] for b in kernel.buffers[1:] if b in held}
        found = written[0].toposort(gate=lambda u: u is written[0] or u not in read)
        return [u for u in found if u in self.view.ids and u.op.name not in _MEMORY]


# by whether the program has it as an input, and as an output; one that it has as neither is not written
_ACCESSES: dict[tuple[bool, bool], ArgumentAccess] = {
    (True, False): "read",
    (False, True): "write",
    (True, True): "read-write",
    (False, False): "read",
}


def _build_arguments(program: LinearProgram, compiled: CompiledKernel) -> Iterable[model.BufferArg]:
    arguments = [buffer for buffer in program.buffers if buffer.space == "global"]
    for buffer in sorted(arguments, key=lambda buffer: buffer.slot):
        access = _ACCESSES[buffer.slot in compiled.ins, buffer.slot in compiled.outs]
        yield model.BufferArg(buffer.name, buffer.size, buffer.dtype, access)


def _line_order(line: str) -> tuple[str, int]:
    file, _, number = line.rpartition(":")
    return file, int(number)
