"""Says who is to blame for a wrong value: the node, the kernel that wrote it, and the decision that made the buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vmapdbg.check.result import BufferCheck, CheckReport, CutGradient, LostWrite, OutputCheck, ScheduleCheck, StaleRead
from vmapdbg.model.capture import Bufferize, Capture, Kernel, Node
from vmapdbg.model.schedule_index import index_of

# docs/check.md explains the codes. VD203 belonged to the oracle python, which was removed
WRONG_VALUE = "VD201"
FAILS = "VD202"
CRASHES, ENDLESS = "VD204", "VD205"
LOST_WRITE, CUT_GRADIENT = "VD206", "VD207"
OVERWRITTEN, STALE_READ, LIVE_CHANGED = "VD208", "VD209", "VD210"
NOT_CHOSEN = "VD211"

CHANGED = {"input": OVERWRITTEN, "live": LIVE_CHANGED, "unchosen": NOT_CHOSEN}

CapturedResult = Literal["not-compared", "wrong", "right"]


@dataclass(frozen=True)
class Blame:
    """The first wrong buffer of a schedule, and what may have made it wrong.

    - `lost`: ambient ranges that it does not close, or has no dimension for.
    - `patches_off`: patches that are off.
    - `read_right`: how many buffers its kernel reads, if all of them are right, else 0.
    - `misread`: the node of a right buffer that its kernel reads wrongly.
    - `stale`: arguments that its kernel read at a wrong time, each with the kernel that wrote too early or too late.
    """

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
    """Returns the first wrong buffer of a schedule with its kernel, None if no buffer is known to be wrong."""
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


def judge_captured(report: CheckReport, check: ScheduleCheck) -> CapturedResult | None:
    """Returns how the captured call of a replay by TinyJit compares; None if the schedule is no replay."""
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
    """One fault: a wrong `output`, a `lost` write, a `cut` gradient, or, if all are None, a schedule that fails.

    `blame` is None if the first wrong buffer is unknown. For a replay, `captured` is the result of the captured call.
    """

    code: str
    check: ScheduleCheck
    output: OutputCheck | None = None
    blame: Blame | None = None
    captured: CapturedResult | None = None
    lost: LostWrite | None = None
    cut: CutGradient | None = None


def find_faults(capture: Capture, report: CheckReport) -> tuple[Fault, ...]:
    """Returns a fault for each wrong output, lost write and cut gradient, and for each schedule that ends the snippet,
    or that fails only with the patches."""
    faults: list[Fault] = []
    for check in report.schedules:
        if check.crash is not None and ends_with(capture, check):
            faults.append(Fault(CRASHES if check.crash.kind == "error" else ENDLESS, check))
        elif fails_with_patches(capture, check):
            faults.append(Fault(FAILS, check))
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
    """Returns whether the snippet ended because this schedule failed: a program may expect a failure, and go on."""
    crash = None if capture.error is None else capture.error.crash
    return crash is not None and crash.schedule == check.schedule


def fails_with_patches(capture: Capture, check: ScheduleCheck) -> bool:
    """Returns whether only the patches make a schedule fail: stock tinygrad computes the graph, or it has a vmap scope,
    which stock tinygrad lacks, and numpy computes it."""
    if check.stock_runs is not None:
        return check.stock_runs
    # a missing device or compiler is not the fault of the patches
    is_made = check.crash is not None and check.crash.stage in ("schedule", "codegen")
    return is_made and bool(check.expected) and any(r.vmap for r in capture.schedules[check.schedule].ranges)
