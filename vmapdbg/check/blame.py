"""Says who is to blame for a wrong value: the node, the kernel that wrote it, and the decision that made the buffer."""

from __future__ import annotations

from dataclasses import dataclass

from vmapdbg.ambient import find_lost
from vmapdbg.check.compare import Comparison
from vmapdbg.check.result import BufferCheck, CheckReport, OutputCheck, ScheduleCheck
from vmapdbg.model import Bufferize, Capture, Finding, Kernel, Node, Schedule

WRONG_VALUE, FAILS, WRONG_CODE = "VD201", "VD202", "VD203"
CODES = {
    WRONG_VALUE: "a value differs from that of the same graph unrolled and run by stock tinygrad",
    FAILS: "a schedule fails with the patches, and stock tinygrad runs its graph unrolled",
    WRONG_CODE: "a value differs from that of the PYTHON device, and stock tinygrad gets the same wrong one",
}


@dataclass(frozen=True)
class Blame:
    """The first wrong buffer of a schedule. `lost` are ambient ranges it does not close, or has no dimension for;
    `patches_off` the patches that are off, one of which may be why."""

    buffer: BufferCheck
    node: Node | None
    kernel: Kernel | None
    bufferize: Bufferize | None
    lost: tuple[str, ...]
    patches_off: tuple[str, ...]


def find_blame(capture: Capture, check: ScheduleCheck) -> Blame | None:
    """Returns who wrote the first wrong buffer of a schedule, None where no buffer between kernels is known as
    wrong."""
    buffer = check.first_wrong_buffer
    if buffer is None:
        return None
    schedule = find_schedule(capture, check)
    node = next((n for n in schedule.nodes if n.id == buffer.node), None)
    bufferize = next((b for b in schedule.bufferizes if b.node == buffer.node), None)
    kernel = None
    if buffer.kernel is not None and buffer.kernel < len(schedule.kernels):
        kernel = schedule.kernels[buffer.kernel]
    lost = tuple(dict.fromkeys([*find_lost(schedule, bufferize), *buffer.missing]))
    off = tuple(name for name, state in capture.patches.items() if not state)
    return Blame(buffer, node, kernel, bufferize, lost, off)


def find_schedule(capture: Capture, check: ScheduleCheck) -> Schedule:
    return capture.schedules[check.schedule]


def make_findings(capture: Capture, report: CheckReport) -> tuple[Finding, ...]:
    """Returns one finding for each wrong output, and one for each schedule that only fails with the patches."""
    findings: list[Finding] = []
    for check in report.schedules:
        if check.failed is not None and check.stock_runs:
            message = f"schedule {check.schedule} fails: {check.failed}; stock tinygrad computes its graph unrolled"
            findings.append(Finding(FAILS, None, None, check.line, message, check.schedule))
        stock = {o.number for o in check.wrong if o.oracle == "stock"}
        for output in check.wrong:
            if output.oracle == "stock":
                findings.append(_make_finding(WRONG_VALUE, capture, check, output))
            elif output.number not in stock:
                findings.append(_make_finding(WRONG_CODE, capture, check, output))
    return tuple(findings)


def _make_finding(code: str, capture: Capture, check: ScheduleCheck, output: OutputCheck) -> Finding:
    blame = find_blame(capture, check)
    told = [f"output {output.number} of schedule {check.schedule}: {describe_wrong(output.comparison)}"]
    if blame is None:
        return Finding(code, None, None, check.line, told[0], check.schedule)
    place = f"{blame.node.op} {blame.node.id}" if blame.node is not None else f"node {blame.buffer.node}"
    by = f", written by {blame.kernel.name} #{blame.buffer.kernel}" if blame.kernel is not None else ""
    told.append(f"the first wrong buffer is that of {place}{by}")
    told += [describe_lost(name) for name in blame.lost]
    line = blame.node.line if blame.node is not None and blame.node.line is not None else check.line
    kernel = None if blame.kernel is None else blame.kernel.name
    off = f"one of the patches that are off may be why: {', '.join(blame.patches_off)}" if blame.patches_off else ""
    number = None if blame.kernel is None else blame.buffer.kernel
    return Finding(code, kernel, blame.buffer.node, line, "; ".join(told), check.schedule, number, None, off)


def describe_wrong(found: Comparison) -> str:
    """Returns `4 of 6 elements are wrong, the first at [0, 0]: 7.0, should be 3.0 (PATTERN)`."""
    index = "" if not found.index else f" at {list(found.index)}"
    count = (
        "the only element is wrong" if found.total == 1 else f"{found.wrong:,} of {found.total:,} elements are wrong"
    )
    first = f"{found.got}, should be {found.expected}"
    pattern = "" if found.pattern is None else f" ({found.pattern})"
    return f"{count}{', the first' if found.total > 1 else ''}{index}: {first}{pattern}"


def describe_lost(name: str) -> str:
    return f"it has no dimension for the ambient range {name}: each step writes the same place, the last one wins"
