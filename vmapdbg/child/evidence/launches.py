"""Keeps what the launches of a running schedule read and wrote: the buffers between its kernels, each with the node of
the pass's graph whose value it should hold. Runs in the child.

A buffer is copied once after each write. What a launch reads is known from the start of the schedule or from the launch
that wrote it, unless another has written to this memory since. Realized Tensors that a schedule does not use must not
change: only memory that a launch would overwrite is read, so a right schedule costs nothing. A kernel that writes
outside of its buffers is not noticed."""

import itertools
import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary, ref

from vmapdbg.child.capture.view import list_nodes
from vmapdbg.child.evidence import evidence
from vmapdbg.child.evidence.filling import fill
from vmapdbg.child.evidence.packer import CannotPack, Packer, is_device
from vmapdbg.child.evidence.tensor_calls import live_tensors
from vmapdbg.child.listen.launches import PlannedLaunch
from vmapdbg.child.listen.records import Launch, PassRecord, number_kernels
from vmapdbg.child.memory import name_dtype
from vmapdbg.child.program.linear_reader import list_stored
from vmapdbg.child.program.programs import keep_program
from vmapdbg.child.program.races import may_race
from vmapdbg.model.ops import STORES
from vmapdbg.reference.graph import DEVICES

UOp = Any
_SEVERAL = "it is launched on several devices at once"
_DEVICES = evidence.KernelRun(refused=_SEVERAL, linear_refused=_SEVERAL)

MOST_OPS = 50_000  # a longer linear program is not kept

# packed kernels and linear programs, by their last UOp and the values of variables
_programs: WeakKeyDictionary[UOp, dict[tuple[tuple[str, int], ...], bytes]] = WeakKeyDictionary()


# last UOp of a linear program -> whether its threads may race
_racing: WeakKeyDictionary[UOp, bool] = WeakKeyDictionary()


@dataclass(frozen=True)
class KeptWrite:
    """What a launch wrote: the names of the contents, one for each device, the dtype, and the size on one device."""

    names: tuple[str, ...]
    dtype: str
    size: int


@dataclass(eq=False)
class PartOfMemory:
    """What a part of memory is known to have held, in order (`is_known`: the last of it now), and its last writer."""

    versions: list[evidence.Version] = field(default_factory=list[evidence.Version])
    is_known: bool = False
    writer: int | None = None

    def note(self, name: str, launch: int | None = None) -> None:
        """Notes its contents now, and the launch that wrote them."""
        self.versions.append(evidence.Version(name, launch))
        self.is_known = True


class LiveTensors:
    """The Tensors outside of the graph of a schedule that is about to run."""

    def __init__(self, folder: evidence.EvidenceFolder, used: Container[UOp]):
        self.folder = folder
        # buffer that has its memory -> Tensors, each with its BUFFER
        self._by_base: WeakKeyDictionary[Any, list[tuple[ref[Any], ref[Any]]]] = WeakKeyDictionary()
        # BUFFER that a launch has written to -> the names of what it held until then, one for each device
        self._before: WeakKeyDictionary[UOp, tuple[str, ...]] = WeakKeyDictionary()
        for tensor in live_tensors():
            memory = tensor.uop.base
            if memory.op.name != "BUFFER" or memory in used or not memory.is_realized:
                continue
            for one in evidence.list_parts(memory.buffer):
                self._by_base.setdefault(one.base, []).append((ref(tensor), ref(memory)))

    def _list_held(self, base: Any) -> Iterator[UOp]:
        """Yields the BUFFERs in some memory whose Tensors still have them."""
        for known_tensor, known_memory in self._by_base.get(base, ()):
            tensor, memory = known_tensor(), known_memory()
            if tensor is not None and memory is not None and tensor.uop.base is memory:
                yield memory

    def list_overlapping(self, buffer: Any) -> Iterator[UOp]:
        """Yields the BUFFERs of Tensors that have a part of the memory of a buffer."""
        for memory in self._list_held(buffer.base):
            if any(_share(buffer, part) for part in evidence.list_parts(memory.buffer)):
                yield memory

    def before_write(self, buffer: Any) -> None:
        """Keeps what a launch is about to overwrite. Raises BlobsFull."""
        for memory in self.list_overlapping(buffer):
            if memory not in self._before:
                self._before[memory] = self.folder.keep_all(memory.buffer)

    def find_changed(self) -> Iterator[tuple[UOp, tuple[str, ...], tuple[str, ...]]]:
        """Yields each changed BUFFER once, with the names of its contents before and now. Raises BlobsFull."""
        held = dict.fromkeys(memory for base in list(self._by_base) for memory in self._list_held(base))
        for memory in held:
            if memory in self._before and (now := self.folder.keep_all(memory.buffer)) != self._before[memory]:
                yield memory, self._before[memory], now


def _bytes_of(buffer: Any) -> tuple[int, int]:
    """Returns the first byte of a buffer in its memory, and where it ends."""
    return buffer.offset, buffer.offset + buffer.nbytes


def _share(one: Any, other: Any) -> bool:
    return one.base is other.base and _do_overlap(_bytes_of(one), _bytes_of(other))


def _is_same(one: Any, other: Any) -> bool:
    return one.base is other.base and _bytes_of(one) == _bytes_of(other)


def _do_overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


class LaunchKeeper:
    """Keeps the launches of one schedule. `is_full`: there was no room for everything. With `holds` it keeps the
    buffers that they write alive, in `outputs`. `failed` is the launch that raised."""

    def __init__(self, folder: evidence.EvidenceFolder):
        self.folder = folder
        self.steps: Sequence[PlannedLaunch] = ()
        self.written: dict[int, KeptWrite] = {}
        self.is_full = self.holds = False
        self.outputs: list[Any] = []
        self.failed: int | None = None
        self.live: LiveTensors | None = None
        self._programs: dict[int, Sequence[UOp]] = {}  # launch -> its linear program
        # launch -> for each argument its memory, and the number of the version that it held (None: no contents)
        self._read: dict[int, list[tuple[PartOfMemory, int | None]]] = {}
        # launch -> the output that the schedule has for it, and what its arguments held, if it got others
        self._planned: dict[int, tuple[Any, evidence.PlannedArguments]] = {}
        self._first: set[int] = set()  # launches that are the first to write to their output
        self.is_reordered = False  # whether kernels ran in another order than the schedule's
        # buffer that has its memory -> (first byte, end) of parts of it; it keeps no memory alive
        self._parts: WeakKeyDictionary[Any, dict[tuple[int, int], PartOfMemory]] = WeakKeyDictionary()

    def _find_part(self, buffer: Any) -> PartOfMemory:
        return self._parts.setdefault(buffer.base, {}).setdefault(_bytes_of(buffer), PartOfMemory())

    def _find_overlapping(self, buffer: Any) -> Iterator[PartOfMemory]:
        known = self._parts.get(buffer.base, {})
        return (part for place, part in known.items() if _do_overlap(_bytes_of(buffer), place))

    def note_inputs(self, inputs: Iterable[tuple[Any, Sequence[str]]]) -> None:
        """Notes the contents of buffers before anything runs."""
        for buffer, names in inputs:
            for one, name in zip(evidence.list_parts(buffer), names, strict=True):
                self._find_part(one).note(name)

    def before(self, index: int, buffers: Sequence[Any]) -> None:
        """A launch is about to run."""
        if index >= len(self.steps) or self.is_full:
            return  # a search for the best kernel launches other programs
        try:
            if self.live is not None:
                for one in self._list_written(index, buffers):
                    self.live.before_write(one)
            if not any(buffer is None or hasattr(buffer, "bufs") for buffer in buffers):
                self._fill_shared(index, buffers)
                self._read[index] = list(map(self._keep, buffers))
                self._keep_planned(index, buffers)
        except evidence.BlobsFull:
            self.is_full = True

    def begin(self, steps: Sequence[PlannedLaunch], passed: PassRecord | None) -> None:
        """A schedule begins, which a run of the pass has made, if it is known."""
        self.steps = steps
        kernels = [] if passed is None else passed.kernels
        asts, planned = [step.ast for step in steps], [kernel.ast for kernel in kernels]
        self.is_reordered = asts != planned and Counter(asts) == Counter(planned)
        if len(kernels) == len(steps) and not self.is_reordered:
            outputs = [kernel.buffers[0] for kernel in kernels]
            self._first = {outputs.index(output) for output in outputs}

    def _fill_shared(self, index: int, buffers: Sequence[Any]) -> None:
        """Fills the output of a launch if it has the memory of earlier buffers, which leave nothing in it."""
        output, *inputs = buffers
        if index not in self._first or output.base is output or any(_share(one, output) for one in inputs):
            return
        output.ensure_allocated()
        is_held = self.live is None or any(self.live.list_overlapping(output))
        known = self._parts.get(output.base, {})
        shared = [place for place in known if _do_overlap(_bytes_of(output), place)]
        if all(known[place].writer is not None for place in shared) and not is_held:
            fill(output)
            for place in shared:
                del known[place]

    def _keep_planned(self, index: int, buffers: Sequence[Any]) -> None:
        """Keeps what the schedule's arguments hold, if a launch gets others. Raises BlobsFull."""
        planned = self.steps[index].find_arguments()
        if None in planned or len(planned) != len(buffers) or any(hasattr(one, "bufs") for one in planned):
            return
        pairs = enumerate(zip(planned, buffers, strict=True))
        if others := [number for number, (one, other) in pairs if not _is_same(one, other)]:
            names = tuple(self._name(*self._keep(one)) for one in planned)
            self._planned[index] = planned[0], evidence.PlannedArguments(names, tuple(others))

    def _name(self, part: PartOfMemory, version: int | None) -> str | None:
        return None if version is None else part.versions[version].name

    def _keep(self, buffer: Any) -> tuple[PartOfMemory, int | None]:
        part = self._find_part(buffer)
        if not part.is_known and buffer.is_allocated():
            (name,) = self.folder.keep_all(buffer)
            part.note(name)
        return part, len(part.versions) - 1 if part.is_known else None

    def after(self, index: int, buffers: Sequence[Any], uops: Sequence[UOp]) -> None:
        """Keeps what a launch wrote before its memory goes to another buffer. `uops` is its linear program."""
        if index >= len(self.steps):
            return
        for one in self._list_written(index, buffers):
            for part in self._find_overlapping(one):
                part.is_known = False
            self._find_part(one).writer = index
        if self.holds:
            self.outputs += buffers[:1]
        if self.is_full or not buffers or None in buffers:
            return
        step, following = self.steps[index], self.steps[index + 1 : index + 2]
        if step.is_repeated and any(one.is_repeated and one.ast is step.ast for one in following):
            return  # the next launch writes it, too: steps of an OUTER range
        # what the schedule's output holds, if the launch got another
        output, _ = self._planned.get(index, (buffers[0], None))
        written = evidence.list_parts(output)
        try:
            names = self.folder.keep_all(output)
        except evidence.BlobsFull:
            self.is_full = True
            return
        for one, name in zip(written, names, strict=True):
            self._find_part(one).note(name, index)
        self._programs[index] = uops
        self.written[index] = KeptWrite(names, name_dtype(written[0].dtype), written[0].size)

    def find_writer(self, buffer: Any) -> int | None:
        """Returns the last launch that wrote to memory of a buffer, None if no launch is known."""
        parts = itertools.chain.from_iterable(map(self._find_overlapping, evidence.list_parts(buffer)))
        return max((part.writer for part in parts if part.writer is not None), default=None)

    def _list_written(self, index: int, buffers: Sequence[Any]) -> Iterator[Any]:
        ast, written = self.steps[index].ast, [0]
        if ast.op.name == "SINK":
            written = list_stored(ast)
        for number in written:
            if number < len(buffers):
                yield from evidence.list_parts(buffers[number])

    def group(self, passes: Sequence[PassRecord | None]) -> list[tuple[int, ...]] | None:
        """Returns for each kernel of the first pass the numbers of its launches: one, or one for each device of its
        output. The other passes are of functions that it calls, whose kernels run in between. None if unknown."""
        first, *others = passes or [None]
        if first is None or None in others:
            return None
        asts = [step.ast for step in self.steps]
        if others:
            called = {kernel.ast for one in others if one is not None for kernel in one.kernels}
            kernels = [kernel.ast for kernel in first.kernels]
            found = [number for number, ast in enumerate(asts) if ast in kernels]
            if called & {*kernels} or [asts[number] for number in found] != kernels:
                return None
            return [(number,) for number in found]
        sizes = [1] * len(first.kernels)
        if len(sizes) != len(asts):
            devices = (kernel.buffers[0].device for kernel in first.kernels)
            sizes = [len(device) if isinstance(device, tuple) else 1 for device in devices]
        if sum(sizes) != len(asts):
            return None
        order = list(range(len(asts)))
        if self.is_reordered:
            kernels = [kernel.ast for kernel in first.kernels]
            order.sort(key=lambda number: kernels.index(asts[number]))
        numbers = iter(order)
        return [tuple(itertools.islice(numbers, size)) for size in sizes]

    def pack_buffers(
        self, target: evidence.Evidence, passed: PassRecord, groups: Sequence[tuple[int, ...]], packer: Packer
    ) -> None:
        """Adds the buffers of a pass, their kernels and the graph of their values, by the launches of each kernel."""
        ids = {u: number for number, u in enumerate(list_nodes(passed))}
        numbers = number_kernels(passed.kernels)
        for number, (launches, kernel) in enumerate(zip(groups, passed.kernels, strict=True)):
            if kernel.node not in ids or any(launch not in self.written for launch in launches):
                continue
            try:
                root, is_memory = find_root(packer, kernel.node)
            except CannotPack:
                continue  # it comes after a call of a function, which is in its graph
            packer.graph.roots.append(root)
            node, kept = ids[kernel.node], self.written[launches[0]]
            ranges = find_closed(passed, kernel, kept.size)
            written = evidence.WrittenBuffer(node, numbers[number], *ranges, kept.dtype, kept.size, "", is_memory)
            parts: list[evidence.WrittenBuffer] = []
            for launch in launches:
                names = self.written[launch].names
                run = replace(_DEVICES, may_race=self._may_race(self._programs[launch]))
                if len(names) == 1:
                    run = self._pack_run(launch)
                parts += (replace(written, blob=name, run=run, launch=launch) for name in names)
            if len(parts) > 1:
                parts = [self._join_parts(parts)]
            target.buffers += parts
        target.graphs["passed"], target.is_reordered = packer.graph, self.is_reordered
        target.range_names |= {r.arg[0]: r.render(simplify=False) for r in passed.scope_ranges}
        target.range_names[DEVICES] = "device"

    def _join_parts(self, parts: Sequence[evidence.WrittenBuffer]) -> evidence.WrittenBuffer:
        """Joins a buffer on several devices, the devices as the first axis. Raises BlobsFull."""
        first = parts[0]
        data = b"".join(self.folder.read_data(part.blob) for part in parts)
        stored = ((DEVICES, len(parts)), *first.stored)
        run = evidence.KernelRun(refused="it is on several devices")
        blob = self.folder.keep_data(data)
        return replace(first, stored=stored, size=first.size * len(parts), blob=blob, run=run, parts=tuple(parts))

    def _pack_run(self, index: int) -> evidence.KernelRun:
        """Returns the run of a launch."""
        step, read = self.steps[index], self._read.get(index)
        if step.ast.op.name != "SINK":
            return evidence.KernelRun(refused="it is a copy")
        if step.is_repeated:
            return evidence.KernelRun(refused="it is launched once for each step of a loop")
        if read is None:
            return evidence.KernelRun(refused="what it reads was not kept")
        kernel, refused = self._keep_program(tuple(step.ast.toposort()), step.variables, "it")
        linear, linear_refused = self._keep_program(self._programs[index], step.variables, "its linear program")
        names = tuple(self._name(part, version) for part, version in read)
        versions, held = tuple(tuple(part.versions) for part, _ in read), tuple(version for _, version in read)
        _, planned = self._planned.get(index, (None, None))
        may_race = self._may_race(self._programs[index])
        return evidence.KernelRun(kernel, names, refused, linear, linear_refused, versions, held, planned, may_race)

    def _may_race(self, uops: Sequence[UOp]) -> bool:
        if uops and uops[-1] not in _racing:
            _racing[uops[-1]] = may_race(uops, MOST_OPS)
        return bool(uops) and _racing[uops[-1]]

    def _keep_program(
        self, uops: Sequence[UOp], variables: Mapping[str, int], what: str
    ) -> tuple[str | None, str | None]:
        """Returns the name of a kernel in the folder; or None, and why it is not there. `what` it is."""
        if not uops:
            return None, f"{what} was not kept"
        if len(uops) > MOST_OPS:
            return None, f"{what} is too long to be kept: {len(uops):,} ops"
        known, numbers = _programs.setdefault(uops[-1], {}), tuple(sorted(variables.items()))
        try:
            if numbers not in known:
                known[numbers] = keep_program(uops, variables)
            return self.folder.keep_data(known[numbers]), None
        except evidence.BlobsFull:
            return None, f"there was no room for {what}"
        except Exception as error:  # an op of the snippet's own, which no other process knows
            return None, f"{what} cannot be kept: {type(error).__name__}: {error}"


def find_root(packer: Packer, node: UOp) -> tuple[int, bool]:
    """Returns the slot of what a buffer should hold, and whether it exceeds the node's value. Raises CannotPack."""
    slot = packer.pack(node)
    if node.op.name not in STORES:
        return slot, False
    target, value = packer.graph.nodes[slot].src
    view = packer.graph.find_view(target)
    if packer.graph.is_whole(view):
        return slot if node.op.name == "ASSIGN" else value, False  # a STORE has no value of its own
    return packer.add_after(view.base, [slot]), True


def find_closed(
    passed: PassRecord, kernel: Launch, size: int
) -> tuple[tuple[int | None, ...], tuple[tuple[int | None, int], ...]]:
    """Returns the ranges of the buffer that a kernel writes: see `WrittenBuffer.closed` and `stored`. tinygrad flattens
    its dimensions into one, an expression of the ranges in their order. `size` is on one device."""
    node = kernel.node
    assert node is not None
    made = next((b for b in passed.buffers if b.node is node and b.buffer is kernel.buffers[0]), None)
    if made is None:
        return (None,) * len(node._shape or ()), ((None, size),)
    closed = tuple(map(range_id, made.stage.src[1:]))
    stage = made.verdicts.get("stored", made).stage
    stored: list[tuple[int | None, int]] = []
    for r, length in zip(stage.src[1:], map(int, stage.shape), strict=True):
        sizes = {range_id(u): int(u.vmax) + 1 for u in r.ranges}
        ordered = [(name, sizes[name]) for name in closed if name in sizes]
        if math.prod(n for _, n in ordered) != length or len(ordered) != len(sizes):
            ordered = [(None, length)]
        stored += ordered
    return closed, tuple(stored)


def range_id(r: UOp) -> int | None:
    """Returns the id that the step range of a RANGE has, unless another RANGE has taken it; None for another op."""
    if r.op.name != "RANGE":
        return None
    return DEVICES if is_device(r) else r.arg[0]
