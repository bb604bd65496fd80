"""The kernels of the model, rendered for a target, from one run of the pass."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from vmapdbg.child.capture.order import MemoryOrder
from vmapdbg.child.capture.view import PassView, largest_of, size_of, sizes_of, values_of
from vmapdbg.child.failures.diagnose import KnownNodes, explain_error
from vmapdbg.child.failures.endless import EndlessRewrite
from vmapdbg.child.listen.guard import leaving_out
from vmapdbg.child.listen.records import Launch, UOp
from vmapdbg.child.listen.rendering import CompiledKernel, RendererMissing, compile_kernel
from vmapdbg.child.program.accesses import find_accesses, find_resets
from vmapdbg.child.program.linear import Buffer, LinearProgram
from vmapdbg.child.program.linear_reader import read_linear, read_memories
from vmapdbg.child.program.programs import RenderedProgram, op_weight, render_program, target_limit
from vmapdbg.child.program.races import find_races
from vmapdbg.model import capture as model
from vmapdbg.model.ops import WRITES
from vmapdbg.model.vocabulary import ArgumentAccess
from vmapdbg.model.wording import split_place
from vmapdbg.reference.graph import reach

_MEMORY = frozenset({"BUFFER", "PARAM"})
# of a program: what `find_accesses`, `find_resets` and `find_races` return
Facts = tuple[tuple[model.Access, ...], tuple[model.Reset, ...], tuple[tuple[model.Race, ...], str | None]]


class KernelBuilder:
    """Builds the kernels of a run of the pass. Raises tinygrad's errors; with `keeps_failed` a kernel has its error."""

    def __init__(self, view: PassView, target: str, keeps_failed: bool = False):
        self.view, self.target, self.keeps_failed = view, target, keeps_failed
        self.facts: dict[tuple[bytes, frozenset[str]], Facts] = {}  # layers are often one program
        self.writers = Counter(launch.buffers[:1] for launch in view.launches)
        self.order = MemoryOrder(view)
        if not view.is_brief:
            with leaving_out("the order of kernels"):
                self.order.find()

    def build_kernel(self, launch: Launch, number: int) -> model.Kernel:
        """Returns the compute kernel of a launch, and of this number."""
        nodes = self._list_computed(launch)
        kernel = self._build_launch(launch, nodes)
        try:
            if self.view.is_brief:
                compiled = compile_kernel(launch.ast, self.target)
                buffers = _list_arguments(read_memories(compiled.uops), compiled)
                return replace(kernel, name=compiled.name, buffers=tuple(buffers))
            program = render_program(launch.ast, self.target)
        except RendererMissing:
            raise
        except (Exception, EndlessRewrite) as error:
            if not self.keeps_failed:
                raise
            return replace(kernel, failed=explain_error(error, KnownNodes()))
        compiled, work = program.compiled, program.work
        source = compiled.source.strip("\n") + "\n"
        accesses, resets, (races, races_unknown) = self._find_facts(launch, program, source)
        asked = sum(map(self._count_asked, nodes if launch.node is not None else ()))
        executed = work.ops * launch.count
        return replace(
            kernel,
            name=compiled.name,
            source=source,
            global_size=tuple(map(size_of, compiled.global_size)),
            local_size=sizes_of(compiled.local_size),
            local_bytes=work.local_bytes,
            threads=work.threads,
            executed_ops=executed,
            bytes=work.bytes * launch.count,
            redundancy=round(executed / asked, 4) if asked else None,  # executed ops per op that the graph asks for
            buffers=tuple(_list_arguments(program.linear.buffers, compiled)),
            accesses=accesses,
            fresh=self._is_fresh(launch),
            open_loops=tuple(loop.name for loop in program.linear.open_loops),
            local_limit=target_limit(self.target),
            resets=resets,
            races=races,
            races_unknown=races_unknown,
            wrong_times=tuple(self._find_wrong_times(number, program.linear)),
            overwrites=self.order.overwrites.get(number),
            lanes=work.lanes,
        )

    def _build_launch(self, launch: Launch, nodes: list[UOp]) -> model.Kernel:
        """Returns a kernel without its program: what the scheduler says of it."""
        origins = self.view.passed.origins
        lines = {origins[u].line for u in nodes if u in origins}
        outputs = (self.view.ids[launch.node],) if launch.node is not None else ()
        return model.Kernel(
            name="(no program)",
            target=self.target,
            source="",
            global_size=(),
            local_size=None,
            local_bytes=0,
            threads=0,
            executed_ops=0,
            bytes=0,
            redundancy=None,
            buffers=(),
            nodes=tuple(sorted(self.view.ids[u] for u in nodes)),
            lines=tuple(sorted(lines, key=split_place)),
            outputs=outputs,
            launches=launch.count,
            key=launch.ast.key.hex(),
            accesses=(),
        )

    def _find_wrong_times(self, number: int, linear: LinearProgram) -> list[model.WrongTime]:
        names = {buffer.slot: buffer.name for buffer in linear.buffers if buffer.space == "global"}
        found = sorted(self.order.wrong_times.get(number, {}).items())
        return [replace(wrong, buffer=names[slot]) for slot, wrong in found if slot in names]

    def _find_facts(self, launch: Launch, program: RenderedProgram, source: str) -> Facts:
        key = launch.ast.key, launch.varied
        if key not in self.facts:
            linear = read_linear(program.compiled.uops, launch.varied) if launch.varied else program.linear
            self.facts[key] = find_accesses(linear, source), find_resets(linear, source), find_races(linear, source)
        return self.facts[key]

    def _is_fresh(self, launch: Launch) -> bool:
        """Whether a kernel's buffer is new: an ASSIGN writes into an older buffer, an OUTER REDUCE adds to one."""
        written = launch.node
        if written is None or written.op.name in WRITES or (written.op.name == "REDUCE" and not _is_reduce(written)):
            return False
        return self.writers[launch.buffers[:1]] == 1

    def _list_computed(self, launch: Launch) -> list[UOp]:
        """Returns the nodes a kernel computes: from the node it writes back to the nodes whose buffers it reads."""
        held = self.view.passed.held
        read = {held[b] for b in launch.buffers[1:] if b in held}

        def follow(u: UOp) -> list[UOp]:
            return [s for s in values_of(u) if s not in read and s.op.name not in {"KERNEL", "CALL"}]

        found = launch.parts if launch.node is None else reach([launch.node], follow)
        return [u for u in found if u in self.view.ids and u.op.name not in _MEMORY]

    def _count_asked(self, u: UOp) -> int:
        """Counts the ops the tensor graph asks for at a node: one for each element and step of its ambient ranges."""
        from tinygrad.uop import GroupOp

        if _is_reduce(u):
            op, operand, shape = u.arg[0], u.dtype, u.src[0].shape
        elif u.op in GroupOp.ALU:
            # from 0.14 on a constant may have a dtype without a size and take the other operand's size
            sized = (s.dtype for s in reversed(u.src) if "weak" not in str(s.dtype))
            op, operand, shape = u.op, next(sized, u.src[-1].dtype), u.shape
        else:
            return 0
        batch = math.prod(int(r.vmax) + 1 for r in self.view.passed.ambient.get(u, ()))
        return math.prod(map(largest_of, shape)) * batch * op_weight(op, operand, self.target)


def _is_reduce(u: UOp) -> bool:
    """Whether a UOp reduces axes. A REDUCE (from 0.13 on) over OUTER ranges has only its op as `arg`."""
    return u.op.name in {"REDUCE_AXIS", "REDUCE"} and isinstance(u.arg, tuple)


def _list_arguments(buffers: Iterable[Buffer], compiled: CompiledKernel) -> Iterator[model.BufferArg]:
    for buffer in sorted(buffers, key=lambda buffer: buffer.slot):
        if buffer.space not in {"global", "image"}:
            continue
        access: ArgumentAccess = "read"
        if buffer.slot in compiled.outs:
            access = "read-write" if buffer.slot in compiled.ins else "write"
        yield model.BufferArg(buffer.name, buffer.size, buffer.dtype, access)
