"""Integer expressions of a linear program: addresses and gates. As Python, to be gone through, and as text."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


class Undecided(Exception):
    """The set cannot be told: it depends on data, or is too large to go through."""


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


def _divide(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a >= 0) == (b >= 0) else -1)


def _modulo(a: int, b: int) -> int:
    return a - b * _divide(a, b)


# division is that of C: towards zero
PYTHON_OF: dict[Ops, str] = {
    Ops.ADD: "({}+{})",
    Ops.SUB: "({}-{})",
    Ops.MUL: "({}*{})",
    Ops.NEG: "(-{})",
    Ops.IDIV: "divide({},{})",
    Ops.MOD: "modulo({},{})",
    Ops.SHL: "({}<<{})",
    Ops.SHR: "({}>>{})",
    Ops.AND: "({}&{})",
    Ops.OR: "({}|{})",
    Ops.XOR: "({}^{})",
    Ops.MAX: "max({},{})",
    Ops.CMPLT: "({}<{})",
    Ops.CMPNE: "({}!={})",
    Ops.CMPEQ: "({}=={})",
    Ops.WHERE: "({1} if {0} else {2})",
    Ops.CAST: "{}",
}


_TEXT = {
    **PYTHON_OF,
    Ops.IDIV: "({}/{})",
    Ops.MOD: "({}%{})",
    Ops.WHERE: "({}?{}:{})",
}


def compile_sum(terms: list[tuple[UOp, int]], conditions: list[UOp], order: list[UOp]) -> Callable[..., int | None]:
    """Returns a function of the loops in `order`: the sum of the terms, None where a condition does not hold."""
    names: dict[UOp, str] = {loop: f"v{i}" for i, loop in enumerate(order)}
    lines: list[str] = []
    for u in walk(UOp.sink(*conditions, *(u for u, _ in terms)), names):
        if u in names or u.op is Ops.SINK:
            continue
        names[u] = f"t{len(lines)}"
        lines.append(f" {names[u]} = {translate(u, names)}")
    total = "+".join(f"{names[u]}*{scale}" for u, scale in terms) or "0"
    # a gate guards what is beside it, not what it is made of: no condition divides by zero where another fails
    test = " and ".join(names[c] for c in conditions) or "True"
    text = "\n".join(
        [f"def total({','.join(names[v] for v in order)}):", *lines, f" return {total} if {test} else None"]
    )
    scope: dict[str, Any] = {"divide": _divide, "modulo": _modulo}
    exec(text, scope)
    return scope["total"]


def translate(u: UOp, names: dict[UOp, str]) -> str:
    if u.op is Ops.CONST:
        if not isinstance(u.arg, (int, float)):
            raise Undecided(f"{u.arg} in an address")
        return repr(int(u.arg)) if u.dtype != dtypes.bool else repr(bool(u.arg))
    if u.op is Ops.CAST:
        if u.dtype == dtypes.bool:
            return f"({names[u.src[0]]} != 0)"
        if not keeps_value(u):
            raise Undecided(f"a cast to {u.dtype} in an address")
        return f"int({names[u.src[0]]})"
    return PYTHON_OF[u.op].format(*(names[s] for s in u.src))


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
        elif u.op in _TEXT:
            written[u] = _TEXT[u.op].format(*(written[s] for s in u.src))
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
