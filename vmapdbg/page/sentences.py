"""The sentences that say why a buffer is asked for or kept, and where tinygrad failed or did not end."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from vmapdbg.check.result import CutGradient, ExpectedOutput, LostWrite
from vmapdbg.diff.pairing import Renaming
from vmapdbg.model.capture import Capture, Decision, Node, Realized, Reason, Schedule, SnippetError, Unsplit
from vmapdbg.model.crash import Crash, RewriteStep, SharedLoop
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.vocabulary import CrashStage, Rule
from vmapdbg.model.wording import cut_end, format_known, format_plural, inflect, join_first
from vmapdbg.page.format import format_shape

MOST_NAMED = 3
"""A sentence names at most this many consumers or EXPANDs."""


class Names:
    """Names the operands of a reason: `EXPAND 50` for a node, tinygrad's own name for a range. A `renaming` gives nodes
    and ranges of before their names after, with a `'` if they have no partner."""

    def __init__(self, op_of: Callable[[int], str], renaming: Renaming | None = None) -> None:
        self.op_of, self.renaming = op_of, renaming

    def label(self, node: int) -> str:
        """Returns `EXPAND 50`."""
        partner = node if self.renaming is None else self.renaming.nodes.get(node, f"{node}'")
        return f"{self.op_of(node)} {partner}"

    def range(self, name: str) -> str:
        """Returns the name of a range."""
        return name if self.renaming is None else self.renaming.translate(name)


_MOST_OF_A_VALUE = 40  # longer values of a condition are cut

Say = Callable[[Reason, Names], str]


def say_reason(reason: Reason, names: Names) -> str:
    """Returns the sentence of a reason (an unknown rule: its name and operands); if observed, with tinygrad's line."""
    known = _SENTENCES.get(reason.rule, _say_unknown)
    try:
        sentence = known.format_map(_count_up(reason.numbers)) if isinstance(known, str) else known(reason, names)
    except (LookupError, ValueError):
        # a file that vmapdbg did not write: the rule does not have its operands
        sentence = _say_unknown(reason, names)
    return sentence if reason.at is None or reason.rule == "decided-at" else f"{sentence} ({_say_place(reason.at)})"


def fill_sentences(capture: Capture) -> Capture:
    """Returns the capture with a sentence for each reason. Call it once for a new Capture, before they are read."""
    return replace(capture, schedules=tuple(map(_fill_schedule, capture.schedules)))


def _fill_schedule(schedule: Schedule) -> Schedule:
    names = Names(index_of(schedule).op)
    nodes: list[Node] = []
    for node in schedule.nodes:
        if node.unsplit is not None:
            node = replace(node, unsplit=replace(node.unsplit, detail=say_unsplit(node.unsplit)))
        if node.realized is not None:
            node = replace(node, realized=replace(node.realized, detail=say_realized(node.realized, names)))
        nodes.append(node)
    bufferizes = (
        made if made.decided is None else replace(made, reason=say_reason(made.decided, names))
        for made in schedule.bufferizes
    )
    return replace(schedule, nodes=tuple(nodes), bufferizes=tuple(bufferizes))


def say_realized(realized: Realized, names: Names) -> str:
    """Returns why a buffer is asked for; the stored sentence for an older capture."""
    return "; ".join(say_reason(reason, names) for reason in realized.reasons) or realized.detail


def say_unsplit(unsplit: Unsplit) -> str:
    """Returns why a reduce is not split into two kernels, and the two kernels of stock tinygrad."""
    what = unsplit.rule
    if unsplit.rule == "gather":
        what = f"a gather, an index picks one element along {_name_axes(unsplit.axes)}"
    stock = "stock makes two kernels"
    if unsplit.rest:
        what += f", and what is added up along {_name_axes(unsplit.rest)} is a reduce of its own"
        stock = "stock adds up all in two kernels"
    shapes = " -> ".join(map(format_shape, (unsplit.source, unsplit.between, unsplit.result)))
    return f"{what} ({stock}: {shapes})"


def _name_axes(axes: Sequence[int]) -> str:
    return f"{inflect(len(axes), 'axis', 'axes')} {', '.join(map(str, axes))}"


def find_reason(realized: Realized) -> Reason:
    """Returns the first reason that asks for a buffer."""
    return next(iter(realized.reasons), Reason(cast(Rule, realized.reason)))


def say_briefly(realized: Realized, names: Names) -> str:
    """Returns what the rule that asks for a buffer means, for a count of nodes; else the sentence of its reason."""
    reason = find_reason(realized)
    return _MEANINGS.get(reason.rule) or say_reason(reason, names)


# *** the rules


def _say_axis(reason: Reason, names: Names) -> str:
    return f"axis {reason.axis}" if isinstance(reason.axis, int) else names.range(str(reason.axis))


def _say_disagreement(reason: Reason, names: Names) -> str:
    pairs = zip(reason.nodes, reason.ranges, strict=True)
    wants = [f"{names.label(node)} asks {names.range(asked)}" for node, asked in pairs]
    return f"{_say_axis(reason, names)}: {join_first(wants, MOST_NAMED)}"


def _say_not_shared(reason: Reason, names: Names) -> str:
    labels = list(map(names.label, reason.nodes[:MOST_NAMED]))
    return f"{_say_axis(reason, names)}: {', '.join(labels)} do not share one loop over {names.range(reason.ranges[0])}"


def _say_ending(reason: Reason, names: Names) -> str:
    ended: dict[int, list[str]] = {}
    for node, name in zip(reason.nodes, reason.ranges, strict=True):
        ended.setdefault(node, []).append(names.range(name))
    first = list(ended.items())[:MOST_NAMED]
    said = (f"{', '.join(each)} {inflect(len(each), 'ends', 'end')} at {names.label(node)}" for node, each in first)
    return "; ".join(said)


def _say_few_buffers(reason: Reason, names: Names) -> str:
    count = format_plural(int(reason.numbers["buffers"]), "buffer")
    return f"its value reads {count} ({reason.numbers['limit']} are allowed), none of them in a reduce"


def _say_reduces(reason: Reason, names: Names) -> str:
    reduces = reason.numbers["reduces"]
    counted = "a reduce in its value reads" if reduces == 1 else f"{reduces} reduces in its value read"
    computed = "it would run again for each element read"
    if reason.rule == "reduce-computed-again":
        computed = "removed anyway, by PCONTIG"
    return f"{counted} a buffer: {computed}"


def _say_place(at: Decision) -> str:
    folder = "overlay/" if at.file.startswith("overlay/") else ""
    return f"{folder}{at.file.rpartition('/')[2]}:{at.line}"


def _say_decision(reason: Reason, names: Names) -> str:
    """The statement in tinygrad's source, with the values that were tested before it."""
    if reason.at is None:
        return _say_unknown(reason, names)
    values: dict[str, str] = {}
    for condition in reason.at.conditions:
        values |= condition.values
    shown = ", ".join(f"{text}={cut_end(value, _MOST_OF_A_VALUE)}" for text, value in values.items())
    return f"decided at {_say_place(reason.at)}: {reason.at.text}{format_known(' [{}]', shown)}"


def _say_unknown(reason: Reason, names: Names) -> str:
    operands = [*map(names.label, reason.nodes), *map(names.range, reason.ranges)]
    operands += [f"{name} {number}" for name, number in reason.numbers.items()]
    return reason.rule if not operands else f"{reason.rule} ({', '.join(operands)})"


def _count_up(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Adds ratios for overlay decisions: the model of times compares well, but microseconds are off by up to half."""
    known = dict(numbers)
    if "stock_kernels" in known:
        fused, stock = (format_plural(known[name], "kernel") for name in ("kernels", "stock_kernels"))
        known["fused"] = f"fused: {fused} for {stock}"
    if "evaluations" in known:
        known["reused"] = "computed {evaluations:,} times for {elements:,} elements".format_map(known)
        if known["kernels"] > 1:
            known["reused"] += f" in {known['kernels']} kernels"
    if "stock_ops" in known:
        known["times"] = known["ops"] / max(known["stock_ops"], 1)
    if "stock_ns" in known:
        known["change"] = f"{known['ns'] / max(known['stock_ns'], 1):.2f} times as long"
    return known


_SENTENCES: dict[str, str | Say] = {
    "output": "an output of the schedule",
    "always": lambda reason, names: f"{names.op_of(reason.nodes[0])} always asks for a buffer",
    "kept-scope": lambda reason, names: f"{names.op_of(reason.nodes[0])} asks for a buffer if a CONTIGUOUS reads it",
    "source-of": lambda reason, names: f"source of {names.label(reason.nodes[0])}",
    "assign": "an ASSIGN",
    "assigned-value": lambda reason, names: f"the value of {names.label(reason.nodes[0])}",
    "outer-reduce": "a REDUCE over an OUTER range",
    "consumers-disagree": _say_disagreement,
    "loops-not-shared": _say_not_shared,
    "ending-ranges": _say_ending,
    "decided-at": _say_decision,
    "forced": "forced to be a buffer, by bisect --decisions",
    "stock": "stock tinygrad does not say why",
    # a fusion is refused
    "local-too-large": "its LOCAL buffer needs {bytes:,} bytes, the target has {limit:,}",
    "local-over-budget": "the {buffers} LOCAL buffers of its kernel need {bytes:,} bytes, the target has {limit:,}",
    "local-read-often": (
        "its LOCAL buffer would be read {reads:,} times, in a kernel that gets no opts ({limit:,} reads are allowed)"
    ),
    "reduce-at-two-places": "its kernel would run the loop of one reduce at two places",
    "not-settled": "not settled after {attempts} attempts",
    "not-tried": "not tried: it is in a part of {nodes:,} nodes, and parts of {limit:,} nodes are tried in one graph",
    "codegen-fails": "{fused}, but codegen fails on it ({error})",
    "no-kernel-saved": "{fused}: it saves no kernel",
    "more-work": (
        "{fused}, but {times:.1f} times the work ({stock_ops:,} -> {ops:,} ops; {limit:.0f} times is allowed)"
    ),
    "fewer-threads": (
        "{fused}, but {stock_threads:,} -> {threads:,} threads in the least parallel one (a quarter is allowed)"
    ),
    "slower": "{fused}, but predicted to take {change} on {target}",
    "no-faster": "{fused}, but predicted no faster on {target} ({change})",
    "more-memory": (
        "fused, its buffers would take {peak:,} bytes at the peak instead of {stock_peak:,}, and it saves too little"
        " time for that"
    ),
    # a value that its readers would compute again
    "stored-once": "{reused}: stored once, predicted to take {change} on {target}",
    "not-paid": "{reused}; stored once, predicted to take {change} on {target}, which is too little",
    "over-memory": (
        "{reused}; stored once, predicted to take {change} on {target}, but buffers would take"
        " {peak:,} bytes at the peak instead of {stock_peak:,}"
    ),
    # a BUFFERIZE is kept or removed
    "never-removed": "{op} is never removed",
    "not-removable": "not removable: a COPY reads it, or it is a buffer by its op",
    "computed-again": (
        "its readers are in one kernel and share its rows: each computes it again, which is cheaper than memory"
    ),
    "never-buffered": "{op} is never buffered",
    "many-buffers": "its value reads {buffers} buffers, more than {limit}",
    "reduce-reads-buffer": _say_reduces,
    "reduce-computed-again": _say_reduces,
    "cost-function": "kept by the cost function",
    "few-buffers": _say_few_buffers,
    "no-rule": "no rule removed it",
    "same-index": "no buffer is needed: its reader uses the same index",
    "constant": "its value is a constant",
    "buffer-limit": "added later: its reader reads as many buffers as the device allows in one kernel",
    "folded": "no buffer is needed: its reader uses the same index, or its value is a constant",
    "schedule-failed": "the schedule failed before its buffers were made",
    "not-followed": "what became of it was not seen",
}

_MEANINGS = {
    "output": "an output of the schedule",
    "always": "an op that always asks for a buffer (CONTIGUOUS, COPY, ...)",
    "kept-scope": "a VMAPOUT under a CONTIGUOUS",
    "source-of": "the source of an op that reads buffers (COPY, ...)",
    "assign": "an ASSIGN",
    "assigned-value": "the value of an ASSIGN",
    "outer-reduce": "a REDUCE over an OUTER range",
    "consumers-disagree": "its consumers ask for different ranges",
    "loops-not-shared": "its consumers do not share one loop",
    "ending-ranges": "ranges end at it: a reduce, or a reader with loops of its own",
    "forced": "forced by bisect --decisions",
}
"""What a rule that asks for buffers means, for any node."""

# *** failures

_STAGES: dict[CrashStage, str] = {
    "graph": "while the graph was built",
    "schedule": "while it was scheduled",
    "codegen": "while a kernel was compiled",
    "run": "while it ran",
}
_MOST_STEPS = 4


def describe_crash(crash: Crash | None) -> list[str]:
    """Returns sentences about what tinygrad was doing; none if that is not known."""
    if crash is None:
        return []
    sentences = [_describe_place(crash)]
    if crash.operands:
        # for example `where x is END of r0, y is END of r1`
        sentences.append(f"where {', '.join(f'{name} is {value}' for name, value in crash.operands)}")
    sentences += _describe_steps(crash)
    if crash.shared_loop is not None:
        sentences.append(_describe_loop(crash.shared_loop))
    if crash.refusal is not None:
        found = crash.refusal
        sentences.append(f"the compiler says: {found.message}, in line {found.number} of the source: {found.line}")
    return sentences


def describe_error(error: SnippetError) -> str:
    """Returns `AssertionError: MESSAGE`, or only the type for an error without a message."""
    return f"{error.type}{format_known(': {}', error.message)}"


def _describe_loop(loop: SharedLoop) -> str:
    reduces = f"{format_plural(loop.in_ast, 'REDUCE')} of the kernel's AST are over it"
    if loop.grown is not None:
        made = f'the rewrite "{loop.grown}" ({loop.grown_place})'
        reduces = f"{made} makes {format_plural(loop.reduces, 'REDUCE')} over it of {loop.in_ast}"
    since = f'since the rewrite "{loop.rewrite}" ({loop.place})'
    return f"RANGE {loop.loop} has {loop.ends} ENDs {since}, and a loop can have one: {reduces}"


def _describe_place(crash: Crash) -> str:
    rewrite = format_known(' the rewrite "{}"', crash.rewrite) + format_known(" ({})", crash.rewrite_place)
    if crash.kind != "error":
        return f"{rewrite.strip() or 'a rewrite'} has no end, {_STAGES[crash.stage]}"
    function = format_known(" ({})", crash.function)
    rule = format_known(", by the rule at {}", crash.rule)
    method = format_known(", called by {}", crash.method)
    return f"raised at {crash.place}{function}, {_STAGES[crash.stage]}{method}{format_known(', in{}', rewrite)}{rule}"


def _describe_steps(crash: Crash) -> list[str]:
    made = [step for step in crash.steps if step.becomes is not None]
    if crash.kind == "waits":
        more = format_known(", {} of them only because of their sources", len(crash.steps) - len(made) or None)
        count = format_plural(len(crash.steps), "node")
        lines = [f"{count} wait for each other in a circle{more}; {crash.done:,} were done"]
    elif crash.kind == "repeats":
        lines = [f"{format_plural(len(made), 'rewrite')} undo each other, again and again"]
    elif crash.kind == "grows":
        lines = ["a node is rewritten again and again, each time to another one"]
    else:
        return []
    last_rule = None
    for step in made[:_MOST_STEPS]:
        rule = f"by the rule at {step.rule}"
        if step.rule is None:
            rule = "because its sources did"
        elif step.rule == last_rule:
            rule = "by the same rule"
        lines.append(f"{step.node} {_describe_change(step)}, {rule}")
        last_rule = step.rule
    if len(made) > _MOST_STEPS:
        lines.append(f"and {len(made) - _MOST_STEPS} more")
    return lines


def _describe_change(step: RewriteStep) -> str:
    """Returns `becomes RANGE r1`, `gets RANGE r1 as a source`."""
    if not step.added:
        return f"becomes {step.becomes}"
    if step.becomes != step.node:
        return f"becomes {step.becomes} of {' and '.join(step.added)}"
    return f"gets {' and '.join(step.added)} as a source"


def describe_expected(expected: ExpectedOutput) -> str:
    """Returns `output 0 (2, 2) float should be 1.0, 2.0, 3.0, 4.0`."""
    first = ", ".join(map(str, expected.first))
    more = ", ..." if math.prod(expected.shape) > len(expected.first) else ""
    shape = format_known(" {}", format_shape(expected.shape))
    return f"output {expected.number}{shape} {expected.dtype} should be {first or 'empty'}{more}"


def describe_left_out(left: LostWrite | CutGradient) -> str:
    """Returns a sentence about a write that is lost or a gradient that is cut to zero."""
    if isinstance(left, LostWrite):
        what = f"a write of {format_shape(left.shape)} to a buffer of {left.size:,} {left.dtype}"
        return f"{what} is in no schedule, and no Tensor has it any more: it is lost"
    return (
        f"the gradient of a tensor {format_shape(left.shape)} {left.dtype} is zero, although the value depends on it: "
        "only through an ASSIGN (assign, clone), which tinygrad's gradient does not go through"
    )


_LEFT: Mapping[str, str] = {
    "one-side": "its schedule is on one side only",
    "not-paired": "its schedule is paired with one that is only alike",
    "not-read": "a side is a file without values",
    "not-deterministic": "not deterministic: two runs of before have other values",
    "output-count": "the other side has another number of outputs",
    "no-values": "no values were kept",
    "replays": "values of replays are not kept",
}


def describe_left(left: str) -> str:
    """Returns why a value is not compared."""
    return _LEFT.get(left, left)
