"""The kernels of the model, rendered for a target, from one run of the pass, whoever recorded it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from vmapdbg.child.capture.order import MemoryOrder, find_order
from vmapdbg.child.capture.view import UOp, View, find_values, largest_of, size_of, sizes_of
from vmapdbg.child.failures.diagnose import explain_error
from vmapdbg.child.failures.endless import EndlessRewrite
from vmapdbg.child.failures.known_nodes import NoNodes
from vmapdbg.child.listen.records import Launch
from vmapdbg.child.listen.rendering import CompiledKernel, RendererMissing
from vmapdbg.child.program.accesses import find_accesses, find_resets
from vmapdbg.child.program.linear import Buffer, LinearProgram
from vmapdbg.child.program.linear_reader import read_linear, read_memories
from vmapdbg.child.program.programs import Program, compile_program, op_weight, render_program, target_limit
from vmapdbg.model import capture as model
from vmapdbg.model.vocabulary import ArgumentAccess

_MEMORY = frozenset({"BUFFER", "PARAM"})


class KernelBuilder:
    """Builds the kernels of one run of the pass. One that tinygrad makes no program of raises its error; with
    `keeps_failed` it is a kernel with that error instead."""

    def __init__(self, view: View, target: str, keeps_failed: bool = False):
        self.view, self.target, self.keeps_failed = view, target, keeps_failed
        # the layers of a network are one program many times
        self.facts: dict[tuple[bytes, frozenset[str]], ProgramFacts] = {}
        self.writers = Counter(launch.buffers[:1] for launch in view.launches)
        self.order = MemoryOrder() if view.is_brief else find_order(view)

    def build_all(self, progress: Callable[[], object]) -> Iterable[model.Kernel]:
        """Yields the compute kernels in the order of the schedule; calls `progress` after each kernel or copy."""
        number = 0
        for launch in self.view.launches:
            if launch.is_compute:
                yield self.build_kernel(launch, number)
                number += 1
            progress()

    def build_kernel(self, launch: Launch, number: int) -> model.Kernel:
        try:
            if self.view.is_brief:
                compiled = compile_program(launch.ast, self.target)
                buffers = tuple(list_arguments(read_memories(compiled.uops), compiled))
                return self.build_named(launch, compiled.name, buffers)
            program = render_program(launch.ast, self.target)
        except RendererMissing:
            raise
        except (Exception, EndlessRewrite) as error:
            if not self.keeps_failed:
                raise
            return self.build_named(launch, "(no program)", (), explain_error(error, NoNodes()))
        compiled, work = program.compiled, program.work
        facts = self.find_facts(launch, program)
        nodes = self.find_computed(launch)
        asked = sum(self.count_asked(u) for u in nodes)
        executed = work.ops * launch.count
        return model.Kernel(
            name=compiled.name,
            target=self.target,
            source=write_source(compiled),
            global_size=tuple(size_of(s) for s in compiled.global_size),
            local_size=sizes_of(compiled.local_size),
            local_bytes=work.local_bytes,
            threads=work.threads,
            executed_ops=executed,
            bytes=work.bytes * launch.count,
            redundancy=find_redundancy(executed, asked),
            buffers=tuple(list_arguments(program.linear.buffers, compiled)),
            nodes=tuple(sorted(self.view.ids[u] for u in nodes)),
            lines=self.find_lines(nodes),
            outputs=() if launch.node is None else (self.view.ids[launch.node],),
            launches=launch.count,
            key=launch.ast.key.hex(),
            accesses=facts.accesses,
            fresh=self.is_fresh(launch),
            open_loops=tuple(loop.name for loop in program.linear.open_loops),
            local_limit=target_limit(self.target),
            resets=facts.resets,
            wrong_times=tuple(self.find_wrong_times(number, program.linear)),
            overwrites=self.order.overwrites.get(number),
        )

    def build_named(
        self,
        launch: Launch,
        name: str,
        buffers: tuple[model.BufferArg, ...],
        failed: model.SnippetError | None = None,
    ) -> model.Kernel:
        """Returns a kernel without what its program does: what the scheduler says of it, and the error where there is
        no program."""
        nodes = self.find_computed(launch)
        return model.Kernel(
            name=name,
            target=self.target,
            source="",
            global_size=(),
            local_size=None,
            local_bytes=0,
            threads=0,
            executed_ops=0,
            bytes=0,
            redundancy=None,
            buffers=buffers,
            nodes=tuple(sorted(self.view.ids[u] for u in nodes)),
            lines=self.find_lines(nodes),
            outputs=() if launch.node is None else (self.view.ids[launch.node],),
            launches=launch.count,
            key=launch.ast.key.hex(),
            accesses=(),
            failed=failed,
        )

    def find_wrong_times(self, number: int, linear: LinearProgram) -> Iterable[model.WrongTime]:
        """Yields what a kernel reads at a wrong time, of what its program still has as an argument."""
        names = {buffer.slot: buffer.name for buffer in linear.buffers if buffer.space == "global"}
        for found in self.order.wrong_times.get(number, ()):
            if found.argument in names:
                yield model.WrongTime(names[found.argument], found.node, found.early, found.late)

    def find_lines(self, nodes: Iterable[UOp]) -> tuple[str, ...]:
        """Returns the user's lines that made some nodes, in order."""
        return tuple(sorted({self.view.lines[u] for u in nodes if u in self.view.lines}, key=_line_order))

    def find_facts(self, launch: Launch, program: Program) -> ProgramFacts:
        key = launch.ast.key, launch.varied
        if key not in self.facts:
            linear = program.linear
            if launch.varied:
                linear = read_linear(program.compiled.uops, launch.varied)
            self.facts[key] = ProgramFacts(linear, write_source(program.compiled))
        return self.facts[key]

    def is_fresh(self, launch: Launch) -> bool:
        """Most nodes get a new buffer. An ASSIGN writes into one that is there, an OUTER REDUCE adds to it."""
        written = launch.node
        if written is None or written.op.name in {"ASSIGN", "STORE", "AFTER"}:
            return False
        if written.op.name == "REDUCE" and not is_reduce(written):
            return False
        return self.writers[launch.buffers[:1]] == 1

    def find_computed(self, launch: Launch) -> list[UOp]:
        """The nodes a kernel computes: from the one it writes back to those whose buffers it reads."""
        written = launch.node
        if written is None:
            return []
        read = {self.view.held[b] for b in launch.buffers[1:] if b in self.view.held}

        found, todo = {written: None}, [written]
        while todo:
            for source in find_values(todo.pop()):
                if source not in found and source not in read and source.op.name not in {"KERNEL", "CALL"}:
                    found[source] = None
                    todo.append(source)
        return [u for u in found if u in self.view.ids and u.op.name not in _MEMORY]

    def count_asked(self, u: UOp) -> int:
        """The ops the tensor graph asks for at this node: one an element, for each step of its ambient ranges."""
        from tinygrad.uop import GroupOp

        if is_reduce(u):
            op, operand, elements = u.arg[0], u.dtype, _count_elements(u.src[0])
        elif u.op in GroupOp.ALU:
            op, operand, elements = u.op, find_operand_dtype(u), _count_elements(u)
        else:
            return 0
        batch = math.prod(int(r.vmax) + 1 for r in self.view.ambient.get(u, ()))
        return elements * batch * op_weight(op, operand, self.target)


class ProgramFacts:
    """What `lint` needs to know of a program, wherever in the schedule it runs."""

    def __init__(self, linear: LinearProgram, source: str):
        self.accesses = find_accesses(linear, source)
        self.resets = find_resets(linear, source)


def is_reduce(u: UOp) -> bool:
    """A reduce over axes: REDUCE_AXIS, or REDUCE from 0.13 on. Over OUTER ranges a REDUCE has its op alone as `arg`."""
    return u.op.name in {"REDUCE_AXIS", "REDUCE"} and isinstance(u.arg, tuple)


def find_operand_dtype(u: UOp) -> Any:
    """From 0.14 on a constant may be of a dtype without a size, which takes that of the other operand."""
    dtypes = [s.dtype for s in reversed(u.src)]
    sized = [dtype for dtype in dtypes if "weak" not in str(dtype)]
    return next(iter([*sized, *dtypes]))


def find_redundancy(executed: int, asked: int) -> float | None:
    """Returns how often each op that the graph asks for is executed, None where it asks for none."""
    if asked == 0:
        return None
    return round(executed / asked, 4)


def write_source(compiled: CompiledKernel) -> str:
    return compiled.source.strip("\n") + "\n"


def _count_elements(u: UOp) -> int:
    return math.prod(map(largest_of, u.shape))


# by whether the program has it as an input, and as an output; one that it has as neither is not written
_ACCESSES: dict[tuple[bool, bool], ArgumentAccess] = {
    (True, False): "read",
    (False, True): "write",
    (True, True): "read-write",
    (False, False): "read",
}


def list_arguments(buffers: Iterable[Buffer], compiled: CompiledKernel) -> Iterable[model.BufferArg]:
    arguments = [buffer for buffer in buffers if buffer.space in {"global", "image"}]
    for buffer in sorted(arguments, key=lambda buffer: buffer.slot):
        access = _ACCESSES[buffer.slot in compiled.ins, buffer.slot in compiled.outs]
        yield model.BufferArg(buffer.name, buffer.size, buffer.dtype, access)


def _line_order(line: str) -> tuple[str, int]:
    file, _, number = line.rpartition(":")
    return file, int(number)
