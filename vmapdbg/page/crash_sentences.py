"""Sentences about where tinygrad failed or did not end, for the text of `check`, `show`, `lint` and for findings."""

from __future__ import annotations

import math

from vmapdbg.check.result import CutGradient, ExpectedOutput, LostWrite, ScheduleCheck
from vmapdbg.model.capture import SnippetError
from vmapdbg.model.crash import Crash, RewriteStep, SharedLoop
from vmapdbg.model.vocabulary import CrashStage
from vmapdbg.model.wording import format_known, format_plural
from vmapdbg.page.format import format_shape

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
    return sentences


def describe_error(error: SnippetError) -> str:
    """Returns `AssertionError: MESSAGE`, or only the type for an error without a message."""
    return f"{error.type}{format_known(': {}', error.message)}"


def _describe_loop(loop: SharedLoop) -> str:
    """Returns why a kernel's program cannot be put in order."""
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
    """Returns which nodes and rules keep a rewrite from ending."""
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
    more = ""
    if math.prod(expected.shape) > len(expected.first):
        more = ", ..."
    shape = format_known(" {}", format_shape(expected.shape))
    return f"output {expected.number}{shape} {expected.dtype} should be {first or 'empty'}{more}"


def describe_left_out(check: ScheduleCheck) -> list[tuple[str, str | None]]:
    """Returns the writes and gradients that tinygrad leaves out, each as a sentence and its line."""
    writes = [(describe_lost_write(lost), lost.line) for lost in check.lost]
    return writes + [(describe_cut_gradient(cut), cut.line) for cut in check.cut]


def describe_lost_write(lost: LostWrite) -> str:
    """Returns `a write of (2, 4) to a buffer of 16 float is in no schedule, and no Tensor has it any more: it is
    lost`."""
    what = f"a write of {format_shape(lost.shape)} to a buffer of {lost.size:,} {lost.dtype}"
    return f"{what} is in no schedule, and no Tensor has it any more: it is lost"


def describe_cut_gradient(cut: CutGradient) -> str:
    """Returns `the gradient of a tensor (2,) float is zero, although ...`."""
    return (
        f"the gradient of a tensor {format_shape(cut.shape)} {cut.dtype} is zero, although the value depends on it: "
        "only through an ASSIGN (assign, clone), which tinygrad's gradient does not go through"
    )
