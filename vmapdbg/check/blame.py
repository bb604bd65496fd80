"""Says who is to blame for a wrong value: the node, the kernel that wrote it, and the decision that made the buffer."""

from __future__ import annotations

from dataclasses import dataclass

from vmapdbg.check.compare import Comparison
from vmapdbg.check.result import BufferCheck, CheckReport, Misread, OutputCheck, ScheduleCheck
from vmapdbg.model import Bufferize, Capture, Finding, Kernel, Node, Schedule
from vmapdbg.schedule_index import index_of

WRONG_VALUE, FAILS, WRONG_CODE = "VD201", "VD202", "VD203"
CODES = {
    WRONG_VALUE: "a value differs from that of the same graph unrolled and run by stock tinygrad",
    FAILS: "a schedule fails with the patches, and stock tinygrad runs its graph unrolled",
    WRONG_CODE: "a value differs from that of the PYTHON device, and stock tinygrad gets the same wrong one",
}


@dataclass(frozen=True)
class Blame:
    """The first wrong buffer of a schedule. `lost` are ambient ranges it does not close, or has no dimension for;
    `patches_off` the patches that are off, one of which may be why. `read_right` is how many buffers its kernel reads,
    where all of them are right. `misread` is the node of the one that is read wrongly."""

    buffer: BufferCheck
    node: Node | None
    kernel: Kernel | None
    bufferize: Bufferize | None
    lost: tuple[str, ...]
    patches_off: tuple[str, ...]
    read_right: int
    misread: Node | None


def find_blame(capture: Capture, check: ScheduleCheck) -> Blame | None:
    """Returns who wrote the first wrong buffer of a schedule, None where no buffer between kernels is known as
    wrong."""
    buffer = check.first_wrong_buffer
    if buffer is None:
        return None
    schedule = find_schedule(capture, check)
    node = find_node(schedule, buffer.node)
    bufferize = next((b for b in schedule.bufferizes if b.node == buffer.node), None)
    kernel = None
    if buffer.kernel is not None and buffer.kernel < len(schedule.kernels):
        kernel = schedule.kernels[buffer.kernel]
    lost = tuple(dict.fromkeys([*index_of(schedule).find_lost(bufferize), *buffer.missing]))
    off = tuple(name for name, state in capture.patches.items() if not state)
    right = {b.node for b in check.buffers if b.comparison is not None and b.comparison.status != "wrong"}
    read_right = len(buffer.reads) if right.issuperset(buffer.reads) else 0
    misread = None if buffer.misread is None else find_node(schedule, buffer.misread.node)
    return Blame(buffer, node, kernel, bufferize, lost, off, read_right, misread)


def find_schedule(capture: Capture, check: ScheduleCheck) -> Schedule:
    return capture.schedules[check.schedule]


def name_check(check: ScheduleCheck) -> str:
    """Returns `schedule 3`, or `schedule 3, replay 2 by TinyJit`."""
    return f"schedule {check.schedule}" + (f", replay {check.replay} by TinyJit" if check.replay is not None else "")


def describe_replayed(report: CheckReport, check: ScheduleCheck) -> str | None:
    """Says of a replay by TinyJit how the call that was captured came out; None for what is no replay."""
    if check.replay is None:
        return None
    captured = next((c for c in report.schedules if c.schedule == check.schedule and c.replay is None), None)
    if captured is None or not captured.outputs:
        return "the call that was captured was not compared"
    if captured.wrong:
        return "the call that was captured is wrong, too"
    return "the call that was captured is right: the replay makes the fault"


def find_node(schedule: Schedule, number: int | None) -> Node | None:
    return next((node for node in schedule.nodes if node.id == number), None)


def make_findings(capture: Capture, report: CheckReport) -> tuple[Finding, ...]:
    """Returns one finding for each wrong output, and one for each schedule that only fails with the patches."""
    findings: list[Finding] = []
    for check in report.schedules:
        if check.failed is not None and check.stock_runs:
            findings.append(_make_failure(capture, check))
        stock = {o.number for o in check.wrong if o.oracle == "stock"}
        for output in check.wrong:
            if output.oracle == "stock":
                findings.append(_make_finding(WRONG_VALUE, capture, report, check, output))
            elif output.number not in stock:
                findings.append(_make_finding(WRONG_CODE, capture, report, check, output))
    return tuple(findings)


def _make_failure(capture: Capture, check: ScheduleCheck) -> Finding:
    schedule = find_schedule(capture, check)
    node = find_node(schedule, check.failed_node)
    line = node.line if node is not None and node.line is not None else check.line
    kernel = find_failed_kernel(schedule, check)
    at = "" if kernel is None else f" in kernel {kernel.name} #{check.failed_kernel}"
    message = f"schedule {check.schedule} fails{at}: {check.failed}; stock tinygrad computes its graph unrolled"
    name = None if kernel is None else kernel.name
    return Finding(FAILS, name, check.failed_node, line, message, check.schedule, check.failed_kernel)


def find_failed_kernel(schedule: Schedule, check: ScheduleCheck) -> Kernel | None:
    """Returns the kernel that raised; None where none did, or where it could not be rendered."""
    number = check.failed_kernel
    return schedule.kernels[number] if number is not None and number < len(schedule.kernels) else None


def _make_finding(
    code: str, capture: Capture, report: CheckReport, check: ScheduleCheck, output: OutputCheck
) -> Finding:
    blame = find_blame(capture, check)
    told = [f"output {output.number} of {name_check(check)}: {describe_wrong(output.comparison)}"]
    if (replayed := describe_replayed(report, check)) is not None:
        told.append(replayed)
    if blame is None:
        return Finding(code, None, None, check.line, "; ".join(told), check.schedule)
    place = f"{blame.node.op} {blame.node.id}" if blame.node is not None else f"node {blame.buffer.node}"
    by = f", written by {blame.kernel.name} #{blame.buffer.kernel}" if blame.kernel is not None else ""
    told.append(f"the first wrong buffer is that of {place}{by}")
    told += [describe_lost(name) for name in blame.lost]
    culprit = blame.misread or blame.node
    if blame.buffer.misread is not None:
        told.append(describe_misread(blame.buffer.misread, blame.misread))
    line = culprit.line if culprit is not None and culprit.line is not None else check.line
    kernel = None if blame.kernel is None else blame.kernel.name
    off = f"one of the patches that are off may be why: {', '.join(blame.patches_off)}" if blame.patches_off else ""
    number = None if blame.kernel is None else blame.buffer.kernel
    node = blame.buffer.node if blame.buffer.misread is None else blame.buffer.misread.node
    return Finding(code, kernel, node, line, "; ".join(told), check.schedule, number, None, off)


def describe_wrong(found: Comparison) -> str:
    """Returns `4 of 6 elements are wrong, the first at [0, 0]: 7.0, should be 3.0 (PATTERN)`."""
    index = "" if not found.index else f" at {list(found.index)}"
    count = (
        "the only element is wrong" if found.total == 1 else f"{found.wrong:,} of {found.total:,} elements are wrong"
    )
    first = f"{found.got}, should be {found.expected}"
    pattern = "" if found.pattern is None else f" ({found.pattern})"
    return f"{count}{', the first' if found.total > 1 else ''}{index}: {first}{pattern}"


def describe_misread(misread: Misread, node: Node | None) -> str:
    """Returns `what it reads is right, but the buffer of CONTIGUOUS 7 is read at other steps of its ambient ranges rm1,
    rm2: at step (0, 1) it gets what belongs to (1, 0); so at 4 of 6 steps`."""
    place = f"{node.op} {node.id}" if node is not None else f"node {misread.node}"
    one = len(misread.ranges) == 1
    step, read = ((s[0] if one else s) for s in (misread.step, misread.read))
    return (
        f"what it reads is right, but the buffer of {place} is read at other steps of its ambient "
        f"{'range' if one else 'ranges'} {', '.join(misread.ranges)}: at step {step} it gets what belongs to "
        f"{read}; so at {misread.wrong} of {misread.steps} steps"
    )


def describe_lost(name: str) -> str:
    return f"it has no dimension for the ambient range {name}: each step writes the same place, the last one wins"
