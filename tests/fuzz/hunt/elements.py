"""Statements that are elementwise."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draw import Draw
from tests.fuzz.hunt.plan import Kind
from tests.fuzz.hunt.pool import FLOATS, LARGEST, Drawn, Pool

UNARY = (
    "{0}.relu()", "{0}.abs()", "-{0}", "{0} * 0.5", "{0} + 1", "{0} * {0}", "{0} - {0} * 0.25", "{0}.square()",
    "{0}.sign()", "{0}.maximum(0.25)", "{0}.clip(-1, 1)", "({0} > 0.3).where({0}, 2.0)", "{0}.trunc()", "{0}.floor()",
    "{0}.ceil()", "{0}.sigmoid()", "{0}.tanh()", "({0} * 0.1).exp()", "{0}.sin()", "({0}.abs() + 0.1).sqrt()",
    "({0}.abs() + 1).log2()", "1 / ({0}.square() + 1)", "{0}.gelu()", "{0}.silu()", "{0}.hardswish()",
    "{0}.leaky_relu()", "{0}.softplus()", "{0}.round()", "{0}.isnan().where(0, {0})", "{0}.lerp({0} * 2, 0.5)",
)  # fmt: skip
UNARY_INTEGER = (
    "{0} + 1",
    "{0} * 3",
    "{0} // 2",
    "{0} % 3",
    "-{0}",
    "{0} & 5",
    "{0} ^ 3",
    "{0}.abs()",
    "{0} << 1",
    "{0} >> 1",
)


def unary(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick_number()
    kind = pool.kinds[name]
    return Drawn(d.choice(UNARY if kind.dtype in FLOATS else UNARY_INTEGER), (name,), kind)


BINARY = ("{0} + {1}", "{0} - {1}", "{0} * {1}", "{0}.maximum({1})", "{0}.minimum({1})", "({0} > {1}).where({0}, {1})")


def binary(d: Draw, pool: Pool) -> Drawn | None:
    first = pool.pick_number()
    kind = pool.kinds[first]
    fits: list[tuple[str, Kind]] = []
    for name, other in pool.kinds.items():
        if other.dtype == kind.dtype and (shape := broadcast(kind.shape, other.shape)) is not None:
            fits.append((name, Kind(shape, kind.dtype)))
    if not fits:
        return None
    second, made = d.choice(fits)
    texts = BINARY if kind.dtype in FLOATS else (*BINARY, "{0} & {1}", "{0} | {1}")
    return Drawn(d.choice(texts), (first, second), made)


def broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        shape = np.broadcast_shapes(a, b)
    except ValueError:
        return None
    return shape if np.prod(shape) <= LARGEST else None


def compare(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick_number()
    text = d.choice(("{0} > 0", "{0} < 0.4", "{0} == {0}.max()", "{0} != 1"))
    return Drawn(text, (name,), Kind(pool.kinds[name].shape, "bool"))


def masked(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick(lambda kind: kind.dtype == "bool")
    other = pool.pick_number()
    shape = broadcast(pool.kinds[name].shape, pool.kinds[other].shape)
    text = d.choice(("{0}.where({1}, 0)", "{0}.where(1, {1})", "{1}.masked_fill({0}, 3)"))
    if shape is None:
        return None
    return Drawn(text, (name, other), Kind(shape, pool.kinds[other].dtype))


def cast(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick()
    kind = pool.kinds[name]
    to = d.choice(("float", "float", "half", "int", "int", "uchar", "char", "long", "bool"))
    # C leaves open what a float out of range becomes
    text = (
        "{0}.clip(0, 100).cast(dtypes.TO)"
        if to in ("uchar", "uint") and kind.dtype != "bool"
        else "{0}.cast(dtypes.TO)"
    )
    if to in ("char", "int", "long") and kind.dtype in FLOATS:
        text = "{0}.clip(-100, 100).cast(dtypes.TO)"
    return Drawn(text.replace("TO", to), (name,), Kind(kind.shape, to))


def bitcast(d: Draw, pool: Pool) -> Drawn | None:
    pairs = {"float": "int", "int": "uint", "char": "uchar", "half": "short"}
    name = pool.pick(lambda kind: kind.dtype in ("float", "int", "char"))
    kind = pool.kinds[name]
    to = pairs[kind.dtype]
    text = "{0}.bitcast(dtypes.TO)"
    if kind.dtype == "float":
        text += " // 65536"
    return Drawn(text.replace("TO", to), (name,), Kind(kind.shape, to))
