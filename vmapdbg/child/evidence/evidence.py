"""The evidence of a run: all that another process needs to compare its schedules while the snippet goes on. Its folder:

    asked.pickle            the graph of the last schedule that began; its values can be computed while it runs
    schedule-NUMBER.pickle  all of a schedule that ran, or of a replay of it
    written                 the names of these files, a line each time a file is written
    compared                the size that `written` had when all files in it were compared
    blobs/                  contents of buffers; a blob is written before a file names it

Each pickled file appears as a whole."""

import hashlib
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

from vmapdbg.check.result import CheckedKind, CutGradient, LostWrite, UnwrittenRead
from vmapdbg.child.memory import read_buffer
from vmapdbg.install.job import SCHEDULE_FILES
from vmapdbg.model.account import Counted, Left
from vmapdbg.model.crash import Crash
from vmapdbg.model.store import write_atomically
from vmapdbg.reference.graph import DEVICES, OpGraph

UOp = Any  # this module is imported before the overlay is installed, and must not import tinygrad

GraphName = Literal["asked", "got", "passed"]
ROOM = 1 << 30  # the most bytes of buffers that one run keeps
ASKED = "asked.pickle"
COMPARED = "compared"


@dataclass(frozen=True)
class Version:
    """What memory held for a while: the name of its contents, and the launch that wrote them (None: before all)."""

    name: str
    launch: int | None


@dataclass(frozen=True)
class PlannedArguments:
    """The `names` of what the schedule's buffers held for a launch that got other ones as the arguments `others`."""

    names: tuple[str | None, ...]
    others: tuple[int, ...]


@dataclass(frozen=True)
class KernelRun:
    """A launch of a kernel: the name of the kernel as the scheduler made it (None for the reason `refused`), and the
    names of what its arguments held right before it (None: nothing yet). `linear` is the name of its linear program,
    None for the reason `linear_refused`. `versions` has what each argument is known to have held during the schedule,
    in order; `held` has the position of what it held for this launch, None: unknown. `planned`: if other buffers than
    the schedule's were its arguments. `may_race`: only what it loads, or its variables, show if its threads race."""

    kernel: str | None = None
    arguments: tuple[str | None, ...] = ()
    refused: str | None = None
    linear: str | None = None
    linear_refused: str | None = None
    versions: tuple[tuple[Version, ...], ...] = ()
    held: tuple[int | None, ...] = ()
    planned: PlannedArguments | None = None
    may_race: bool = False


@dataclass(frozen=True)
class WrittenBuffer:
    """What one kernel wrote, read right after it ran. `node` is the id of its node in the Capture; root number N of the
    pass's graph is the node of buffer number N. `launch` wrote it, as compute kernel `kernel` (None: a copy). `closed`
    has the id of each range of the BUFFERIZE as the pass made it (None: an axis of size 1), `stored` the id and size of
    each range of the BUFFERIZE that was stored. `is_memory`: the root is all that the buffer holds, also what was there
    before. `run` is the kernel and what it read. `parts` are the parts of a buffer on several devices, in order."""

    node: int
    kernel: int | None
    closed: tuple[int | None, ...]
    stored: tuple[tuple[int | None, int], ...]
    dtype: str
    size: int
    blob: str
    is_memory: bool = False
    run: KernelRun = KernelRun(refused="it was not kept")
    launch: int | None = None
    parts: "tuple[WrittenBuffer, ...]" = ()


@dataclass(frozen=True)
class Meant:
    """An output that means something else than its graph, by the order of reads and writes: the position of the graph's
    value, the lines of the writes that the graph comes after, and whether all move the counter of random numbers."""

    slot: int
    lines: tuple[str, ...]
    is_draw: bool


@dataclass(frozen=True)
class HeldBuffer:
    """What a buffer of the snippet held after the kernels ran. `kind`: see `OutputCheck.of`. `slot` is the position of
    what it should hold in the reference's graph, `blobs` its contents, one a device. `is_written`: whether a kernel
    wrote to it (None: unknown), last `launch`. `part_of`: the assigned buffer in which an item assignment may change
    only what its index chooses. `input_number`: its number among the inputs of TinyJit's function, None if it is none.
    `line` is of a pending write, `meant` says why a Tensor made before a write should hold something else."""

    slot: int
    blobs: tuple[str, ...]
    kind: CheckedKind
    is_written: bool | None = None
    launch: int | None = None
    part_of: int | None = None
    input_number: int | None = None
    line: str | None = None
    meant: Meant | None = None


@dataclass(frozen=True)
class EarlierCall:
    """What an earlier call of TinyJit's function was given in place of what a replay was given: contents of `inputs` by
    their numbers, and values of `variables`. `replay`: see `Evidence`. `graph` is what the function asks for with these
    variables and the inputs of the replay, by `input_numbers`; `slots` maps slots of `asked` to its own."""

    replay: int
    inputs: dict[int, tuple[str, ...]]
    variables: dict[str, int]
    graph: OpGraph
    input_numbers: dict[int, int]
    slots: dict[int, int]


@dataclass
class GradientCall:
    """A call of tinygrad's autograd at the user's `line`, for `asked` targets that the loss depends on. `graph` has
    the `loss`, what its own gradient is (`upstream`), and all between them: `gradients` maps a node to its gradient,
    `detached` are DETACHes. `refused` says why there is no graph."""

    line: str | None
    asked: int
    graph: OpGraph
    loss: int = 0
    upstream: int = 0
    targets: tuple[int, ...] = ()
    gradients: dict[int, int] = field(default_factory=dict[int, int])
    detached: tuple[int, ...] = ()
    refused: str | None = None


@dataclass
class Evidence:
    """All that is needed to compare one schedule: its graphs, its inputs, and its results.

    `graphs` has `asked`, as the snippet asked for it, unless it could not be packed (`refused` says why) or compared;
    `got`, which reads what the outputs hold (`outputs`: number of the output -> slot); and `passed`, as the pass saw
    it: its roots are the nodes of `buffers`. `range_names` maps RANGE ids to rendered names.

    `failed` is the error of a schedule that raised, `crash` says how if tinygrad raised it, `failed_kernel` is the
    number of the compute kernel and `failed_node` the id of the node whose buffer it writes; `is_endless`: it was
    stopped in a rewrite that does not end. `replay` counts TinyJit's replays, from 1: the kernels ran on other inputs;
    0 is the captured call, from 0.13 on. `asked` counts what there is to compare, `left` says why something was not.
    `lost` are writes to what it reads that no schedule has, `cut` gradients that an ASSIGN cuts off, `gradients` all
    that were asked for since the schedule before, `unwritten` what it reads and no kernel wrote. `changed` are buffers
    that a replay reads and nothing in the call assigns to, but that changed. `meant` has the outputs whose roots are
    not their graphs. `is_reordered`: the kernels ran in another order than the schedule's, which `buffers` has.
    `input_numbers` maps slots of `asked` to the numbers of TinyJit's inputs; `variables` has the values that a replay
    was given, `earlier` what the captured call and the replay before were given."""

    schedule: int
    line: str | None
    graphs: dict[GraphName, OpGraph] = field(default_factory=dict["GraphName", OpGraph])
    refused: str | None = None
    outputs: dict[int, int] = field(default_factory=dict)
    held: list[HeldBuffer] = field(default_factory=list)
    buffers: list[WrittenBuffer] = field(default_factory=list)
    range_names: dict[int, str] = field(default_factory=dict)
    failed: str | None = None
    failed_kernel: int | None = None
    failed_node: int | None = None
    crash: Crash | None = None
    is_endless: bool = False
    replay: int | None = None
    asked: dict[Counted, int] = field(default_factory=dict[str, int])
    left: list[Left] = field(default_factory=list)
    lost: list[LostWrite] = field(default_factory=list)
    cut: list[CutGradient] = field(default_factory=list)
    gradients: list[GradientCall] = field(default_factory=list)
    unwritten: list[UnwrittenRead] = field(default_factory=list)
    changed: list[HeldBuffer] = field(default_factory=list)
    meant: dict[int, Meant] = field(default_factory=dict[int, Meant])
    is_reordered: bool = False
    input_numbers: dict[int, int] = field(default_factory=dict[int, int])
    variables: dict[str, int] = field(default_factory=dict[str, int])
    earlier: list[EarlierCall] = field(default_factory=list[EarlierCall])

    def leave_all(self, reason: str) -> None:
        """Adds a reason why what is asked for is not compared; a remark if nothing is."""
        for what, count in (self.asked or {"outputs": 0}).items():
            if (left := Left(what, count, reason)) not in self.left:
                self.left.append(left)

    def find_written(self, launch: int | None) -> WrittenBuffer | None:
        """Returns the buffer that a launch wrote, None if it is not known."""
        return next((buffer for buffer in self.buffers if launch is not None and buffer.launch == launch), None)

    @property
    def is_sharded(self) -> bool:
        """Whether some of its values are on several devices at once, as far as the reference knows its graph."""
        return any(DEVICES in graph.ranges for name, graph in self.graphs.items() if name != "got")


class BlobsFull(Exception):
    """There is no room for more contents."""


class EvidenceFolder:
    """Evidence in the existing folder `path`. Contents are kept once, named by their hash, `ROOM` bytes at most."""

    def __init__(self, path: Path):
        self.path, self.room = path, ROOM
        (path / "blobs").mkdir(exist_ok=True)

    def keep_data(self, data: bytes) -> str:
        """Keeps these bytes and returns their name. Raises BlobsFull."""
        name = name_data(data)
        file = self.path / "blobs" / name
        if not file.exists():
            if len(data) > self.room:
                raise BlobsFull
            self.room -= len(data)
            file.write_bytes(data)
        return name

    def keep_all(self, buffer: Any) -> tuple[str, ...]:
        """Keeps what a buffer holds now on each of its devices, and returns the names. Raises BlobsFull."""
        return tuple(self.keep_data(read_buffer(part)) for part in list_parts(buffer))

    def read_data(self, name: str) -> bytes:
        return (self.path / "blobs" / name).read_bytes()

    def find_test(self) -> str:
        """Returns the test that runs now; a snippet has none."""
        return ""

    def begin(self, test: str) -> None:
        """The evidence of a call, or of a replay, in this test is kept next."""

    def is_idle(self) -> bool:
        """Whether all that was written has been compared."""
        compared, written = self.path / COMPARED, self.path / "written"
        if not compared.exists() or not written.exists():
            return False
        return int(compared.read_text()) == written.stat().st_size

    def note_compared(self, end: int) -> None:
        """Notes that everything was compared up to the place `end` in `written`."""
        write_atomically(self.path / COMPARED, str(end))

    def write(self, evidence: Evidence) -> None:
        """Writes the file of a schedule, or of a replay of it."""
        replay = "" if evidence.replay is None else f".replay-{evidence.replay:06}"
        self._put(f"schedule-{evidence.schedule:06}{replay}.pickle", evidence)

    def write_asked(self, graph: OpGraph) -> None:
        """Writes the graph of a schedule that begins."""
        self._put(ASKED, graph)

    def _put(self, name: str, content: Evidence | OpGraph) -> None:
        write_atomically(self.path / name, pickle.dumps(content))
        with (self.path / "written").open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")

    def find_files(self) -> list[Path]:
        """Returns the file of each schedule in order, then the files of its replays."""
        return sorted(self.path.glob(SCHEDULE_FILES))

    def read_written(self, start: int) -> tuple[list[str], int]:
        """Returns the names of the files that were written since `start`, and the next `start`; the first is 0."""
        file = self.path / "written"
        if not file.exists():
            return [], start
        with file.open("rb") as opened:
            opened.seek(start)
            text = opened.read()
        whole = text[: text.rfind(b"\n") + 1]
        return whole.decode().split(), start + len(whole)


class HeldContents:
    """What buffers held around a replay, `room` bytes at most, until it may be compared. Names only work in `give`."""

    def __init__(self, room: int):
        self.room = room
        self._data: list[bytes] = []
        self._last: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # buffer -> its last contents

    def keep_all(self, buffer: Any) -> tuple[str, ...]:
        """Keeps what a buffer holds on each device. Returns the names: as before if unchanged. Raises BlobsFull."""
        return tuple(map(self._keep, list_parts(buffer)))

    def _keep(self, part: Any) -> str:
        data, known = read_buffer(part), self._last.get(part)
        if known is not None and self._data[int(known)] == data:
            return known
        if len(data) > self.room:
            raise BlobsFull
        self.room -= len(data)
        self._last[part] = self.add(data)
        return self._last[part]

    def add(self, data: bytes) -> str:
        """Keeps these bytes, without a limit, and returns their name."""
        self._data.append(data)
        return str(len(self._data) - 1)

    def read(self, names: Iterable[str]) -> tuple[bytes, ...]:
        return tuple(self._data[int(name)] for name in names)

    def give(self, evidence: Evidence, folder: EvidenceFolder) -> None:
        """Keeps the contents that evidence names in a folder, with their names there. Raises BlobsFull."""

        def move(names: Iterable[str]) -> tuple[str, ...]:
            return tuple(map(folder.keep_data, self.read(names)))

        def move_all(inputs: Mapping[int, Iterable[str]]) -> dict[int, tuple[str, ...]]:
            return {number: move(names) for number, names in inputs.items()}

        for graph in evidence.graphs.values():
            graph.inputs = move_all(graph.inputs)
        evidence.held = [replace(one, blobs=move(one.blobs)) for one in evidence.held]
        evidence.changed = [replace(one, blobs=move(one.blobs)) for one in evidence.changed]
        try:
            for one in evidence.earlier:
                one.graph.inputs = move_all(one.graph.inputs)
            evidence.earlier = [replace(one, inputs=move_all(one.inputs)) for one in evidence.earlier]
        except BlobsFull:
            evidence.earlier = []  # they only explain a wrong value


def name_data(data: bytes) -> str:
    """Returns the name of these contents: their hash."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def list_parts(buffer: Any) -> Sequence[Any]:
    """Returns the buffers of a buffer, one for each device."""
    return getattr(buffer, "bufs", [buffer])
