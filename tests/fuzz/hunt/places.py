"""Statements that move, join, index, or look through windows."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draw import Draw
from tests.fuzz.hunt.pool import FLOATS, Change, Drawn, Pool, axis, make


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
