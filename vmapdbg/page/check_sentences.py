"""Sentences about what `check` found: for its text, for the messages of its findings and for its JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from vmapdbg.check.blame import CHANGED, Blame, Captured, Fault, find_faults
from vmapdbg.check.result import (
    CheckReport,
    Comparison,
    KernelFault,
    Misread,
    OutputCheck,
    OverwrittenInput,
    Pattern,
    ScheduleCheck,
    StaleRead,
    StaleValue,
)
from vmapdbg.model.capture import Capture, Finding, Kernel, Node
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import format_known, format_plural, inflect
from vmapdbg.page.crash_sentences import describe_crash, describe_cut_gradient, describe_expected, describe_lost_write

REPLAYED: dict[Captured, str] = {
    "not-compared": "the call that was captured was not compared",
    "wrong": "the call that was captured is wrong, too",
    "right": "the call that was captured is right: the replay makes the fault",
}
"""Result of the call that TinyJit captured -> the sentence about a wrong replay of it."""

STOCK_RUNS = "stock tinygrad computes its graph"
NOT_WRITTEN = "no kernel writes to it: the scheduler lost the assign"

WRONG_ITEM = "its kernels write what the graph asks for: `Tensor.__setitem__` makes a wrong graph"


def name_check(check: ScheduleCheck) -> str:
    """Returns `schedule 3`, or `schedule 3, replay 2 by TinyJit`."""
    return f"schedule {check.schedule}{format_known(', replay {} by TinyJit', check.replay)}"


def name_node(node: Node | None, id: int) -> str:
    """Returns `ADD 48`, or `node 48` if the capture does not have the node."""
    if node is None:
        return f"node {id}"
    return f"{node.op} {node.id}"


def name_output(output: OutputCheck) -> str:
    """Returns `output 0`, or which of the snippet's buffers it is."""
    if output.of == "assigned":
        return f"assigned buffer {output.number}"
    if output.of == "input":
        return f"buffer {output.number}, which nothing assigns to,"
    if output.of == "live":
        return f"buffer {output.number}, of a tensor that the graph does not have,"
    if output.of == "unchosen":
        return f"assigned buffer {output.number}, of which only what the index chooses is to change,"
    return f"output {output.number}"


def describe_maker(fault: KernelFault) -> str:
    """Returns a sentence about which stage made a wrong buffer."""
    if fault.made_by == "not-told":
        return f"whether the scheduler made the fault is not known: {fault.reason}"
    if fault.made_by == "lowering":
        return f"{_RIGHT}: code generation or the compiler made the fault{format_known(' ({})', fault.reason)}"
    if fault.made_by == "codegen":
        return _describe_codegen(fault)
    if fault.made_by == "compiler":
        return _describe_compiler(fault)
    if fault.is_same:
        return "the kernel as scheduled computes the same wrong values: the scheduler made the fault"
    return "the kernel as scheduled computes wrong values, too, but others: the scheduler made a fault"


def describe_stale(stale: StaleRead, reader: Kernel | None, writer: Kernel | None) -> str:
    """Returns `it reads data1_2 after E_2 #1 has written it, and should before: with what was there then it computes
    the right values`."""
    name = f"argument {stale.argument}"
    if reader is not None and stale.argument < len(reader.buffers):
        name = reader.buffers[stale.argument].name
    by = "another launch"
    if writer is not None:
        by = f"{writer.name} #{stale.writer}"
    elif stale.writer_node is not None:
        by = f"the copy of node {stale.writer_node}"
    order = f"after {by} has written it, and should before"
    if not stale.is_late:
        order = f"before {by} writes it, and should after"
    return f"it reads {name} {order}: with what was there then it computes the right values"


def describe_stale_value(stale: StaleValue) -> str:
    """Returns `it is the value from reading assigned buffer 0 after the write to it; it should be read before the
    write`."""
    times = ("after", "before") if stale.is_late else ("before", "after")
    buffer = "an assigned buffer" if stale.buffer is None else f"assigned buffer {stale.buffer}"
    return f"it is the value from reading {buffer} {times[0]} the write to it; it should be read {times[1]} the write"


def describe_overwritten(overwritten: Sequence[OverwrittenInput]) -> str:
    """Returns `it is the value from reading input 0 of the function after the replay has overwritten it`."""
    numbers = [one.number for one in overwritten]
    inputs = [f"input {number} of the function" for number in numbers if number is not None]
    others = len(numbers) - len(inputs)
    if others:
        inputs.append(format_plural(others, "buffer that is no input", "buffers that are no inputs"))
    them = inflect(len(numbers), "it", "them")
    return f"it is the value from reading {' and '.join(inputs)} after the replay has overwritten {them}"


def explain_value(output: OutputCheck) -> list[str]:
    """Returns sentences about when a wrong value was read, if that is known."""
    sentences: list[str] = []
    if output.stale is not None:
        sentences.append(describe_stale_value(output.stale))
    if output.overwritten:
        sentences.append(describe_overwritten(output.overwritten))
    return sentences


_RIGHT = "the kernel as scheduled computes it right"


def _describe_codegen(fault: KernelFault) -> str:
    if fault.reason is not None:
        return f"{_RIGHT}, its linear program does not ({fault.reason}): code generation made the fault"
    if fault.is_same:
        return f"{_RIGHT}, its linear program the same wrong values: code generation made the fault"
    return f"{_RIGHT}, its linear program wrong values, but others: code generation made a fault"


def _describe_compiler(fault: KernelFault) -> str:
    made = "the renderer, the compiler or the machine made the fault"
    if fault.reason is not None:
        return f"the kernel's linear program computes it right: {made}"
    return f"the kernel as scheduled and its linear program compute it right: {made}"


# *** a wrong output and its cause


def describe_wrong(found: Comparison) -> str:
    """Returns `4 of 6 elements are wrong, the first at [0, 0]: 7.0, should be 3.0 (PATTERN)`."""
    head = f"{found.wrong:,} of {found.total:,} elements are wrong, the first"
    if found.total == 1:
        head = "the only element is wrong"
    if found.index:
        head += f" at {list(found.index)}"
    return f"{head}: {found.got}, should be {found.expected}{bracket_pattern(found)}"


def bracket_pattern(found: Comparison) -> str:
    """Returns ` (PATTERN)`, nothing without a pattern."""
    return format_known(" ({})", found.pattern_data and describe_pattern(found.pattern_data))


def describe_misread(misread: Misread, node: Node | None) -> str:
    """Returns `what it reads is right, but the buffer of CONTIGUOUS 7 is read at other steps of its ambient ranges rm1,
    rm2: at step (0, 1) it gets what belongs to (1, 0); so at 4 of 6 steps`."""
    ranges, step, read = "ranges", str(misread.step), str(misread.read)
    if len(misread.ranges) == 1:
        ranges, step, read = "range", str(misread.step[0]), str(misread.read[0])
    return (
        f"what it reads is right, but the buffer of {name_node(node, misread.node)} is read at other steps of its "
        f"ambient {ranges} {', '.join(misread.ranges)}: at step {step} it gets what belongs to {read}; "
        f"so at {misread.wrong} of {misread.steps} steps"
    )


def describe_writer(capture: Capture, check: ScheduleCheck, output: OutputCheck) -> list[str]:
    """Returns `E_4 #0 writes ADD 5 there` for memory that changed, nothing if the writer is not known.

    For an item assignment whose graph was computed correctly, returns that the graph is wrong."""
    if output.of == "unchosen":
        is_wrong = any(one.of == "assigned" and one.number == output.number for one in check.wrong)
        return [] if is_wrong else [WRONG_ITEM]
    index = index_of(capture.schedules[check.schedule])
    kernel = index.kernel(output.writer)
    if output.writer_node is None:
        return []
    by = "a copy" if kernel is None else f"{kernel.name} #{output.writer}"
    return [f"{by} writes {name_node(index.node(output.writer_node), output.writer_node)} there"]


def describe_lost(name: str) -> str:
    return f"it has no dimension for the ambient range {name}: each step writes the same place, one of them wins"


# *** findings


def make_findings(capture: Capture, report: CheckReport) -> tuple[Finding, ...]:
    """Returns one finding for each wrong output, and one for each schedule that fails without reason."""
    return tuple(_make_finding(capture, fault) for fault in find_faults(capture, report))


def _make_finding(capture: Capture, fault: Fault) -> Finding:
    check, blame = fault.check, fault.blame
    if fault.lost is not None:
        message = f"{describe_lost_write(fault.lost)}; {name_check(check)} reads the buffer without it"
        return Finding(fault.code, None, None, fault.lost.line or check.line, message, check.schedule)
    if fault.cut is not None:
        line = fault.cut.line or check.line
        return Finding(fault.code, None, None, line, describe_cut_gradient(fault.cut), check.schedule)
    if fault.output is None:
        return _make_failure(capture, fault)
    message = "; ".join(_explain(capture, fault))
    if fault.output.writer is not None:
        return _make_overwritten(capture, fault, fault.output, message)
    if blame is None or fault.output.of == "unchosen":
        return Finding(fault.code, None, None, check.line, message, check.schedule)
    culprit, buffer = blame.misread or blame.node, blame.buffer
    return Finding(
        code=fault.code,
        kernel=blame.kernel and blame.kernel.name,
        node=(buffer.misread or buffer).node,
        line=(culprit and culprit.line) or check.line,
        message=message,
        schedule=check.schedule,
        number=None if blame.kernel is None else buffer.kernel,
        advice=_advise(blame),
    )


def _make_overwritten(capture: Capture, fault: Fault, output: OutputCheck, message: str) -> Finding:
    """Returns the finding for memory that changed, at the line that made its new value."""
    check, index = fault.check, index_of(capture.schedules[fault.check.schedule])
    kernel, node = index.kernel(output.writer), index.node(output.writer_node)
    line = (node and node.line) or check.line
    name = kernel and kernel.name
    return Finding(fault.code, name, output.writer_node, line, message, check.schedule, output.writer)


def _make_failure(capture: Capture, fault: Fault) -> Finding:
    check = fault.check
    index = index_of(capture.schedules[check.schedule])
    kernel = index.kernel(check.failed_kernel)
    failed_node = find_failed_node(check, kernel)
    node = index.node(failed_node)
    fails = f"schedule {check.schedule} fails"
    if kernel is not None:
        fails += f" in kernel {kernel.name} #{check.failed_kernel}"
    return Finding(
        code=fault.code,
        kernel=kernel and kernel.name,
        node=failed_node,
        line=(node and node.line) or check.line,
        message="; ".join([f"{fails}: {check.failed}", *_explain_failure(check)]),
        schedule=check.schedule,
        number=check.failed_kernel,
    )


def find_failed_node(check: ScheduleCheck, kernel: Kernel | None) -> int | None:
    """Returns the id of the node that a schedule failed at: the node that the kernel writes, or the last of the nodes
    that the scheduler was busy with."""
    if check.failed_node is not None:
        return check.failed_node
    if kernel is not None:
        return next(iter(kernel.outputs), None)
    return None if check.crash is None else max(check.crash.nodes, default=None)


def _explain_failure(check: ScheduleCheck) -> list[str]:
    """Returns the sentences about a schedule that failed, after the error itself."""
    sentences = [*describe_crash(check.crash), *map(describe_expected, check.expected[:1])]
    if check.stock_runs:
        sentences.append(STOCK_RUNS)
    return sentences


def _explain(capture: Capture, fault: Fault) -> list[str]:
    """Returns the sentences about a wrong output."""
    assert fault.output is not None
    wrong = describe_wrong(fault.output.comparison)
    sentences = [f"{name_output(fault.output)} of {name_check(fault.check)}: {wrong}"]
    if fault.output.of in CHANGED:
        return sentences + describe_writer(capture, fault.check, fault.output)
    if fault.output.is_written is False:
        sentences.append(NOT_WRITTEN)
    sentences += explain_value(fault.output)
    if fault.captured is not None:
        sentences.append(REPLAYED[fault.captured])
    blame = fault.blame
    if blame is None:
        return sentences
    first_wrong = f"the first wrong buffer is that of {name_node(blame.node, blame.buffer.node)}"
    if blame.kernel is not None:
        first_wrong += f", written by {blame.kernel.name} #{blame.buffer.kernel}"
    sentences.append(first_wrong)
    sentences += map(describe_lost, blame.lost)
    if blame.buffer.misread is not None:
        sentences.append(describe_misread(blame.buffer.misread, blame.misread))
    sentences += [describe_stale(read, blame.kernel, writer) for read, writer in blame.stale]
    made = blame.buffer.fault
    if made is not None and made.made_by != "not-told":
        sentences.append(describe_maker(made))
    return sentences


def _advise(blame: Blame) -> str:
    if not blame.patches_off:
        return ""
    return f"one of the patches that are off may be why: {', '.join(blame.patches_off)}"


# *** how a wrong array differs from the right one


def describe_pattern(pattern: Pattern) -> str:
    """Returns a sentence about how a wrong array differs from the right one."""
    return _PATTERNS[pattern.rule](pattern)


def _describe_repeated(pattern: Pattern) -> str:
    assert pattern.size is not None
    names = {0: "first", pattern.size - 1: "last"}
    name = names.get(pattern.first or 0, f"number {pattern.first}")
    return f"along axis {pattern.axis} all {pattern.size} slices are the {name} one"


def _describe_constant(pattern: Pattern) -> str:
    if pattern.filled is not None:
        return f"every element is {_name_filling(pattern)}"
    if pattern.first is None or pattern.size is None:
        return "every element is the same number"
    if pattern.first == 0:
        return "every element is the first"
    if pattern.first == pattern.size - 1:
        return "every element is the last"
    return f"every element is element {pattern.first} of the right ones"


def _describe_shifted(pattern: Pattern) -> str:
    shifted = f"shifted by {pattern.shift:+d} along axis {pattern.axis}"
    if pattern.rule == "rotated":
        return f"{shifted}, going around"
    return shifted


def _describe_swapped(pattern: Pattern) -> str:
    swapped = f"axes {pattern.axis} and {pattern.other_axis} are swapped"
    if pattern.same_size:
        return swapped
    return f"{swapped} (the order of the elements, in the same shape)"


def _describe_slices(pattern: Pattern) -> str:
    assert pattern.size is not None
    slices = f"slices {pattern.first} to {pattern.last}"
    if pattern.first == pattern.last:
        slices = f"slice {pattern.first}"
    if pattern.first == pattern.size - 1:
        slices += " (the last)"
    filled = format_known(", where it is {}", pattern.filled and _name_filling(pattern))
    return f"only in {slices} along axis {pattern.axis}{filled}"


def _describe_all_but_last(pattern: Pattern) -> str:
    return f"along axis {pattern.axis} all slices but the last are {_name_filling(pattern)}"


def _name_filling(pattern: Pattern) -> str:
    if pattern.filled is None:
        return "wrong"
    return {"zero": "zero", "nan": "NaN"}[pattern.filled]


_PATTERNS: dict[str, Callable[[Pattern], str]] = {
    "repeated": _describe_repeated,
    "constant": _describe_constant,
    "reversed": lambda p: f"axis {p.axis} is reversed",
    "rotated": _describe_shifted,
    "shifted": _describe_shifted,
    "swapped": _describe_swapped,
    "summed": lambda p: f"along axis {p.axis} each slice is the sum of all {p.size}",
    "scaled": lambda p: f"every element is {p.amount:.6g} times the right one",
    "offset": lambda p: f"every element is {p.amount:.6g} more than the right one",
    "slices": _describe_slices,
    "all-but-last": _describe_all_but_last,
    "filled": lambda p: f"the wrong elements are all {_name_filling(p)}",
}


def add_pattern_sentences(report: CheckReport) -> CheckReport:
    """Returns the report with a sentence for each pattern, as its JSON has it."""
    return CheckReport(tuple(map(_add_to_schedule, report.schedules)))


def _add_to_schedule(check: ScheduleCheck) -> ScheduleCheck:
    outputs = tuple(replace(output, comparison=_add_to_comparison(output.comparison)) for output in check.outputs)
    buffers = tuple(
        replace(buffer, comparison=buffer.comparison and _add_to_comparison(buffer.comparison))
        for buffer in check.buffers
    )
    return replace(check, outputs=outputs, buffers=buffers)


def _add_to_comparison(found: Comparison) -> Comparison:
    if found.pattern_data is None:
        return found
    return replace(found, pattern=describe_pattern(found.pattern_data))
