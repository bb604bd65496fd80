"""Says who is to blame for a wrong value: the node, the kernel that wrote it, and the decision that made the buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vmapdbg.check.result import BufferCheck, CheckReport, CutGradient, LostWrite, OutputCheck, ScheduleCheck, StaleRead
from vmapdbg.model.capture import Bufferize, Capture, Kernel, Node
from vmapdbg.model.schedule_index import index_of

# VD202 and VD203 were codes of the oracles stock and python, which were removed
# a value differs from what the graph should give
WRONG_VALUE = "VD201"
# tinygrad fails on a graph, or never ends with it, and the snippet with it
CRASHES = "VD204"
ENDLESS = "VD205"
# a write that the snippet asks for is in no schedule, and a later one reads what is there without it
LOST_WRITE = "VD206"
# a gradient is zero because an ASSIGN stands between the value and the tensor
CUT_GRADIENT = "VD207"
# a buffer changed that the graph reads and nothing assigns to, or a replay read one that it had written over
OVERWRITTEN = "VD208"
# the buffer of a tensor changed that the graph does not have
LIVE_CHANGED = "VD210"
# a kernel reads what memory held at another time of the schedule than the graph asks for
STALE_READ = "VD209"

# an item assignment changed what its index does not choose
NOT_CHOSEN = "VD211"

CHANGED = {"input": OVERWRITTEN, "live": LIVE_CHANGED, "unchosen": NOT_CHOSEN}

Captured = Literal["not-compared", "wrong", "right"]


@dataclass(frozen=True)
class Blame:
    """The first wrong buffer of a schedule. `lost` are ambient ranges it does not close, or has no dimension for;
    `patches_off` the patches that are off, one of which may be why. `read_right` is how many buffers its kernel reads,
    where all of them are right. `misread` is the node of the one that is read wrongly. `stale` are the arguments that
    its kernel read at a wrong time, each with the kernel that wrote it too early or too late."""

    buffer: BufferCheck
    node: Node | None
    kernel: Kernel | None
    bufferize: Bufferize | None
    lost: tuple[str, ...]
    patches_off: tuple[str, ...]
    read_right: int
    misread: Node | None
    stale: tuple[tuple[StaleRead, Kernel | None], ...] = ()


def find_blame(capture: Capture, check: ScheduleCheck) -> Blame | None:
    """Returns who wrote the first wrong buffer of a schedule, None where no buffer between kernels is known as
    wrong."""
    buffer = check.first_wrong_buffer
    if buffer is None:
        return None
    index = index_of(capture.schedules[check.schedule])
    bufferize = index.bufferizes.get(buffer.node)
    right = {b.node for b in check.buffers if b.comparison is not None and b.comparison.status != "wrong"}
    read_right = 0
    if right.issuperset(buffer.reads):
        read_right = len(buffer.reads)
    return Blame(
        buffer=buffer,
        node=index.node(buffer.node),
        kernel=index.kernel(buffer.kernel),
        bufferize=bufferize,
        lost=tuple(dict.fromkeys([*index.find_lost(bufferize), *buffer.missing])),
        patches_off=tuple(name for name, state in capture.patches.items() if not state),
        read_right=read_right,
        misread=buffer.misread and index.node(buffer.misread.node),
        stale=tuple((read, index.kernel(read.writer)) for read in buffer.stale),
    )


def judge_captured(report: CheckReport, check: ScheduleCheck) -> Captured | None:
    """Returns how the call came out that TinyJit captured and replays; None for what is no replay."""
    if check.replay is None:
        return None
    captured = next((c for c in report.schedules if c.schedule == check.schedule and c.replay is None), None)
    if captured is None or not captured.outputs:
        return "not-compared"
    if captured.wrong:
        return "wrong"
    return "right"


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: an `output`, a write that got `lost`, a gradient that is `cut`, or where all are None
    the whole schedule, which fails. `blame` is None where the first wrong buffer is not known; `captured` tells of a
    replay how the captured call came out."""

    code: str
    check: ScheduleCheck
    output: OutputCheck | None = None
    blame: Blame | None = None
    captured: Captured | None = None
    lost: LostWrite | None = None
    cut: CutGradient | None = None


def find_faults(capture: Capture, report: CheckReport) -> tuple[Fault, ...]:
    """Returns a fault for each wrong output, lost write and cut gradient, and for a schedule that ends the snippet."""
    faults: list[Fault] = []
    for check in report.schedules:
        if check.crash is not None and ends_with(capture, check):
            faults.append(Fault(CRASHES if check.crash.kind == "error" else ENDLESS, check))
        faults += [Fault(LOST_WRITE, check, lost=lost) for lost in check.lost]
        faults += [Fault(CUT_GRADIENT, check, cut=cut) for cut in check.cut]
        blamed, captured = find_blame(capture, check), judge_captured(report, check)
        faults += [Fault(name_wrong(check, output), check, output, blamed, captured) for output in check.wrong]
    return tuple(faults)


def name_wrong(check: ScheduleCheck, output: OutputCheck) -> str:
    """Returns the code of a wrong output."""
    if output.of in CHANGED:
        return CHANGED[output.of]
    if output.overwritten:
        return OVERWRITTEN
    buffer = check.first_wrong_buffer
    if output.stale is not None or (buffer is not None and buffer.stale):
        return STALE_READ
    return WRONG_VALUE


def ends_with(capture: Capture, check: ScheduleCheck) -> bool:
    """Tells whether the snippet ended because this schedule failed: a program may expect that one does, and go on."""
    crash = None if capture.error is None else capture.error.crash
    return crash is not None and crash.schedule == check.schedule
