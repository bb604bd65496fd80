"""The kinds of statements, and how often each is drawn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.fuzz.draw import Draw
from tests.fuzz.hunt.plan import Kind
from tests.fuzz.hunt.pool import FLOATS, LARGEST, Change, Drawn, Maker, Pool, axis, make

# *** elementwise

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


# *** reduces: sums, scans, softmax, products


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


# *** movement and joins


def movement(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick(lambda kind: len(kind.shape) >= 1)
    shape = pool.kinds[name].shape
    at, times = axis(d, pool, name), d.integer(2, 3)
    order = tuple(sorted(range(len(shape)), key=lambda i: d.integer(0, 9)))
    stop = d.integer(1, shape[at])
    start = d.integer(0, stop - 1)
    pre = ":, " * at
    forms: list[tuple[str, Change]] = [
        ("{0}.flatten()", lambda a: a.ravel()),
        (f"{{0}}.permute({order})", lambda a: a.transpose(order)),
        (f"{{0}}.flip({at})", lambda a: a),
        (f"{{0}}.roll(1, {at})", lambda a: a),
        (f"{{0}}.unsqueeze({at})", lambda a: np.expand_dims(a, at)),
        (f"{{0}}.unsqueeze({at}).expand({', '.join(['-1'] * at + [str(times)] + ['-1'] * (len(shape) - at))})",
         lambda a: np.repeat(np.expand_dims(a, at), times, at)),
        (f"{{0}}.repeat({', '.join(['1'] * at + [str(times)] + ['1'] * (len(shape) - at - 1))})",
         lambda a: np.repeat(a, times, at)),
        (f"{{0}}.repeat_interleave({times}, {at})", lambda a: np.repeat(a, times, at)),
        (f"{{0}}[{pre}{start}:{stop}]", lambda a: a.take(range(start, stop), at)),
        (f"{{0}}[{pre}::2]", lambda a: a.take(range(0, shape[at], 2), at)),
        (f"{{0}}[{pre}::-1]", lambda a: a),
        (f"{{0}}[{pre}{start}]", lambda a: a.take(start, at)),
        ("{0}.tril()", lambda a: np.tril(a)),
        ("{0}.triu(1)", lambda a: np.triu(a)),
        (f"{{0}}.unfold({at}, 2, 1)", lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, at)),
    ]  # fmt: skip
    text, change = d.choice(forms)
    if "tri" in text and len(shape) < 2:
        return None
    return make(pool, name, text, change)


def split(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick(lambda kind: len(kind.shape) >= 1)
    shape = pool.kinds[name].shape
    fits = [(at, by) for at, size in enumerate(shape) for by in (2, 3, 4) if size % by == 0 and size > by]
    if not fits:
        return None
    at, by = d.choice(fits)
    new = (*shape[:at], by, shape[at] // by, *shape[at + 1 :])
    return make(pool, name, f"{{0}}.reshape{new}", lambda a: a.reshape(new))


def pad(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick(lambda kind: len(kind.shape) >= 1)
    at, before, after = axis(d, pool, name), d.integer(0, 2), d.integer(0, 2)
    rank = len(pool.kinds[name].shape)
    widths = [(before, after) if i == at else (0, 0) for i in range(rank)]
    value = d.choice(("", "", ", value=2"))
    return make(pool, name, f"{{0}}.pad({tuple(widths)}{value})", lambda a: np.pad(a, widths))


def join(d: Draw, pool: Pool) -> Drawn | None:
    first = pool.pick(lambda kind: len(kind.shape) >= 1)
    kind = pool.kinds[first]
    second = d.choice([name for name, other in pool.kinds.items() if other == kind])
    at = axis(d, pool, first)
    form, change = d.choice((
        (f"Tensor.cat({{0}}, {{1}}, dim={at})", lambda a: np.concatenate([a, a], at)),
        (f"Tensor.stack({{0}}, {{1}}, dim={at})", lambda a: np.stack([a, a], at)),
        (f"Tensor.cat({{0}}, {{1}}, {{0}}, dim={at})", lambda a: np.concatenate([a, a, a], at)),
        (f"Tensor.stack({{0}}.sum({at}), {{1}}.max({at}))", lambda a: np.stack([a.any(at), a.any(at)])),
    ))  # fmt: skip
    made = make(pool, first, form, change)
    return made and Drawn(made.text, (first, second), made.kind)


# *** indexing


def index(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick(lambda kind: len(kind.shape) >= 1)
    at = axis(d, pool, name)
    size = pool.kinds[name].shape[at]
    chosen = [d.integer(0, size - 1) for _ in range(d.integer(1, 4))]
    pre = ":, " * at
    text = d.choice(
        (f"{{0}}[{pre}{chosen}]", f"{{0}}[{pre}Tensor({chosen})]", f"{{0}}[{pre}Tensor.arange({len(chosen)}) % {size}]")
    )
    return make(pool, name, text, lambda a: a.take(chosen, at))


def gather(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick(lambda kind: len(kind.shape) >= 1 and kind.dtype != "bool")
    at = axis(d, pool, name)
    text = d.choice((
        f"{{0}}.gather({at}, ({{0}} > 0.2).cast(dtypes.int) * ({{0}}.shape[{at}] - 1))",
        f"{{0}}.gather({at}, {{0}}.argsort({at}))",
        f"{{0}}.sort({at})[0]",
        f"{{0}}.scatter({at}, {{0}}.argsort({at}), {{0}} + 1)",
    ))  # fmt: skip
    return make(pool, name, text, lambda a: a)


def symbolic(d: Draw, pool: Pool) -> Drawn | None:
    """What a Variable bounds, summed to a shape that is fixed."""
    name = pool.pick_float(1)
    if pool.kinds[name].shape[0] < 2:
        return None
    size = pool.kinds[name].shape[0]
    bound = f'Variable("i", 1, {size}).bind({d.integer(1, size)})'
    at = f'Variable("j", 0, {size - 1}).bind({d.integer(0, size - 1)})'
    text = d.choice((f"{{0}}[:{bound}].sum(0)", f"{{0}}[:{bound}].max(0)", f"{{0}}[{at}]"))
    return make(pool, name, text, lambda a: a[0])


# *** windows


def window(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick(lambda kind: kind.dtype in FLOATS and len(kind.shape) >= 2 and min(kind.shape[-2:]) >= 2)
    h, w = pool.kinds[name].shape[-2:]
    halves: Change = lambda a: a.any((-1, -2)).reshape(1, -1, 1, 1).repeat(h // 2, 2).repeat(w // 2, 3)  # noqa: E731
    inner: Change = lambda a: np.zeros((1, 2, h - 1, w - 1))  # noqa: E731
    same: Change = lambda a: np.zeros((1, 2, h + 1, w + 1))  # noqa: E731
    flat = f"{{0}}.reshape(1, -1, {h}, {w})"
    text, change = d.choice((
        (f"{flat}.max_pool2d((2, 2))", halves),
        (f"{flat}.avg_pool2d((2, 2))", halves),
        (f"{flat}[:, :1].conv2d(Tensor.arange(8, dtype=dtypes.float).reshape(2, 1, 2, 2) * 0.1)", inner),
        (f"{flat}[:, :1].conv2d(Tensor.ones(2, 1, 2, 2), padding=1)", same),
    ))  # fmt: skip
    return make(pool, name, text, change, None if "conv" not in text else pool.kinds[name].dtype)


# *** memory: what has its own, what is written in place


def keep(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick()
    text = d.choice(
        ("{0}.contiguous()", "{0}.contiguous()", "{0}.clone()", "{0}.contiguous().realize()", "{0}.detach()")
    )
    return Drawn(text, (name,), pool.kinds[name])


def realize(d: Draw, pool: Pool) -> Drawn | None:
    name = pool.pick()
    return Drawn("{0}.realize()", (name,))


def assign(d: Draw, pool: Pool) -> Drawn | None:
    """A whole value, or a part of it."""
    if not pool.owned:
        return None
    name = d.choice(pool.owned)
    kind = pool.kinds[name]
    others = [n for n, other in pool.kinds.items() if other == kind]
    other = d.choice(others)
    whole = (
        "{0}.assign({0} * 2)",
        "{0}.assign({1})",
        "{0}.assign({1} + 1)",
        "{0}.assign({0} + {1})",
        "{0} += {1}",
        "{0} *= 2",
    )
    if not kind.shape or d.chance(40):
        return Drawn(d.choice(whole), (name, other))
    at = axis(d, pool, name)
    stop = d.integer(1, kind.shape[at])
    start = d.integer(0, stop - 1)
    where = f"{':, ' * at}{start}:{stop}"
    back = f"{':, ' * at}::-1"
    chosen = [d.integer(0, kind.shape[at] - 1) for _ in range(2)]
    parts = (
        f"{{0}}[{where}] = 3",
        f"{{0}}[{where}] = {{1}}[{where}]",
        f"{{0}}[{where}] += 1",
        f"{{0}}[{where}].assign({{1}}[{where}] * 2)",
        f"{{0}}[{':, ' * at}{start}] = {{1}}[{':, ' * at}{start}]",
        f"{{0}}[{':, ' * at}{chosen}] = 2",
        f"{{0}}.assign({{0}}[{back}])",
        f"{{0}}.assign({{0}}.flip({at}) + {{1}})",
        f"{{0}}[{where}] = {{0}}[{where}] * 2",
    )
    return Drawn(d.choice(parts), (name, other))


MAKERS: Mapping[Maker, int] = {
    unary: 14,
    binary: 10,
    compare: 3,
    masked: 4,
    cast: 4,
    bitcast: 1,
    reduce: 14,
    reduce_more: 4,
    arg_reduce: 2,
    scan: 5,
    softmax: 8,
    matmul: 6,
    movement: 16,
    split: 4,
    pad: 7,
    join: 7,
    index: 6,
    gather: 4,
    symbolic: 3,
    window: 4,
    keep: 5,
    realize: 2,
    assign: 9,
}
