"""The kernels of the model, rendered for a target, from one run of the pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

from vmapdbg.child.extract.overlay_view import PassView
from vmapdbg.child.extract.view import size_of
from vmapdbg.child.memory import name_dtype
from vmapdbg.child.program.accesses import find_accesses, find_open_loops
from vmapdbg.child.program.programs import op_weight, render_program, target_limit
from vmapdbg.child.record.recorder import Launched
from vmapdbg.model import capture as model
from vmapdbg.model.vocabulary import ArgumentAccess


class KernelBuilder:
    """Builds the kernels of one run of the pass."""

    def __init__(self, view: PassView, target: str):
        self.view, self.record, self.target = view, view.record, target
        # the layers of a network are one program many times
        self.accesses: dict[tuple[bytes, frozenset[str]], tuple[model.Access, ...]] = {}

    def build_all(self, progress: Callable[[], object]) -> Iterable[model.Kernel]:
        """Yields the compute kernels in the order of the schedule; calls `progress` after each kernel or copy."""
        for launched in self.record.kernels:
            if launched.ast.op is Ops.SINK:
                yield self.build_kernel(launched)
            progress()

    def build_kernel(self, launched: Launched) -> model.Kernel:
        ast, buffers, launches = launched.ast, launched.buffers, launched.count
        rendered = render_program(ast, self.target)
        program, work = rendered.spec, rendered.work
        uops = program.uops or []
        source = program.src.strip("\n") + "\n"
        program_key = ast.key, launched.variables
        if program_key not in self.accesses:
            self.accesses[program_key] = find_accesses(uops, source, launched.variables)
        nodes = self.find_computed(buffers)
        asked = sum(self.count_asked(u) for u in nodes)
        executed = work.ops * launches
        return model.Kernel(
            name=program.function_name,
            target=self.target,
            source=source,
            global_size=tuple(size_of(s) for s in program.global_size),
            local_size=None if program.local_size is None else tuple(size_of(s) for s in program.local_size),
            local_bytes=work.local_bytes,
            threads=work.threads,
            executed_ops=executed,
            bytes=work.bytes * launches,
            redundancy=round(executed / asked, 4) if asked else None,
            buffers=tuple(_buffer_args(uops, program.outs, program.ins)),
            nodes=tuple(sorted(self.view.ids[u] for u in nodes)),
            lines=tuple(sorted({self.view.lines[u] for u in nodes if u in self.view.lines}, key=_line_order)),
            outputs=tuple(self.view.ids[node] for node in self.find_written(buffers)),
            launches=launches,
            key=ast.key.hex(),
            accesses=self.accesses[program_key],
            fresh=self.is_fresh(buffers),
            open_loops=find_open_loops(uops),
            local_limit=target_limit(self.target),
        )

    def find_written(self, buffers: tuple[UOp, ...]) -> list[UOp]:
        """The node whose value a kernel writes, if there is one: to its first buffer."""
        return [self.record.buffers[b] for b in buffers[:1] if b in self.record.buffers]

    def is_fresh(self, buffers: tuple[UOp, ...]) -> bool:
        """Most nodes get a new buffer. An ASSIGN writes into one that is there, an OUTER REDUCE adds to it."""
        written = self.find_written(buffers)
        if not written or written[0].op in {Ops.ASSIGN, Ops.REDUCE, Ops.STORE}:
            return False
        return sum(launched.buffers[:1] == buffers[:1] for launched in self.record.kernels) == 1

    def find_computed(self, buffers: tuple[UOp, ...]) -> list[UOp]:
        """The nodes a kernel computes: from the one it writes back to those whose buffers it reads."""
        written = self.find_written(buffers)
        read = {self.record.buffers[b] for b in buffers[1:] if b in self.record.buffers}
        if not written:
            return []
        found = written[0].toposort(gate=lambda u: u is written[0] or (u not in read and u.op is not Ops.KERNEL))
        return [u for u in found if u in self.view.ids and u.op is not Ops.BUFFER]

    def count_asked(self, u: UOp) -> int:
        """The ops the tensor graph asks for at this node: one an element, for each step of its ambient ranges."""
        if u.op is Ops.REDUCE_AXIS:
            op, operand, elements = u.arg[0], u.dtype, _count_elements(u.src[0])
        elif u.op in GroupOp.ALU:
            op, operand, elements = u.op, u.src[-1].dtype, _count_elements(u)
        else:
            return 0
        batch = math.prod(int(r.vmax) + 1 for r in self.record.context.vmap_map.get(u, ()))
        return elements * batch * op_weight(op, operand, self.target)


def _count_elements(u: UOp) -> int:
    return math.prod(int(s.vmax) if isinstance(s, UOp) else s for s in u.shape)


# by whether the program has it as an input, and as an output; one that it has as neither is not written
_ACCESSES: dict[tuple[bool, bool], ArgumentAccess] = {
    (True, False): "read",
    (False, True): "write",
    (True, True): "read-write",
    (False, False): "read",
}


def _buffer_args(uops: list[UOp], outs: list[int], ins: list[int]) -> Iterable[model.BufferArg]:
    for u in sorted((u for u in uops if u.op is Ops.DEFINE_GLOBAL), key=lambda u: u.arg):
        size = u.ptrdtype.size
        access = _ACCESSES[u.arg in ins, u.arg in outs]
        yield model.BufferArg(f"data{u.arg}_{size}", size, name_dtype(u.dtype.base), access)


def _line_order(line: str) -> tuple[str, int]:
    file, _, number = line.rpartition(":")
    return file, int(number)
