"""One call of `Tensor.realize`: its graph, what its schedule reads, and its results. Runs in the child."""

import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary, ref

from vmapdbg.child.evidence.evidence import ROOM, BlobsFull, Evidence, EvidenceFolder, HeldBuffer, Meant, list_parts
from vmapdbg.child.evidence.launches import LaunchKeeper, LiveTensors
from vmapdbg.child.evidence.packer import CannotPack, Packer, find_argument_sizes, find_variables
from vmapdbg.child.evidence.program_order import PendingTensor, ProgramOrder
from vmapdbg.child.evidence.tensor_calls import ChosenPart, Parts, find_shown, list_awaited, live_tensors
from vmapdbg.child.failures.diagnose import KnownNodes, diagnose
from vmapdbg.child.failures.endless import EndlessRewrite
from vmapdbg.child.listen import releases
from vmapdbg.child.listen.guard import leave_out
from vmapdbg.child.listen.launches import runs_captured_now
from vmapdbg.child.listen.records import PassRecord, number_kernels
from vmapdbg.child.memory import name_dtype
from vmapdbg.install.overlay import is_installed
from vmapdbg.model.account import Left
from vmapdbg.model.wording import first_line
from vmapdbg.reference.graph import OpNode

UOp = Any
Passes = Sequence[PassRecord | None]
_NO_VALUES = {"NULL": "the NULL device computes nothing", "DISK": "it reads a DISK", "TINYFS": "it reads TINYFS"}


class RealizeCall:
    """Keeps the evidence of one call: `start`, `finish` or `fail`, then `write`. Replays of the call use it later."""

    def __init__(self, folder: EvidenceFolder, asked: Sequence[Any]):
        """`asked` are the Tensors that have something to compute."""
        self.folder, self.roots = folder, [t.uop for t in asked]
        # from 0.13 on, a Tensor that is held keeps TinyJit from using its memory again; in 0.12.0 its replays use the
        # BUFFERs of the call, so more Tensors can hold the outputs, also after the snippet's are gone
        self.held_tensors = [type(t)(t.uop, device=t.uop.device) for t in asked] if is_installed() else []
        self._tensors = list(map(weakref.ref, self.held_tensors or asked))
        self.evidence = Evidence(-1, None)
        self.launches = LaunchKeeper(folder)
        self.inputs: dict[UOp, tuple[str, ...]] = {}  # BUFFER of the snippet -> its contents, on each of its devices
        self.variables: dict[str, int] = {}
        self.meant: dict[UOp, tuple[str, ...]] = {}  # BUFFER of a meaning -> contents, one a device
        self.unknown: set[int] = set()  # outputs of which it is not known what they mean
        # other Tensors that get a value, the slot of what they mean, and why that is another value
        self.others: list[tuple[ref[Any], int, Meant]] = []
        self.parts: Parts = WeakKeyDictionary()  # item assignments in its graph
        self.pending: Sequence[PendingTensor] = ()  # other Tensors that wait for a write
        self.assigned: set[UOp] = set()  # BUFFERs whose contents after the writes of its graph are to be compared
        self.packer: Packer | None = None  # None if its graph cannot be packed, also not for other inputs
        self.held: dict[UOp, HeldBuffer] = {}  # compared BUFFER -> what it held after the kernels ran
        self.is_first = False  # whether its first schedule is of its graph: later ones are of functions that it calls
        # the graph for the scheduler, and what the launches write that TinyJit keeps to run them later
        self.scheduled: UOp = None
        self.captured: list[UOp] | None = None
        # BUFFER of its schedule -> the value that it holds, for a call that TinyJit captures; it keeps no BUFFER alive
        self.made: WeakKeyDictionary[UOp, UOp] = WeakKeyDictionary()
        self.views: list[UOp | None] = []  # the outputs of a captured call, None if nothing holds the output

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Has nothing to compare if its block fails, and says so."""
        try:
            yield
        except Exception as error:
            self.evidence.graphs.clear()
            self.evidence.buffers.clear()
            self.evidence.leave_all(leave_out("evidence for check", error))

    # *** before anything runs

    def start(self, nodes: Mapping[UOp, None], parts: Parts, unwritten: Container[UOp]) -> None:
        """Packs the graph of these `nodes` and its inputs, but for `unwritten` BUFFERs; `parts`: item assignments."""
        self.parts = parts
        is_later = runs_captured_now()  # what is captured is compared in replays
        if not is_later:
            self.assigned = releases.find_assigned(self.roots, nodes)
            self.evidence.asked = {"outputs": len(self.roots), "buffers": len(self.assigned)}
        reason = _why_no_values(nodes) or self._start([u for u in nodes if u not in unwritten], is_later)
        if is_later or reason is not None:
            self.evidence.graphs.pop("asked", None)
        if reason is not None:
            self.evidence.leave_all(reason)

    def _start(self, nodes: Sequence[UOp], is_later: bool) -> str | None:
        """Packs the graph, with what it reads. Returns why its values are not compared."""
        self.inputs = dict.fromkeys(filter(has_memory, nodes), ())
        if not is_later:
            try:
                self.inputs = {u: self.folder.keep_all(u.buffer) for u in self.inputs}
            except BlobsFull:
                return f"its inputs do not fit: the buffers that are kept of one run have {ROOM >> 20} MB together"
        self.variables = find_variables(nodes)
        packer = Packer(lambda u: self.inputs.get(u, self.meant.get(u)) or None)
        try:
            packer.graph.roots = list(map(packer.pack, self.roots))
            packer.end = len(packer.graph.nodes)
            self.packer, self.evidence.graphs["asked"] = packer, packer.graph
        except CannotPack as error:
            self.evidence.refused = str(error)
        if is_later:
            return None
        self.launches.note_inputs((u.buffer, names) for u, names in self.inputs.items())
        self.launches.live = LiveTensors(self.folder, self.inputs)
        return None

    def pack_meant(
        self,
        order: ProgramOrder,
        meant: Mapping[int, UOp],
        others: Iterable[tuple[ref[Any], UOp]],
        nodes: Mapping[UOp, None],
    ) -> None:
        """Packs what outputs (by number) and `others` that get values mean, if reads and writes have another order."""
        packer = self.packer
        if packer is None:
            return
        for number, u in meant.items():
            slot = self._pack_meaning(order, packer, u, number)
            if slot is None:
                self.unknown.add(number)
            else:
                self.evidence.meant[number] = order.explain(packer.graph.roots[number], nodes, u)
                packer.graph.roots[number] = slot
        for tensor, u in others:
            slot = self._pack_meaning(order, packer, u, None)
            if slot is not None:
                self.others.append((tensor, slot, order.explain(slot, nodes, u)))

    def _pack_meaning(self, order: ProgramOrder, packer: Packer, meaning: UOp, number: int | None) -> int | None:
        """Packs what a Tensor means. Returns None if that is not possible; `number` is its number among the outputs."""
        try:
            for u in filter(has_memory, meaning.toposort()):
                if u not in self.meant and u in order.kept:
                    self.meant[u] = tuple(map(self.folder.keep_data, order.kept[u].parts))
                elif u not in self.meant:
                    self.meant[u] = self.inputs.get(u) or self.folder.keep_all(u.buffer)
            return packer.pack(meaning)
        except (BlobsFull, CannotPack) as error:
            reason = f"whether it has the contents from before a write: {str(error) or 'there was no room'}"
            self.evidence.left.append(Left("outputs", int(number is not None), reason, number))
            return None

    def read_input(self, memory: UOp) -> tuple[bytes, ...]:
        """Returns what a BUFFER of its graph held when it started, on each of its devices."""
        return tuple(map(self.folder.read_data, self.inputs.get(memory, ())))

    def note_made(self, replaced: Mapping[UOp, UOp]) -> None:
        """Notes the BUFFERs that tinygrad puts in the place of values, for the replays."""
        for value, view in replaced.items():
            held = releases.find_under(view, {"RESHAPE", "AFTER"})
            # 0.12 also replaces what comes after a kernel
            if held.op.name == "BUFFER" and held not in self.inputs and value.op.name != "AFTER":
                self.made.setdefault(held, value)

    # *** after it ran

    def finish(self, passes: Passes) -> None:
        """Ends a call that returns; `passes` are the runs of the pass for its schedules, None for an unknown run."""
        if not self.is_compared:
            if self.evidence.refused is not None:
                self.evidence.leave_all(self.evidence.refused)
            return
        if self.launches.is_full:
            reason = "buffers between its kernels were not kept: there was no room"
            self.evidence.left.append(Left("launches", 0, reason))
        try:
            self._keep_held()
            self.keep_outputs(self.evidence, self._find_views(), self.folder.keep_all)
        except BlobsFull:
            self.evidence.graphs.clear()
            self.evidence.leave_all("its outputs do not fit: there was no room")
            return
        self._pack_passed(passes)

    @property
    def is_compared(self) -> bool:
        """Whether its values can be compared, as far as is known now."""
        return "asked" in self.evidence.graphs

    def _find_views(self) -> list[UOp | None]:
        """Returns the outputs as tinygrad has them now, None if nothing holds the output."""
        return [getattr(tensor(), "uop", None) for tensor in self._tensors]

    def keep_outputs(
        self,
        evidence: Evidence,
        views: Sequence[UOp | None],
        keep: Callable[[Any], tuple[str, ...]],
        moved: Mapping[int, Any] = {},
        variables: Mapping[str, int] = {},
    ) -> None:
        """Keeps what the outputs hold now, in the evidence of the call or of a replay; `keep` keeps a buffer. `moved`
        has buffers to read instead, by the id of the replaced one; `variables` have new values. Raises BlobsFull."""

        def read(u: UOp) -> tuple[str, ...] | None:
            if not u.is_realized:
                return None
            return keep(moved.get(id(u.buffer), u.buffer))

        packer = Packer(read, variables)
        for number, view in enumerate(views):
            try:
                if view is not None and number not in self.unknown:
                    evidence.outputs[number] = packer.pack(view)
            except CannotPack as error:
                evidence.left.append(Left("outputs", 1, str(error), number))
        evidence.graphs["got"] = packer.graph

    def _keep_held(self) -> None:
        """Keeps what the buffers of the snippet hold: assigned buffers, and buffers that changed without an assign."""
        assert self.packer is not None
        touched, assigned = self.packer.find_touched(), self.packer.add_assigned()
        assigned = {u: slot for u, slot in assigned.items() if u in self.assigned}
        for buffer, before in self.inputs.items():
            slot, launch = self.packer.slots.get(buffer), self.launches.find_writer(buffer.buffer)
            if buffer in assigned:
                is_written = launch is not None if self.launches.steps else None
                now = self.folder.keep_all(buffer.buffer)
                right = assigned[buffer]
                if is_written is False and slot is not None:
                    # no output needs the write if it is pending, or if nothing can read the buffer, because in 0.12 a
                    # second assign has given its Tensor other memory: then the buffer should be as before
                    shown = {releases.buffer_under(tensor.uop) for tensor in live_tensors()}
                    right = right if buffer in shown - list_awaited() else slot
                self.held[buffer] = HeldBuffer(right, now, "assigned", is_written)
            elif slot is not None and buffer not in touched and (now := self.folder.keep_all(buffer.buffer)) != before:
                self.held[buffer] = HeldBuffer(slot, now, "input", launch=launch)
        self.evidence.held += self.held.values()
        others = self._keep_pending(self.packer)
        self.pending = ()
        if (several := len(self.assigned - assigned.keys() - others)) > 0:
            self.evidence.left.append(Left("buffers", several, "several writes change it, or a write to a copy of it"))
        for write, part in self.parts.items():
            self._keep_part(releases.buffer_under(write.src[0]), part, self.packer)
        for tensor, slot, meant in self.others:
            memory = find_shown(tensor())
            if memory is not None and memory.is_realized:
                self.evidence.held.append(HeldBuffer(slot, self.folder.keep_all(memory.buffer), "other", meant=meant))
        if self.launches.live is None:
            return
        for buffer, before, now in self.launches.live.find_changed():  # Tensors outside of the graph
            shape = tuple(map(int, buffer.shape))
            slot = self.packer.graph.add(OpNode("buffer", name_dtype(buffer.dtype), shape))
            self.packer.graph.inputs[slot] = before
            launch = self.launches.find_writer(buffer.buffer)
            self.evidence.held.append(HeldBuffer(slot, now, "live", launch=launch))

    def _keep_pending(self, packer: Packer) -> set[UOp]:
        """Keeps what Tensors hold that waited for a write. Returns their BUFFERs, if the graph had the writes."""
        found: set[UOp] = set()
        for one in self.pending:
            memory, is_asked = find_shown(one.tensor(), releases.SHARDED), packer.slots.get(one.graph) is not None
            # what is compared already, or means another graph
            is_left_out = one.memory in self.held if is_asked else not one.is_meant
            if memory is None or one.memory not in self.inputs or is_left_out:
                continue
            for u in one.graph.toposort():
                if u.op.name == "BUFFER" and u not in self.inputs and u.is_realized:
                    self.meant.setdefault(u, self.folder.keep_all(u.buffer))
            try:
                slot = packer.show_memory(packer.pack(one.graph))
            except CannotPack:
                continue
            now = self.folder.keep_all(memory.buffer)
            if is_asked:
                found.add(one.memory)
                self.evidence.held.append(HeldBuffer(slot, now, "assigned"))
            else:
                self.evidence.held.append(HeldBuffer(slot, now, "pending", line=one.line))
        return found

    def _keep_part(self, buffer: UOp | None, part: ChosenPart, packer: Packer) -> None:
        """Keeps what a buffer holds after an item assignment: only what the index chooses may change."""
        graph, held = packer.graph, self.held.get(buffer)
        if held is None or len(self.inputs[buffer]) != 1:
            return
        slot, node = packer.slots.get(buffer), graph.nodes[held.slot]
        if slot is None or node.shape != (len(part.chosen),):
            return
        chosen = graph.add(OpNode("buffer", "bool", node.shape))
        graph.inputs[chosen] = (self.folder.keep_data(part.chosen),)
        right = graph.add(OpNode("where", node.dtype, node.shape, (chosen, held.slot, slot)))
        shaped = graph.add(OpNode("reshape", node.dtype, part.shape, (right,)))
        self.evidence.held.append(HeldBuffer(shaped, held.blobs, "unchosen", part_of=list(self.held).index(buffer)))

    def _pack_passed(self, passes: Passes) -> None:
        """Packs the nodes that have buffers, and what the buffers held when their kernels had run."""
        groups = self.launches.group(passes)
        passed = next(iter(passes), None)
        if passed is None or self.scheduled is None or groups is None:
            return
        self.is_first = len(passes) > 1
        inputs = releases.find_inputs(self.scheduled, passed.toposort)
        variables = self.variables | find_argument_sizes(self.scheduled)
        packer = Packer(lambda u: self.inputs.get(inputs.get(u)), variables)
        self.launches.pack_buffers(self.evidence, passed, groups, packer)

    def fail(self, error: BaseException, nodes: KnownNodes, passes: Passes) -> None:
        """Ends a call that raises `error`; `nodes` are the known nodes of the last schedule."""
        self.evidence.failed = f"{type(error).__name__}: {first_line(error)}"
        self.evidence.crash = diagnose(error, nodes)
        self.evidence.is_endless = isinstance(error, EndlessRewrite)
        groups, failed, passed = self.launches.group(passes) or (), self.launches.failed, next(iter(passes), None)
        kernel = next((number for number, launches in enumerate(groups) if failed in launches), None)
        if passed is None or kernel is None:
            return
        self.evidence.failed_kernel = number_kernels(passed.kernels)[kernel]
        node = passed.kernels[kernel].node
        if node is not None:
            self.evidence.failed_node = nodes.find(node)

    def write(self) -> None:
        """Writes the evidence, and lets go of the graph. A call that made no schedule has no evidence."""
        if self.evidence.schedule >= 0:
            self.folder.write(self.evidence)
        self.packer = None  # the packer knows this call: a cycle keeps memory until Python collects garbage

    # *** what replays of the call ask, too

    def find_written(self) -> list[Any]:
        """Returns the buffers that its kernels wrote: a later schedule may read them."""
        written = [u.buffer for u in self.list_made()] if self.captured is not None else self.launches.outputs
        return [*written, *(part.base for buffer in written for part in list_parts(buffer))]

    def list_made(self) -> list[UOp]:
        """Returns the BUFFERs that the kernels of a captured call write, if they run later (0.13 on)."""
        made = map(releases.memory_of, self.captured or ())
        return [u for u in made if u.op.name == "BUFFER"]

    def keep_views(self, memory: set[UOp] | None) -> None:
        """Notes the outputs of a captured call. `memory` has the BUFFERs of its replays, None if they are the same."""
        self.views = self._find_views()
        if memory is not None:
            self.views = [u if u is not None and releases.memory_of(u) in memory else None for u in self.views]


def has_memory(u: UOp) -> bool:
    """Whether a UOp is a BUFFER, and not a variable of 0.14."""
    return u.op.name == "BUFFER" and not getattr(u, "is_variable", False)


def _why_no_values(nodes: Iterable[UOp]) -> str | None:
    for u in nodes:
        if u.op.name in {"DEVICE", "BUFFER", "COPY"}:  # 0.14 has no DEVICE
            device = u.arg if u.op.name == "DEVICE" else releases.device_of(u) or ()
            for name in (device,) if isinstance(device, str) else device:
                if (reason := _NO_VALUES.get(name.split(":")[0])) is not None:
                    return reason
    return None
