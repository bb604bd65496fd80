"""Integer expressions of a linear program: addresses and gates. What they are made of, and how they are written."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from vmapdbg.child.program.linear import INTEGERS, Value
from vmapdbg.model.ops import ARITHMETIC


class Undecided(Exception):
    """The set is not known: it depends on data, or is too large to go through."""


def keeps_value(cast: Value) -> bool:
    """A cast between integers that can hold the same values here: no address is near the end of an int."""
    inside = cast.sources[0]
    if cast.dtype not in INTEGERS or (inside.dtype not in INTEGERS and inside.dtype != "bool"):
        return False
    lowest, highest = INTEGERS[cast.dtype]
    return lowest <= lowest_of(inside) and highest_of(inside) <= highest


def lowest_of(value: Value) -> int:
    """Returns a bound that holds for a value: tinygrad's, or that of the dtype."""
    return _bounds_of(value)[0]


def highest_of(value: Value) -> int:
    return _bounds_of(value)[1]


def _bounds_of(value: Value) -> tuple[int, int]:
    if value.lowest is None or value.highest is None:
        return INTEGERS.get(value.dtype, INTEGERS["weakint"])
    return value.lowest, value.highest


def walk(roots: Iterable[Value], ends: Container[Value]) -> list[Value]:
    """Returns the parts of expressions, sources first, down to `ends` and to what is loaded, those included."""
    found: dict[Value, None] = {}

    def visit(value: Value) -> None:
        if value in found:
            return
        if value not in ends and value.op != "load":
            for source in value.sources:
                visit(source)
        found[value] = None

    for root in roots:
        visit(root)
    return list(found)


TEXT = {op.name: op.text for op in ARITHMETIC.values() if op.text is not None} | {"cast": "{}"}
"""The ops that an address or a gate may have -> how they are written."""


def write_expression(expression: Value, names: Mapping[Value, str]) -> str:
    """Returns an address or a gate as text, its loops by the names that the source gives them."""
    written = dict(names)
    for value in walk([expression], names):
        if value in written:
            continue
        if value.op == "const":
            written[value] = str(value.constant)
        elif value.op == "load":
            written[value] = "a loaded value"
        elif value.op == "variable":
            written[value] = value.name
        elif value.op in TEXT:
            written[value] = TEXT[value.op].format(*(written[source] for source in value.sources))
        else:
            written[value] = value.op.upper()
    text = written[expression]
    return text[1:-1] if text.startswith("(") and _closes_at_end(text) else text


def _closes_at_end(text: str) -> bool:
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return i == len(text) - 1
    return False
