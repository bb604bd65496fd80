"""Integer expressions of a linear program: addresses and gates. What they are made of, and how they are written."""

from __future__ import annotations

from collections.abc import Container

from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


class Undecided(Exception):
    """The set is not known: it depends on data, or is too large to go through."""


def keeps_value(cast: UOp) -> bool:
    """A cast between integers that can hold the same values here: no address is near the end of an int."""
    inside = cast.src[0].dtype
    if not dtypes.is_int(cast.dtype) or not (dtypes.is_int(inside) or inside == dtypes.bool):
        return False
    return dtypes.min(cast.dtype) <= cast.src[0].vmin and cast.src[0].vmax <= dtypes.max(cast.dtype)


def walk(expression: UOp, ends: Container[UOp]) -> list[UOp]:
    """Returns the parts of an expression, sources first, down to `ends` and to what is loaded, those included."""
    found: dict[UOp, None] = {}

    def visit(u: UOp) -> None:
        if u in found:
            return
        # the sources of a RANGE are its size and the loops it stands in
        if u not in ends and u.op not in {Ops.LOAD, Ops.RANGE, Ops.SPECIAL}:
            for s in u.src:
                visit(s)
        found[u] = None

    visit(expression)
    return list(found)


TEXT = {
    Ops.ADD: "({}+{})",
    Ops.SUB: "({}-{})",
    Ops.MUL: "({}*{})",
    Ops.NEG: "(-{})",
    Ops.IDIV: "({}/{})",
    Ops.MOD: "({}%{})",
    Ops.SHL: "({}<<{})",
    Ops.SHR: "({}>>{})",
    Ops.AND: "({}&{})",
    Ops.OR: "({}|{})",
    Ops.XOR: "({}^{})",
    Ops.MAX: "max({},{})",
    Ops.CMPLT: "({}<{})",
    Ops.CMPNE: "({}!={})",
    Ops.CMPEQ: "({}=={})",
    Ops.WHERE: "({}?{}:{})",
    Ops.CAST: "{}",
}
"""The ops that an expression may have, and how they are written."""


def write_expression(expression: UOp, names: dict[UOp, str]) -> str:
    """Returns an address or a gate as text, its loops by the names that the source gives them."""
    written = dict(names)
    for u in walk(expression, names):
        if u in written:
            continue
        if u.op is Ops.CONST:
            written[u] = str(u.arg)
        elif u.op is Ops.LOAD:
            written[u] = "a loaded value"
        elif u.op is Ops.DEFINE_VAR:
            written[u] = str(u.arg[0])
        elif u.op in TEXT:
            written[u] = TEXT[u.op].format(*(written[s] for s in u.src))
        else:
            written[u] = u.op.name
    text = written[expression]
    return text[1:-1] if text.startswith("(") and _closes_at_end(text) else text


def _closes_at_end(text: str) -> bool:
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return i == len(text) - 1
    return False
