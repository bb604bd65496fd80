"""Sentences about what `check` found: for its text, for the messages of its findings and for its JSON."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from vmapdbg.check import findings, result
from vmapdbg.lint.memory import describe_race
from vmapdbg.model.capture import Capture, Finding, Kernel
from vmapdbg.model.schedule_index import ScheduleIndex, index_of
from vmapdbg.model.wording import format_known, format_plural, inflect, join_first
from vmapdbg.page.number_sentences import describe_gradient, describe_numbers, list_new_numbers
from vmapdbg.page.sentences import describe_crash, describe_expected, describe_left_out

_Compared = TypeVar("_Compared", result.OutputCheck, result.BufferCheck)
_MOST_REPLAYS = 12


class Sentence(NamedTuple):
    """A sentence about a wrong value, and the line of its node. `is_cause`: it names a fault, not only who made it."""

    text: str
    line: str | None = None
    is_cause: bool = True


STOCK_RUNS = "without patches it runs"
NOT_WRITTEN = "no kernel writes to it: the scheduler lost the assign"
VANISHED = "this schedule does not have the write, and after it no tensor has it: the write is lost"
NOT_CAPTURED = (
    "TinyJit did not capture the assign: the function requests it and does not realize it, so no replay runs it"
)
WRONG_ITEM = "its kernels write what the graph asks for: `Tensor.__setitem__` makes a wrong graph"


def name_check(check: result.ScheduleCheck) -> str:
    """Returns `schedule 3`, or `schedule 3, replay 2 by TinyJit`."""
    return f"schedule {check.schedule}{format_known(', {}', name_replay(check.replay))}"


def name_replay(number: int | None) -> str | None:
    """Returns `replay 2 by TinyJit`; None for what is no replay."""
    return "the call that TinyJit captured" if number == 0 else format_known("replay {} by TinyJit", number) or None


class Repeats:
    """The replays, and the schedules of a line, that have the same wrong output, and the schedules that have the same
    race: one finding, of the first of them."""

    def __init__(self, report: result.CheckReport) -> None:
        self._compared: Counter[object] = Counter()
        self._wrong: defaultdict[object, list[int]] = defaultdict(list)
        for check in report.schedules:
            self._compared[_group_of(check)] += bool(check.outputs)
            for output in check.wrong:
                self._list(check, output).append(_number_of(check))
        self._racing = {race.origin: check for check in reversed(report.schedules) for race in check.races}

    def _list(self, check: result.ScheduleCheck, output: result.OutputCheck) -> list[int]:
        name = findings.name_wrong(check, output), output.of, output.number, output.shape, output.dtype
        return self._wrong[_group_of(check), name]

    def list_new(self, check: result.ScheduleCheck) -> list[result.OutputCheck]:
        """Returns the wrong outputs of a schedule or replay that no earlier one of its group has."""
        return [one for one in check.wrong if self._list(check, one)[0] == _number_of(check)]

    def list_new_races(self, check: result.ScheduleCheck) -> list[result.KernelRace]:
        """Returns the races of a schedule that no earlier schedule has."""
        return [race for race in check.races if self._racing[race.origin] is check]

    def explain(self, check: result.ScheduleCheck, output: result.OutputCheck) -> list[str]:
        """Returns `so in 5 of the 7 replays compared: 2, 3, 4, 5, 6`; nothing if no other one has it."""
        wrong = self._list(check, output)
        if len(wrong) < 2:
            return []
        noun = "schedules of this line" if check.replay is None else "replays compared"
        numbers = join_first(list(map(str, wrong)), _MOST_REPLAYS)
        return [f"so in {len(wrong)} of the {self._compared[_group_of(check)]} {noun}: {numbers}"]


def _group_of(check: result.ScheduleCheck) -> object:
    """Returns what is the same for the replays of a schedule, or for the schedules that a line makes."""
    return check.line or check.schedule if check.replay is None else (check.schedule, "replays")


def _number_of(check: result.ScheduleCheck) -> int:
    return check.schedule if check.replay is None else check.replay


_OUTPUTS = {
    "assigned": "assigned buffer {}",
    "input": "buffer {}, which nothing assigns to,",
    "live": "buffer {}, of a tensor that the graph does not have,",
    "pending": "buffer {}, of a tensor that waits for a write,",
    "other": "buffer {}, of a tensor that gets its value here,",
    "unchosen": "assigned buffer {}, of which only what the index chooses is to change,",
}
"""Which of the snippet's buffers an output is -> its name."""


def name_output(output: result.OutputCheck) -> str:
    """Returns `output 0`, or which of the snippet's buffers it is."""
    return _OUTPUTS.get(output.of, "output {}").format(output.number)


_PROMOTED = (
    "it is C's integer promotion: C computes with integers smaller than an int as int, and the code casts the result "
    "to a larger dtype before it was made small again"
)
_RIGHT = "the kernel as scheduled computes it right"
_RENDERED = "the renderer, the compiler or the machine made the fault"


def describe_maker(fault: result.KernelFault) -> str:
    """Returns a sentence about which stage made a wrong buffer."""
    reason = format_known(" ({})", fault.reason)
    if fault.made_by == "not-told":
        return f"whether the scheduler made the fault is not known: {fault.reason}"
    if fault.made_by == "lowering":
        return f"{_RIGHT}: code generation or the compiler made the fault{reason}"
    if fault.made_by == "codegen" and reason:
        return f"{_RIGHT}, its linear program does not{reason}: code generation made the fault"
    if fault.made_by == "codegen" and fault.is_same:
        return f"{_RIGHT}, its linear program the same wrong values: code generation made the fault"
    if fault.made_by == "codegen":
        return f"{_RIGHT}, its linear program wrong values, but others: code generation made a fault"
    if fault.made_by == "compiler" and reason:
        return f"the kernel's linear program computes it right: {_RENDERED}"
    if fault.made_by == "compiler":
        return f"the kernel as scheduled and its linear program compute it right: {_RENDERED}"
    if fault.is_same:
        return "the kernel as scheduled computes the same wrong values: the scheduler made the fault"
    return "the kernel as scheduled computes wrong values, too, but others: the scheduler made a fault"


def describe_launch(index: ScheduleIndex, launch: result.WrongLaunch, number: int | None) -> str:
    """Returns a sentence about how kernel `number` ran otherwise than its schedule says."""
    if launch.variable is not None:
        name, got = launch.variable.name, launch.variable.got
        right = f"{_RIGHT} with the schedule's {name} = {launch.variable.expected}"
        return f"{right}: with {name} = {got} it gives the wrong values"
    if not launch.arguments:
        return f"{_RIGHT} in the schedule's order: the kernels were launched in another order"
    names = [name_argument(index, number, argument) for argument in launch.arguments]
    buffers = f"schedule's {inflect(len(names), 'buffer', 'buffers')} as {' and '.join(names)}"
    return f"{_RIGHT} with the {buffers}: it was launched with {inflect(len(names), 'another', 'others')}"


_STALE = "a stale reader: it was made before the write, is computed after it, and reads what the write left"
_OTHER_DRAW = (
    "a stale reader: it gets the random numbers of another draw, because their counter holds another number than at "
    "its own draw"
)
_DOCUMENTED = (
    "tinygrad documents this: test_lazy_sum_between_writes in its test/backend/test_setitem.py says that lazy sums "
    "should capture the state at the time they were created, and that this is broken"
)


def explain_value(output: result.OutputCheck) -> list[str]:
    """Returns sentences about when a wrong value was read, if that is known."""
    sentences: list[str] = []
    stale = output.stale
    if stale is not None and stale.kind == "stale reader":
        sentences += [_OTHER_DRAW if stale.is_draw else _STALE, _DOCUMENTED]
    elif stale is not None:
        was, should = ("after", "before") if stale.is_late else ("before", "after")
        name = format_known("an {}: ", stale.kind)
        buffer = format_known("assigned buffer {}", stale.buffer) or "an assigned buffer"
        read = f"{name}it is the value from reading {buffer} {was} the write to it"
        sentences.append(f"{read}; it should be read {should} the write")
    if output.exchanged is not None:
        exchanged = "the replay exchanges inputs {} and {} of the function: with that numpy gives this value"
        sentences.append(exchanged.format(*output.exchanged))
    if output.replayed is not None:
        sentences.append(_explain_replayed(output.replayed))
    if output.overwritten:
        numbers = [one.number for one in output.overwritten]
        inputs = [f"input {number} of the function" for number in numbers if number is not None]
        others = len(numbers) - len(inputs)
        if others:
            inputs.append(format_plural(others, "buffer that is not an input", "buffers that are not inputs"))
        read = f"it is the value from reading {' and '.join(inputs)}"
        sentences.append(f"{read} after the replay has overwritten {inflect(len(numbers), 'it', 'them')}")
    return sentences


def _explain_replayed(earlier: result.EarlierArguments) -> str:
    """Returns a sentence about a replay that gives the value of an earlier call."""
    said = [f"input {number}" for number in earlier.inputs]
    said += [f"{one.name} = {one.got} (not {one.expected})" for one in earlier.variables]
    call = f"replay {earlier.replay}" if earlier.replay else "the captured call"
    end = ", or did not run" if earlier.is_all else ""
    return f"numpy gives this value with {' and '.join(said)} of {call}: the replay did not use its own{end}"


# *** a wrong output and its cause


def describe_wrong(found: result.Comparison) -> str:
    """Returns `4 of 6 elements are wrong, the first at [0, 0]: 7.0, should be 3.0 (PATTERN)`."""
    head = f"{found.wrong:,} of {found.total:,} elements are wrong, the first"
    if found.total == 1:
        head = "the only element is wrong"
    if found.index:
        head += f" at {list(found.index)}"
    return f"{head}: {found.got}, should be {found.expected}{bracket_pattern(found)}"


def bracket_pattern(found: result.Comparison) -> str:
    """Returns ` (PATTERN)`, nothing without a pattern."""
    return format_known(" ({})", found.pattern_data and describe_pattern(found.pattern_data))


def explain_output(index: ScheduleIndex, check: result.ScheduleCheck, output: result.OutputCheck) -> list[Sentence]:
    """Returns what is known of a wrong output alone: who changed memory, when it was read, or a wrong graph."""
    if output.of == "unchosen":
        if any(one.of == "assigned" and one.number == output.number for one in check.wrong):
            return []
        return [Sentence(WRONG_ITEM)]
    if output.writer_node is not None:
        node = index.node(output.writer_node)
        text = f"{index.name_kernel(output.writer)} writes {index.label(output.writer_node)} there"
        return [Sentence(text, node and node.line)]
    sentences = explain_value(output)
    if output.misplaced is not None:
        found = output.misplaced
        own = f"{index.label(found.node)}, which {index.name_kernel(found.kernel)} wrote"
        shown = f"{index.label(found.shown)}, which {index.name_kernel(found.shown_kernel)} wrote"
        place = f"its values are in the buffer of {own}; its tensor has the buffer of {shown}"
        sentences.append(f"{place}: the tensor map is wrong")
    if output.of == "pending":
        sentences.append(VANISHED)
    if output.is_written is False:
        sentences.append(NOT_WRITTEN if check.replay is None else NOT_CAPTURED)
    lines = output.stale.lines if output.stale is not None else ()
    return [Sentence(text, line) for text, line in itertools.zip_longest(sentences, lines[: len(sentences)])]


def explain_buffer(index: ScheduleIndex, check: result.ScheduleCheck, buffer: result.BufferCheck) -> Iterator[Sentence]:
    """Yields what made the first wrong buffer of a schedule wrong."""
    lost = dict.fromkeys([*index.find_lost(index.bufferizes.get(buffer.node)), *buffer.missing])
    for name in lost:
        text = f"it has no dimension for the ambient range {name}: each step writes the same place, one of them wins"
        yield Sentence(text)
    right = {one.node for one in check.buffers if one.comparison is not None and not one.is_wrong}
    launch = buffer.fault and buffer.fault.launch
    if buffer.misread is not None:
        node = index.node(buffer.misread.node)
        yield Sentence(describe_misread(buffer.misread, index), node and node.line)
    elif buffer.reads and right.issuperset(buffer.reads) and not lost and not buffer.stale and not launch:
        read = "the buffer that its kernel reads is"
        if len(buffer.reads) > 1:
            read = f"all {len(buffer.reads)} buffers that it reads are"
        yield Sentence(f"{read} right: this kernel makes the fault", is_cause=False)
    for stale in buffer.stale:
        yield Sentence(describe_stale(index, stale, buffer.kernel))
    if buffer.fault is not None:
        told = describe_maker(buffer.fault) if launch is None else describe_launch(index, launch, buffer.kernel)
        yield Sentence(told, is_cause=False)
        if buffer.fault.is_promoted:
            yield Sentence(_PROMOTED)
        for one in buffer.fault.unwritten:
            yield Sentence(describe_unwritten_elements(index, one, buffer.kernel))


def describe_misread(misread: result.Misread, index: ScheduleIndex) -> str:
    """Returns `what it reads is right, but the buffer of X is read at other steps of its ambient ranges ...`."""
    ranges, step, read = "ranges", str(misread.step), str(misread.read)
    if len(misread.ranges) == 1:
        ranges, step, read = "range", str(misread.step[0]), str(misread.read[0])
    return (
        f"what it reads is right, but the buffer of {index.label(misread.node)} is read at other steps of its "
        f"ambient {ranges} {', '.join(misread.ranges)}: at step {step} it gets what belongs to {read}; "
        f"so at {misread.wrong} of {misread.steps} steps"
    )


def describe_stale(index: ScheduleIndex, stale: result.StaleRead, reader_number: int | None) -> str:
    """Returns `it reads data1_2 after E_2 #1 has written it, and should before: ...`."""
    name = name_argument(index, reader_number, stale.argument)
    by = format_known("the copy of node {}", stale.writer_node) or "another launch"
    if stale.writer is not None:
        by = index.name_kernel(stale.writer)
    order = f"after {by} has written it, and should before"
    if not stale.is_late:
        order = f"before {by} writes it, and should after"
    return f"it reads {name} {order}: with what was there then it computes the right values"


def describe_unwritten(read: result.UnwrittenRead) -> str:
    """Returns `it reads a buffer of 6 float that no kernel wrote: ...`."""
    made = format_known(" at {}", read.line)
    return (
        f"it reads a buffer of {read.size:,} {read.dtype} that no kernel wrote: TinyJit captured the schedule{made} "
        "that makes it, and its kernels write to other memory"
    )


def describe_unwritten_elements(index: ScheduleIndex, found: result.UnwrittenElements, number: int | None) -> str:
    """Returns `it reads 4 elements of data1_2 that nothing has written`."""
    elements = format_plural(found.elements, "element")
    if not found.argument:
        return f"it leaves out {elements} of its result: they are as the memory was"
    return f"it reads {elements} of {name_argument(index, number, found.argument)} that nothing has written"


def name_argument(index: ScheduleIndex, number: int | None, argument: int) -> str:
    """Returns how kernel `number` names one of its arguments."""
    kernel = index.kernel(number)
    if kernel is not None and argument < len(kernel.buffers):
        return kernel.buffers[argument].name
    return f"argument {argument}"


# *** values of a whole program


def add_messages(found: findings.ProgramCheck) -> findings.ProgramCheck:
    """Returns the results with a sentence for each finding."""

    def add(every: Sequence[findings.ProgramFinding]) -> tuple[findings.ProgramFinding, ...]:
        return tuple(replace(one, message="; ".join(_explain_finding(one))) for one in every)

    return replace(found, findings=add(found.findings), endless=add(found.endless), numbers=add(found.numbers))


def _explain_finding(found: findings.ProgramFinding) -> list[str]:
    output = found.output
    if found.unwritten is not None:
        return [describe_unwritten(found.unwritten)]
    if found.number is not None:
        return describe_numbers(found.number)
    if found.race is not None:
        return [describe_race(found.race.name, found.race.race)]
    if output is None:
        return describe_endless(found)
    # `output 0 (2, 3) float: 4 of 6 elements are wrong, the first at [0, 0]: 7.0, should be 3.0 (PATTERN)`
    name = f"{format_known('{}: ', name_replay(found.replay))}{name_output(output)}"
    return [f"{name} {output.shape} {output.dtype}: {describe_wrong(output.comparison)}", *explain_value(output)]


def describe_endless(call: findings.ProgramFinding | result.ScheduleCheck) -> list[str]:
    """Returns what was rewritten without end, by which rules, and what should have been computed; a sentence each."""
    return [*describe_crash(call.crash), *map(describe_expected, call.expected[:1])]


# *** findings


def make_findings(capture: Capture, report: result.CheckReport) -> tuple[Finding, ...]:
    """Returns findings: wrong outputs, lost writes, cut and wrong gradients, unwritten memory, failed schedules, and
    races."""
    found: list[Finding] = []
    repeats = Repeats(report)
    for check in report.schedules:
        code = findings.failure_code_of(capture, check)
        if code is not None:
            found.append(_make_failure(capture, check, code))
        name = name_check(check)
        unread = f"; {name} reads the buffer without it"
        faults = [(findings.LOST_WRITE, describe_left_out(lost) + unread, lost.line) for lost in check.lost]
        faults += [(findings.CUT_GRADIENT, describe_left_out(cut), cut.line) for cut in check.cut]
        faults += [(findings.NEVER_WRITTEN, f"{name}: {describe_unwritten(read)}", None) for read in check.unwritten]
        wrong_gradients = ((call, one) for call in check.gradients for one in call.wrong)
        for call, gradient in wrong_gradients:
            faults.append((findings.WRONG_GRADIENT, describe_gradient(gradient), gradient.op_line or call.line))
        found += [_make_finding(capture, check, code, message, line=line) for code, message, line in faults]
        for race in repeats.list_new_races(check):
            message = describe_race(race.name, race.race)
            found.append(_make_finding(capture, check, findings.RACE, message, race.kernel, race.node))
        for fault in list_new_numbers(report, check):
            message, *advice = describe_numbers(fault)
            if fault.is_finding:
                code, text = findings.NUMBERS[fault.kind], f"{name}: {message}"
                found.append(_make_finding(capture, check, code, text, line=fault.line, advice="".join(advice)))
        wrong = repeats.list_new(check)
        found += [_make_wrong(capture, check, output, repeats.explain(check, output)) for output in wrong]
    return tuple(found)


def _make_finding(
    capture: Capture,
    check: result.ScheduleCheck,
    code: str,
    message: str,
    number: int | None = None,
    node_id: int | None = None,
    line: str | None = None,
    advice: str = "",
) -> Finding:
    index = index_of(capture.schedules[check.schedule])
    kernel, node = index.kernel(number), index.node(node_id)
    line = line or (node and node.line) or check.line
    return Finding(code, kernel and kernel.name, node_id, line, message, check.schedule, number, advice=advice)


def _make_failure(capture: Capture, check: result.ScheduleCheck, code: str) -> Finding:
    kernel = index_of(capture.schedules[check.schedule]).kernel(check.failed_kernel)
    where = format_known(f" in kernel {{}} #{check.failed_kernel}", kernel and kernel.name)
    sentences = [f"schedule {check.schedule} fails{where}: {check.failed}", *describe_endless(check)]
    if check.stock_runs:
        sentences.append(STOCK_RUNS)
    node_id = find_failed_node(check, kernel)
    return _make_finding(capture, check, code, "; ".join(sentences), check.failed_kernel, node_id)


def find_failed_node(check: result.ScheduleCheck, kernel: Kernel | None) -> int | None:
    """Returns the id of the node that a schedule failed at: the kernel's output, or the scheduler's last node."""
    if check.failed_node is not None:
        return check.failed_node
    if kernel is not None:
        return next(iter(kernel.outputs), None)
    return check.crash and max(check.crash.nodes, default=None)


def _make_wrong(
    capture: Capture, check: result.ScheduleCheck, output: result.OutputCheck, repeated: Sequence[str]
) -> Finding:
    """Returns the finding of a wrong output, at the node at fault. `repeated`: in which replays it is wrong, too."""
    index, code = index_of(capture.schedules[check.schedule]), findings.name_wrong(check, output)
    sentences = [f"{name_output(output)} of {name_check(check)}: {describe_wrong(output.comparison)}", *repeated]
    sentences += [one.text for one in explain_output(index, check, output)]
    buffer = check.first_wrong_buffer
    if buffer is not None and output.of not in findings.CHANGED:
        name = index.label(buffer.node)
        sentences.append(f"first wrong buffer: {name}, written by {index.name_kernel(buffer.kernel)}")
        sentences += [one.text for one in explain_buffer(index, check, buffer)]
    number, node_id, advice = output.writer, output.writer_node, ""
    if number is None and buffer is not None and output.of != "unchosen":
        number, node_id = buffer.kernel, (buffer.misread or buffer).node
        advice = format_known("one of the patches that are off may be why: {}", capture.patches_off)
    text = "; ".join(sentences)
    return _make_finding(capture, check, code, text, number, node_id, line=output.line, advice=advice)


# *** how a wrong array differs from the right one


def describe_pattern(pattern: result.Pattern) -> str:
    """Returns a sentence about how a wrong array differs from the right one."""
    return _PATTERNS[pattern.rule](pattern)


def _describe_repeated(pattern: result.Pattern) -> str:
    assert pattern.size is not None
    name = {0: "first", pattern.size - 1: "last"}.get(pattern.first or 0, f"number {pattern.first}")
    return f"along axis {pattern.axis} all {pattern.size} slices are the {name} one"


def _describe_constant(pattern: result.Pattern) -> str:
    if pattern.filled is not None:
        return f"every element is {_name_filling(pattern)}"
    if pattern.first is None or pattern.size is None:
        return "every element is the same number"
    names = {pattern.size - 1: "the last", 0: "the first"}
    return f"every element is {names.get(pattern.first, f'element {pattern.first} of the right ones')}"


def _describe_slices(pattern: result.Pattern) -> str:
    assert pattern.size is not None
    slices = f"slice {pattern.first}" if pattern.first == pattern.last else f"slices {pattern.first} to {pattern.last}"
    if pattern.first == pattern.size - 1:
        slices += " (the last)"
    filled = format_known(", where it is {}", pattern.filled and _name_filling(pattern))
    return f"only in {slices} along axis {pattern.axis}{filled}"


def _name_filling(pattern: result.Pattern) -> str:
    return {None: "wrong", "zero": "zero", "nan": "NaN"}[pattern.filled]


_ORDER = " (the order of the elements, in the same shape)"
_PATTERNS: dict[str, Callable[[result.Pattern], str]] = {
    "repeated": _describe_repeated,
    "constant": _describe_constant,
    "reversed": lambda p: f"axis {p.axis} is reversed",
    "rotated": lambda p: f"shifted by {p.shift:+d} along axis {p.axis}, going around",
    "shifted": lambda p: f"shifted by {p.shift:+d} along axis {p.axis}",
    "swapped": lambda p: f"axes {p.axis} and {p.other_axis} are swapped{'' if p.same_size else _ORDER}",
    "summed": lambda p: f"along axis {p.axis} each slice is the sum of all {p.size}",
    "slices": _describe_slices,
    "all-but-last": lambda p: f"along axis {p.axis} all slices but the last are {_name_filling(p)}",
    "filled": lambda p: f"the wrong elements are all {_name_filling(p)}",
}


def add_pattern_sentences(report: result.CheckReport) -> result.CheckReport:
    """Returns the report with a sentence for each pattern, as its JSON has it."""

    def add(item: _Compared) -> _Compared:
        found = item.comparison
        if found is None or found.pattern_data is None:
            return item
        return replace(item, comparison=replace(found, pattern=describe_pattern(found.pattern_data)))

    schedules: list[result.ScheduleCheck] = []
    for check in report.schedules:
        outputs, buffers = tuple(map(add, check.outputs)), tuple(map(add, check.buffers))
        schedules.append(replace(check, outputs=outputs, buffers=buffers))
    return result.CheckReport(tuple(schedules))
