"""Runs the kernels of a schedule by numpy in their order, on one memory, and finds reads at the wrong time. Runs in the
child."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vmapdbg.check.result import WrongRead
from vmapdbg.child.evidence.loop_packer import LoopPacker, find_base, find_buffer, list_views, pack_kernel
from vmapdbg.child.evidence.packer import CannotPack, UOp
from vmapdbg.child.evidence.passed import number_kernels
from vmapdbg.child.failures.diagnose import KnownNodes
from vmapdbg.child.listen.records import Launch
from vmapdbg.child.listen.releases import kernel_of, list_launches
from vmapdbg.child.memory import name_dtype
from vmapdbg.child.passes.watch import Created
from vmapdbg.reference.graph import OpNode, ScheduledKernel

_MEMORY = frozenset({"BUFFER", "PARAM"})


class OrderedKernels:
    """The launches of one schedule. `held` has the slot of what each buffer holds after the last launch."""

    def __init__(self, created: Created, packer: LoopPacker):
        self.graph, self.packer = created.graph, packer
        self.launches = list_launches(created.launches)
        self.held: dict[UOp, int] = {}

    def run(self) -> None:
        """Adds the launches to the graph. Raises CannotPack."""
        for launch in self.launches:
            self._run(launch)

    def find_slot(self, u: UOp, is_memory: bool) -> int:
        """Returns the slot of an output after the last launch, or of all that its buffer holds. Raises CannotPack."""
        base = find_base(u)
        buffer = find_buffer(base)
        if is_memory:
            return self.held[buffer] if buffer in self.held else self.packer.pack_memory(u)
        if base.op.name not in {"AFTER", *_MEMORY} or buffer not in self.held:
            return self.packer.pack(u)
        slot = self.held[buffer]
        for view in reversed(list_views(u)):
            slot = self.packer.add_view(view, slot)
        return slot

    def _run(self, launch: Launch) -> None:
        slots = tuple(map(self._find_held, launch.buffers))
        if launch.ast.op.name == "COPY":
            held = self.packer.graph.nodes[slots[0]]
            self.held[launch.buffers[0]] = self.packer.graph.add(OpNode("copy", held.dtype, held.shape, slots[1:2]))
            return
        kernel = self.pack(launch)
        for number in dict.fromkeys(store.argument for store in kernel.stores):
            self.held[launch.buffers[number]] = self.packer.add_launch(kernel, number, slots[number], slots)

    def pack(self, launch: Launch) -> ScheduledKernel:
        """Packs the kernel of a launch. Raises CannotPack."""
        return pack_kernel(launch.ast, {**self.packer.sizes.variables, **launch.variables})

    def _find_held(self, buffer: UOp) -> int:
        if buffer.op.name not in _MEMORY:
            raise CannotPack(f"a kernel is given {buffer.op.name}")
        if buffer not in self.held:
            self.held[buffer] = self.packer.pack(buffer)
        return self.held[buffer]

    # *** states of memory

    def find_wrong_read(self, nodes: KnownNodes) -> WrongRead | None:
        """Returns the first read of memory that is not in the state that the graph of kernels says."""
        found = self._find_wrong_read()
        if found is None:
            return None
        written = [self.launches[number].buffers[0] for number in (found.reader, found.writer)]
        # a buffer of the snippet is a node itself
        held = [nodes.held.get(buffer, buffer) for buffer in written]
        return replace(found, node=nodes.find(held[0]), writer_node=nodes.find(held[1]))

    def _find_wrong_read(self) -> WrongRead | None:
        kernels = self._match_kernels()
        writers: dict[UOp, int] = {}
        for number, launch in enumerate(self.launches):
            arguments = kernels.get(number)
            if arguments is not None:
                found = self._look_at(number, arguments, writers, kernels)
                if found is not None:
                    return found
            for written in self._list_written(launch):
                writers[launch.buffers[written]] = number
        return None

    def _look_at(
        self, number: int, arguments: Sequence[UOp], writers: dict[UOp, int], kernels: dict[int, Sequence[UOp]]
    ) -> WrongRead | None:
        numbers = number_kernels(self.launches)
        for place in self._list_read(self.launches[number]):
            state = find_base(arguments[place])
            buffer = self.launches[number].buffers[place]
            wanted = self._find_writer(state, buffer)
            writer = writers.get(buffer)
            if writer is None or writer == wanted:
                continue
            return WrongRead(
                reader=number,
                writer=writer,
                expected=wanted,
                reads=buffer.op.name,
                size=int(buffer.shape[0]),
                dtype=name_dtype(buffer.dtype),
                reader_kernel=numbers[number],
                writer_kernel=numbers[writer],
            )
        return None

    def _match_kernels(self) -> dict[int, Sequence[UOp]]:
        """Returns the arguments of each launch in the graph of kernels: states of memory."""
        by_key: dict[object, list[Sequence[UOp]]] = {}
        for u in self.graph.toposort():
            known = kernel_of(u)
            if known is not None:
                given = [one for one in known[1] if one.op.name != "BIND" and not getattr(one, "is_bound_var", False)]
                by_key.setdefault((known[0], tuple(map(find_buffer, given))), []).append(given)
        matched: dict[int, Sequence[UOp]] = {}
        for number, launch in enumerate(self.launches):
            found = by_key.get((launch.ast, launch.buffers), [])
            # two equal kernels look the same
            if len(found) == 1:
                matched[number] = found[0]
        return matched

    def _find_writer(self, state: UOp, buffer: UOp) -> int | None:
        """Returns the launch that leaves memory in a state, None if no launch has written it."""
        if state.op.name != "AFTER":
            return None
        found = [kernel_of(one) or kernel_of(one.src[0]) for one in state.src[1:]]
        asts = [known[0] for known in found if known is not None]
        for number, launch in reversed(list(enumerate(self.launches))):
            if launch.ast in asts and buffer in launch.buffers:
                return number
        return None

    def _list_written(self, launch: Launch) -> list[int]:
        try:
            return list(dict.fromkeys(store.argument for store in self.pack(launch).stores))
        except CannotPack:
            return [0]

    def _list_read(self, launch: Launch) -> list[int]:
        try:
            kernel = self.pack(launch)
        except CannotPack:
            return list(range(1, len(launch.buffers)))
        return sorted({node.arg for node in kernel.graph.nodes if node.op == "load"})
