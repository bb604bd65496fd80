"""Statements that reduce: sums, scans, softmax, products."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draw import Draw
from tests.fuzz.hunt.pool import FLOATS, Change, Drawn, Pool, axis, make


def reduce(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick_number(1)
    op, at = d.choice(("sum", "sum", "sum", "max", "max", "min", "mean")), axis(d, pool, name)
    form = d.choice(("{0}.OP(AT)", "{0}.OP(AT, keepdim=True)", "{0}.OP()"))
    keeps = form.endswith("True)")
    change: Change = (lambda a: a.any(at, keepdims=keeps)) if "AT" in form else (lambda a: a.any())
    dtype = "float" if op == "mean" and pool.kinds[name].dtype not in FLOATS else None
    if op == "sum" and pool.kinds[name].dtype in ("uchar", "char"):
        op = "max"
    return make(pool, name, form.replace("OP", op).replace("AT", str(at)), change, dtype)


def reduce_more(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick_float(1)
    at = axis(d, pool, name)
    text = d.choice(("{0}.var(AT)", "{0}.std(AT)", "{0}.logsumexp(AT)", "({0} * 0.5).prod(AT)"))
    return (
        make(pool, name, text.replace("AT", str(at)), lambda a: a.any(at)) if pool.kinds[name].shape[at] > 1 else None
    )


def arg_reduce(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick_number(1)
    at = axis(d, pool, name)
    text = d.choice(("{0}.argmax(AT)", "{0}.argmin(AT)")).replace("AT", str(at))
    return make(pool, name, text, lambda a: a.any(at), "int")


def scan(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick_number(1)
    if pool.kinds[name].dtype in ("uchar", "char", "half"):
        return None
    at = axis(d, pool, name)
    text = d.choice(("{0}.cumsum(AT)", "{0}.cumsum(AT)", "({0} * 0.5).cumprod(AT)"))
    if pool.kinds[name].dtype not in FLOATS and "cumprod" in text:
        return None
    return make(pool, name, text.replace("AT", str(at)), lambda a: a)


SPREADS = (
    "{0}.softmax(AT)",
    "{0}.log_softmax(AT)",
    "{0}.layernorm(AT)",
    "{0} * {0}.sum(AT, keepdim=True)",
    "{0} - {0}.max(AT, keepdim=True)",
    "{0} / ({0}.square().mean(AT, keepdim=True) + 1).sqrt()",
)
"""What reduces, and combines what comes out with what went in."""


def softmax(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick_float(1)
    at = axis(d, pool, name)
    return make(pool, name, d.choice(SPREADS).replace("AT", str(at)), lambda a: a)


def matmul(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick_float(1)
    kind = pool.kinds[name]
    text, change = d.choice((
        ("{0} @ {0}.transpose(-1, -2)", lambda a: a @ np.swapaxes(a, -1, -2)),
        ("{0} @ Tensor.ones(N, 3)", lambda a: a @ np.zeros((a.shape[-1], 3), np.bool_)),
        ("({0}.unsqueeze(-1) * {0}.unsqueeze(-2)).sum(-1)", lambda a: a),
    ))  # fmt: skip
    if "transpose" in text and len(kind.shape) < 2:
        return None
    return make(pool, name, text.replace("N", str(kind.shape[-1])), change)
