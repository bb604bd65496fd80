"""Sentences about ops and memory that make numbers go wrong, for the text of `check` and for its findings."""

import itertools

from vmapdbg.check.result import CheckReport, NumberEdit, NumberFault, ScheduleCheck, WrongGradient
from vmapdbg.model.wording import format_known, format_plural, inflect
from vmapdbg.page.format import format_shape
from vmapdbg.values.tolerance import NARROW

_ADVICE = {
    "log2": "keep its argument above zero: x.maximum(1e-6)",
    "exp2": "subtract the largest element first: x - x.max(-1, keepdim=True)",
    "sqrt": "keep its argument above zero: x.maximum(0)",
    "fdiv": "keep the divisor from zero: x / (y + 1e-6)",
    "reciprocal": "keep the divisor from zero: x / (y + 1e-6)",
    "pow": "keep the base above zero: x.maximum(1e-6)",
}
"""Op of the reference -> what to try if it makes NaN or infinity."""
_DIFFERENCES = {"add", "sub", "mulacc", "reduce add"}


def describe_numbers(found: NumberFault) -> list[str]:
    """Returns what makes numbers go wrong in a schedule, and what to try."""
    outputs = format_plural(found.outputs, "output")
    if found.reason is not None:
        numbers = "NaN or infinity"
        if found.kind == "lost-digits":
            numbers = f"{format_plural(int(found.digits), 'right digit')} left"
        return [f"{outputs} with {numbers}; which op makes that is not known: {found.reason}"]
    if found.op is None:
        return [f"{outputs} with NaN or infinity: memory that it reads has them already"]
    if found.kind == "unwritten":
        part = "all of it" if found.faulty == found.total else f"{found.faulty:,} of them, from {list(found.index)} on"
        made = f"{outputs} computed of memory that nothing has written{format_known(' (Tensor.{})', found.method)}"
        fill = "write it first, or make it with Tensor.zeros"
        return [f"{made}: a buffer of {found.total:,} {found.dtype}, {part}", fill]
    of = f"{found.terms:,} numbers" if found.terms else " and ".join(map(str, found.operands)) or "no numbers"
    where = format_known(" at {}", list(found.index) or None)
    name = f"{found.op.removeprefix('reduce ').upper()} {found.dtype}{format_known(' (Tensor.{})', found.method)}"
    if found.kind == "lost-digits":
        left = f"{outputs} with {format_plural(int(found.digits), 'right digit')} left"
        made = f"{left}: {name} loses them, {found.got} of {of}{where}, in double {found.expected}"
        if found.got is None:
            made = f"{left}: {name} adds {found.terms:,} numbers in {found.dtype}"
        return [made, *map(_describe_edit, found.edits)] if found.edits else [made, _advise_digits(found)]
    made = f"{outputs} with NaN or infinity: {name} makes the first, {found.got} of {of}{where}"
    if found.total > 1:
        made += f", so at {found.faulty:,} of its {found.total:,} elements"
    return [made, *filter(None, [_advise_finite(found)])]


def describe_gradient(found: WrongGradient) -> str:
    """Returns which gradient is wrong, and whose rule makes it wrong."""
    tensor = f"tensor {found.number}{format_known(' {}', format_shape(found.shape))} {found.dtype}"
    text = f"the gradient of {tensor}{format_known(' at {}', found.line)} is wrong: along a random direction the loss "
    text += f"changes by {found.expected:.6g}, by tinygrad's gradient {found.got:.6g}"
    if not found.ops:
        return text
    ops = " or ".join(map(str.upper, found.ops))
    return f"{text}; the gradient of {ops}{format_known(' (Tensor.{})', found.method)} makes it wrong"


def _advise_finite(found: NumberFault) -> str:
    if found.got == "nan" and found.op in _DIFFERENCES:
        return "infinity minus infinity is NaN: mask with a large finite number in place of infinity"
    if found.dtype in NARROW and found.op not in _ADVICE:
        return f"{found.dtype} holds no larger number: compute it in float"
    return _ADVICE.get(found.op or "", "")


def _describe_edit(edit: NumberEdit) -> str:
    """Returns an edit, and the digits that numpy has measured with it."""
    text = f"compute it in {edit.kind} from its inputs on"
    if edit.kind == "float":
        text = "compute it in float: .sum(dtype=dtypes.float), or x.float() before it"
    if edit.kind == "subtract-mean":
        made = f"the tensor{format_known(' at {}', edit.line)}{format_known(' (Tensor.{})', edit.method)}"
        over = f"over {inflect(len(edit.axes), 'axis', 'axes')} {', '.join(map(str, edit.axes))}"
        text = f"subtract from {made} its mean {over} first: the result is the same"
    return f"{text}; {format_plural(int(edit.digits), 'digit is', 'digits are')} right then"


def _advise_digits(found: NumberFault) -> str:
    if found.op in _DIFFERENCES:
        return "the difference of large numbers: subtract what they share (their mean) first"
    return "its argument is too large, or too near a pole, for its dtype: make it smaller"


def list_new_numbers(report: CheckReport, check: ScheduleCheck) -> list[NumberFault]:
    """Returns the faults of a schedule's numbers that no earlier schedule has; only the first of all may be no op's."""
    if not check.numbers:
        return []
    before = list(itertools.takewhile(lambda one: one is not check, report.schedules))
    known = {found.origin for one in before for found in one.numbers}
    kinds = {found.kind for one in before for found in one.numbers}
    return [one for one in check.numbers if one.origin not in known and (one.op is not None or one.kind not in kinds)]
